"""The caches of a cluster's roles: emptied when a mode begins, flushed wherever rows are read by others.

Trainers have them, or embedding workers where there are some. Only in the thread of the training loop.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from hotrow.cache.modes import cached_tables
from hotrow.config import Table
from hotrow.runtime.cluster.roles import Roles
from hotrow.transport.client import Answer
from hotrow.transport.errors import PeerLost
from hotrow.transport.messages import CacheFlushed, FlushCache
from hotrow.types import RoleId

FLUSH_REQUESTS = 64  # of one role to a shard before the driver is asked for more numbers
FLUSHES_LOGGED = 32_768  # the last ones, by the log of a segment: those in flight together must not be more


class ClusterCaches:
    """All caches of a run; without effect where no table has one."""

    def __init__(self, roles: Roles, tables: Mapping[str, Table]) -> None:
        self._roles = roles
        self._cached = bool(cached_tables(tables))
        self._numbers: int | None = None  # that flushes have used; None: no one was
        self.changed_rows: dict[str, int] = {}  # by role, with changes that no shard knows, as of its last batch

    @property
    def holders(self) -> list[RoleId]:
        """The roles that have caches."""
        if not self._cached:
            return []
        workers = self._roles.embedding_workers
        return list(self._roles.trainers) if workers is None else workers.present

    def open(self, number: int) -> None:
        """Empty the caches of embedding workers: a mode begins. Trainers empty theirs when it begins on them.

        `number`: of the order that opens the mode.
        """
        workers = self._roles.embedding_workers
        if self._cached and workers is not None:
            for name, asked in workers.open_caches(number).items():
                self._answer(name, asked)
        for name in self.holders:
            self.changed_rows.pop(name, None)

    def close(self) -> None:
        """A mode has ended, and all changes are on the shards, or lost."""
        if self._roles.embedding_workers is not None:
            self._roles.embedding_workers.close_caches()

    def flush(self, count: Callable[[Mapping[str, int]], None], names: Sequence[RoleId] | None = None) -> None:
        """Let roles write the changes of cached rows back (None: all). `count` gets what their caches counted.

        Changes of a role that is lost meanwhile are lost with it.
        """
        holders = self.holders
        left = holders if names is None else [name for name in names if name in holders]
        while left:
            left = [name for name in self._flush_some(left, count) if name not in self._roles.lost]

    def stop_idle(self, count: Callable[[Mapping[str, int]], None]) -> None:
        """Flush embedding workers that leave and hold no batch, and stop them."""
        workers = self._roles.embedding_workers
        if self._cached and workers is not None and (idle := workers.idle):
            self.flush(count, idle)
            workers.stop_idle(idle)

    def _flush_some(self, names: Sequence[RoleId], count: Callable[[Mapping[str, int]], None]) -> list[RoleId]:
        """Let each role send a number of requests; returns those that have more changes."""
        if self._numbers is None:
            self._numbers = self._roles.newest_grant()  # a kept segment knows those of runs before
        most, sent, left = max(1, min(FLUSH_REQUESTS, FLUSHES_LOGGED // len(names))), {}, []
        for name in names:
            sent[name] = self._roles.rpc.request(name, FlushCache(self._numbers + 1, most))
            self._numbers += most
        for name, asked in sent.items():
            if (answer := self._answer(name, asked)) is None:
                continue
            flushed = answer.of(CacheFlushed, name)
            if flushed.left:
                left.append(name)
            else:
                self.changed_rows.pop(name, None)
            count(flushed.counts)
        return left

    def _answer(self, name: RoleId, asked: Future[Answer]) -> Answer | None:
        """None where the role is lost meanwhile."""
        try:
            return self._roles.answer(asked)
        except PeerLost:
            if not self._roles.caused_by_loss([name]):
                raise
            return None
