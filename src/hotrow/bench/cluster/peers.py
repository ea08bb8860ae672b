"""Two trainers and two shards beside other systems on two trainers."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from hotrow.bench.cluster.plan import ClusterPlan, Hidden
from hotrow.bench.cluster.stretches import contestant, race, trainer_of
from hotrow.bench.peers import Adapter
from hotrow.bench.rounds import BenchProgress, Contestant, Figures, Seconds, median_ratio
from hotrow.data.source import Source
from hotrow.modes import Hybrid, Sync
from hotrow.runtime.settings import Ray


def measure(
    plan: ClusterPlan, source: Source, file: Path, watch: BenchProgress, adapters: Sequence[Adapter]
) -> Figures:
    """For each dim and network; `vs_NAME_d16` is of the network where it is worse."""
    found: Figures = {}
    names = [each.name for each in adapters]
    for dim in plan.dims:
        for network, hidden in plan.networks.items():
            seconds = _race(plan, source, file, dim, network, hidden, watch, adapters)
            found |= {f"{network}_d{dim}_{key}": value for key, value in _figures(seconds, names).items()}
        for name in names:
            ratios = [found[f"{network}_d{dim}_vs_{name}"] or 0 for network in plan.networks]
            found[f"vs_{name}_d{dim}"] = min(ratios)
    return found


def _race(
    plan: ClusterPlan,
    source: Source,
    file: Path,
    dim: int,
    network: str,
    hidden: Hidden,
    watch: BenchProgress,
    adapters: Sequence[Adapter],
) -> Mapping[str, Seconds]:
    with ExitStack() as stack:
        ours = stack.enter_context(closing(trainer_of(plan, hidden, Ray(trainers=2, shards=2), dim=dim)))
        contestants: dict[str, Contestant] = {
            "hybrid": contestant(plan, source, ours, Hybrid()),
            "sync": contestant(plan, source, ours, Sync()),
        }
        for each in adapters:
            if each.cluster is not None:
                contestants[each.name] = stack.enter_context(closing(each.cluster(plan, dim, hidden, file))).step_s
        return race(plan, contestants, f"{network}, dim {dim}: beside peers", watch)


def _figures(seconds: Mapping[str, Seconds], peers: list[str]) -> Figures:
    found: Figures = {f"{who}_step_ms": 1e3 * float(np.median(each)) for who, each in seconds.items()}
    for peer in peers:
        found[f"vs_{peer}"] = median_ratio(seconds[peer], seconds["hybrid"])
        found[f"sync_vs_{peer}"] = median_ratio(seconds[peer], seconds["sync"])
    return found
