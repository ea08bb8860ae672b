"""Shards that are started again in place of processes that ended: their rows are in shared memory, or in a checkpoint.

Requests without a reply are sent to the new process, which holds them until it has word from the driver of how far the
one before came (`ResumeShard`).
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hotrow.errors import HotrowError
from hotrow.runtime.losses import QUIET_STEPS, RoleLoss, RoleLost, SavedRows
from hotrow.transport.client import Outcome, RpcClient
from hotrow.transport.errors import PeerLost
from hotrow.transport.messages import Query, QueryReply, ShardAt
from hotrow.types import RoleId

if TYPE_CHECKING:
    from hotrow.runtime.cluster.roles import Roles

RESTART_S = 15.0  # that a restart takes at most, mostly

_log = logging.getLogger("hotrow.runtime")


@dataclass(frozen=True, slots=True)
class RestartedShard:
    """A shard whose new process answers."""

    name: RoleId
    incarnation: int
    rows_lost: bool  # its rows are those of the last checkpoint
    dense_found: bool  # it has the dense parameters of the process before


class ShardUser(Protocol):
    """The part of the run that knows what the shards have been told."""

    def resume_shard(self, shard: RestartedShard) -> None:
        """Tell a shard how far the process before it came."""


class StartShard(Protocol):
    def __call__(self, name: RoleId, *, incarnation: int, checkpoint: str | None) -> str:
        """Start a shard in its place; returns its address. `incarnation`: of the process before."""


class ShardRestarts:
    """Starts lost shards again, each at most `most` times in a row."""

    def __init__(self, start: StartShard, most: int) -> None:
        self._start, self._most = start, most
        self.user: ShardUser | None = None  # None: no mode was opened yet
        self.last_checkpoint: Callable[[], SavedRows | None] = lambda: None
        self.step: Callable[[], int] = lambda: 0  # dense steps so far
        self._idle = threading.Event()
        self._idle.set()
        self._failure: str | None = None  # of a restart: it ends the run
        self._restarted_s = -math.inf  # when the last one was complete
        self._moved: dict[RoleId, ShardAt] = {}  # all shards that were started again
        self._incarnations: dict[RoleId, int] = {}
        self._in_a_row: dict[RoleId, tuple[int, int]] = {}  # losses, and the step of the last

    def restart(self, roles: "Roles", name: RoleId, why: str) -> RoleLoss:
        """Start a shard again, and let all roles go on with it; RoleLost where that is not possible."""
        self._idle.clear()
        try:
            return self._restart(roles, name, why)
        except HotrowError as error:
            wrapped = f"{name} is gone: {why}; it cannot be started again: {error}"
            self._failure = str(error) if isinstance(error, RoleLost) else wrapped
            raise RoleLost(self._failure) from None
        finally:
            self._idle.set()

    def wait(self, most_s: float = RESTART_S) -> None:
        """Wait until no shard is being started again: a role that starts meanwhile would wait at its old address.

        Not for longer than a restart should take: that may wait for the role, an embedding worker. Thread-safe.
        """
        self._idle.wait(most_s)

    def check(self) -> None:
        """RoleLost where a restart has failed. Thread-safe."""
        if self._failure is not None:  # the process is not among the lost ones any more
            raise RoleLost(self._failure)

    def _restart(self, roles: "Roles", name: RoleId, why: str) -> RoleLoss:
        began, step = time.monotonic(), self.step()
        self._check_limit(name, why, step)
        roles.processes.end(name)
        known, saved = self._incarnations.get(name, 1), self.last_checkpoint()
        try:
            address = self._start(name, incarnation=known, checkpoint=None if saved is None else saved.where)
        except RoleLost as lost:
            raise RoleLost(f"{name} is gone: {why}; it cannot be started again: {lost}") from None
        roles.rpc.reconnect(name, address)
        ready = roles.answer(roles.rpc.request(name, Query("ready"))).of(QueryReply, name).figures
        shard = RestartedShard(
            name, int(ready["incarnation"]), ready["incarnation"] != known, bool(ready["dense_found"])
        )
        self._incarnations[name] = shard.incarnation
        if self.user is not None:
            self.user.resume_shard(shard)
        self._moved[name] = ShardAt(str(name), address, shard.incarnation)
        workers = [] if roles.embedding_workers is None else roles.embedding_workers.present
        for client in (*roles.trainers, *workers, *roles.loaders):
            self._tell(roles.rpc, client, self._moved[name])
        self._restarted_s = time.monotonic()
        steps = step - saved.step if shard.rows_lost and saved is not None else 0
        return RoleLoss(name, why, steps=steps, restored=shard.rows_lost, seconds=time.monotonic() - began)

    def since_restart(self) -> float:
        """Seconds since a shard was started again."""
        return time.monotonic() - self._restarted_s

    def tell_all_to(self, rpc: RpcClient, client: RoleId) -> None:
        """Tell a role that joins where all shards are that were started again: it may have started before."""
        for moved in list(self._moved.values()):
            self._tell(rpc, client, moved)

    def _tell(self, rpc: RpcClient, client: RoleId, moved: ShardAt) -> None:
        """A client that is lost need not know."""

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Exception) and not isinstance(outcome, PeerLost):
                _log.warning("%s was not told that %s was started again: %s", client, moved.name, outcome)

        rpc.send(client, moved, (), told)

    def _check_limit(self, name: RoleId, why: str, step: int) -> None:
        losses, last = self._in_a_row.get(name, (0, step))
        losses = 1 if step - last >= QUIET_STEPS else losses + 1
        self._in_a_row[name] = (losses, step)
        if losses > self._most:
            ends = f"{name} is gone: {why}; it is not started again"
            often = f"it was lost {losses} times with fewer than {QUIET_STEPS} steps between them"
            raise RoleLost(f"{ends}{f': {often}' if self._most else ''} (engine.replace_lost={self._most})")
