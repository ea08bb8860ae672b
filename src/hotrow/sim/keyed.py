"""Work that computes nothing and reads real keys: bytes, hits and misses are real, values are not.

`KeyedWork` counts the rows of each batch by its distinct keys. `CachedKeyedWork` has production caches in front of a
table: every batch changes its rows by a constant.
"""

from collections.abc import Callable, Sequence

import numpy as np

from hotrow.config import Table
from hotrow.modes import Mode
from hotrow.modes.base import Effect, Event, Grant, RunFacts
from hotrow.server.step_window import early_rows
from hotrow.sim.caches import CacheSend, SimCaches
from hotrow.sim.leases import SimLease
from hotrow.sim.work import BatchBytes, CountingWork
from hotrow.store import RamTier
from hotrow.store.arrays import Keys

KeysOf = Callable[[SimLease], Keys]  # the distinct keys of a batch, the same whenever it is asked
KEY_BYTES = 8


class KeyedWork(CountingWork):
    """Rows of `dim` floats, read and pushed with their keys."""

    def __init__(self, keys_of: KeysOf, dim: int, dense_bytes: int) -> None:
        super().__init__(dense_bytes)
        self._keys_of, self._row_bytes_each = keys_of, KEY_BYTES + 4 * dim

    def pull_early(self, grant: Grant, lease: SimLease, in_hand: Sequence[SimLease]) -> int:
        theirs = [self._keys_of(each).view(np.int64) for each in in_hand]
        early = early_rows(self._keys_of(lease).view(np.int64), theirs)
        return int(early.sum()) * self._row_bytes_each

    def pull(self, grant: Grant, lease: SimLease, *, rest: bool = False) -> BatchBytes:
        rows = len(self._keys_of(lease)) * self._row_bytes_each
        return BatchBytes(rows, self._dense_bytes, rows, lease.samples)


class CachedKeyedWork(KeyedWork):
    """Batches in front of caches. It observes the cluster, to know when a mode starts."""

    def __init__(self, keys_of: KeysOf, table: Table, dense_bytes: int) -> None:
        super().__init__(keys_of, table.dim, dense_bytes)
        self._name, self._dim = table.name, table.dim
        self.tier = RamTier(table, threads=1)
        self.caches = SimCaches({table.name: table}, {table.name: self.tier})
        self._requests: dict[int, tuple[int, int]] = {}  # by grant: bytes, samples
        self._samples = 0

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        """A mode starts."""
        self.caches.reset(facts.workers)

    def cut(self, time_s: float) -> None:
        """No effect: modes with caches apply rows on arrival."""

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        """No effect."""

    def request(self, grant: Grant, lease: SimLease) -> CacheSend:
        send = self.caches.request(grant.grant, grant.worker, {self._name: self._keys_of(lease)}, self._samples)
        self._requests[grant.grant] = send.size, lease.samples
        return send

    def take(self, send: CacheSend) -> None:
        self.caches.take(send)

    def pull(self, grant: Grant, lease: SimLease, *, rest: bool = False) -> BatchBytes:
        down = self.caches.answer(grant.grant, self._samples)
        return BatchBytes(down, self._dense_bytes, 0, lease.samples, self._requests[grant.grant][0])

    def receive(self, grant: int) -> None:
        self.caches.receive(grant)

    def push(self, grant: int) -> None:
        _, samples = self._requests.pop(grant)
        count = len(self.caches.batch(grant, self._name)[1].keys)
        gradients = np.ones((count, self._dim), np.float32)
        self.caches.push(grant, {self._name: (gradients, np.ones(count, np.float32))}, samples)
        self._samples += samples

    def flush(self, worker: int) -> CacheSend | None:
        return self.caches.flush(worker, self._samples)

    def lose_worker(self, worker: int) -> int:
        return self.caches.lose(worker)

    def take_counts(self) -> dict[str, int]:
        return self.caches.take_counts()

    def discard(self, grant: int) -> None:
        self._requests.pop(grant, None)
        self.caches.discard(grant)

    def close(self) -> None:
        """Release all rows."""
        self.caches.close()
        self.tier.close()
