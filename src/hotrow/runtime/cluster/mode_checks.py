"""Which modes a cluster supports."""

from collections.abc import Mapping

from torch.optim import Optimizer

from hotrow.cache.modes import check_cached_mode
from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.modes import MODES, Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime.look_ahead import expiry_fault
from hotrow.server.replicas import k_step_adam
from hotrow.transport.limits import Limits

IN_FLIGHT_MOST = Limits().open_requests // 4  # a batch has a lookup, a push and some messages open at one shard


def check_cluster_mode(mode: Mode, facts: RunFacts, tables: Mapping[str, Table], optimizer: Optimizer | None) -> None:
    """ConfigError where a cluster does not support a mode."""
    if mode.name not in MODES:  # trainers make a mode from its settings
        raise ConfigError(
            f"mode={mode.name!r}: a mode of your own runs in one process and in the simulator, not on a cluster: "
            f"set engine to 'local', or take one of {', '.join(MODES)}"
        )
    mode.check(facts)
    check_cached_mode(tables, mode)
    if mode.most_in_flight > IN_FLIGHT_MOST:
        raise ConfigError(
            f"max_in_flight={mode.most_in_flight}: on a cluster at most {IN_FLIGHT_MOST} batches of a trainer are "
            f"in flight, since a role takes {Limits().open_requests:,} requests of a peer at once: take fewer"
        )
    if mode.dense == "local":
        k_step_adam(optimizer)
    if mode.first_look_ahead and (fault := expiry_fault(tables, facts)) is not None:
        raise ConfigError(f"look_ahead=1: {fault}, or leave it at 'auto'")
    if mode.dense != "server" and facts.workers > facts.parts:
        raise ConfigError(
            f"trainers={facts.workers}: in {mode.name} every trainer takes a share of the {facts.parts} local "
            f"batches of a global batch: take {facts.parts} or fewer, or another local_batch"
        )
