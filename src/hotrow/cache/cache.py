"""The rows of one table that a worker keeps, from the request of a batch to the update of its rows.

`begin` decides what a batch needs and makes a row for every absent key, so that `receive` needs no eviction. As many
rows as there are beyond the capacity go then, the first in the order of eviction; those among them that batches between
`begin` and `finish` use stay until a later `begin`.

Requests are answered in the order in which they began, and every reply has to be received in this order: a batch that
needs a row which an earlier one has requested does not request it again. Changes that the server did not know when it
answered stay on top of the rows that come: those that no request has (`CachedRows.fill`: a write-back makes the row as
it is sent the new base), and those that later requests have (`with_changes`).
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import torch

from hotrow.cache.changes import Changes, of_one_period, with_changes
from hotrow.cache.device_copies import DeviceCopies
from hotrow.cache.exchange import NO_ROW, CacheReply, CacheRequest
from hotrow.cache.rows import AWAITED, CachedRows, CacheRows, RowValues
from hotrow.config import Cache, Table
from hotrow.optim.sparse import Swap
from hotrow.store import Applied, LookupPlan, Rows
from hotrow.store.arrays import Flags, Floats, Integers, Keys

NO_KEYS: Keys = np.empty(0, np.uint64)


@dataclass(slots=True)
class CacheCounts:
    """In rows of distinct keys, summed over batches, and bytes."""

    hits: int = 0  # cached and valid
    misses: int = 0  # absent
    awaited: int = 0  # absent, and requested by an earlier batch
    ahead: int = 0  # too many own updates: written back and fetched
    invalid: int = 0  # too many updates of others: the server sent the row
    written: int = 0  # write-backs
    overflowed: int = 0  # rows beyond the capacity when a batch had begun
    refused: int = 0  # gradients that were not finite
    lost: int = 0  # changes of rows that the server no longer had a place for
    dropped: int = 0  # rows with changes whose server has lost its own, or whose request failed; gradients for them
    unadmitted: int = 0  # gradients of keys to which the server gave no row
    bytes: int = 0  # of requests and replies
    bytes_saved: int = 0  # that the same batches send more without a cache: keys, rows and gradients

    def add_bytes(self, sent: int, without: int = 0) -> None:
        """Bytes of a message, and those of the batch without a cache."""
        self.bytes += sent
        self.bytes_saved += without - sent


@dataclass(slots=True, eq=False)
class Announced:
    """The keys of a batch that will begin later."""

    keys: Keys
    plan: LookupPlan
    use: int  # the number of the announcement


@dataclass(slots=True, eq=False)
class CachedBatch:
    """A batch in use: distinct keys, and where their rows are."""

    keys: Keys
    plan: LookupPlan
    request: CacheRequest
    uniques: Integers  # numbers in the plan of the keys that were checked, then of those that were fetched
    created: Keys  # keys whose rows are empty until the reply is received
    received: bool = False
    dropped: Keys = field(default_factory=lambda: NO_KEYS)  # whose rows were, since


class RowCache:
    """Cached rows of one table. Not thread-safe."""

    def __init__(
        self,
        table: Table,
        cache: Cache,
        *,
        workers: int = 1,
        threads: int = 1,
        counts: CacheCounts | None = None,
        device: torch.device | None = None,
    ) -> None:
        """`workers`: with caches of this table. `counts`: those of an earlier cache, to be continued.

        `device`: where the rows are; None: in host memory.
        """
        self.table, self.cache = table, cache.model_copy(update={"workers": cache.workers or workers})
        self.counts = counts or CacheCounts()
        plain = {"type": "float32", "clock": True, "cache": None, "segment": None, "admission": None, "expiry": None}
        plain |= {"default": 0.0, "last_seen": False, "eviction": None, "disk": None, "path": None}
        rows = table.model_copy(update={**plain, "capacity": cache.capacity})
        self._rows: CacheRows = (
            CachedRows(rows, self.cache, threads) if device is None else _rows_on(device, rows, self.cache, threads)
        )
        self._swap: Swap | None = getattr(table.optimizer, "swap", None)
        self._announced: deque[Announced] = deque()  # in the order in which they are to begin
        self._batches: list[CachedBatch] = []

    @property
    def tier(self) -> CacheRows:
        """The rows, those of batches in use among them."""
        return self._rows

    @property
    def copies(self) -> DeviceCopies | None:
        """To and from the device of the rows; None: they are in host memory."""
        return self._rows.copies

    @property
    def changed_rows(self) -> int:
        """Rows with changes that the server does not know."""
        return self._rows.changed_rows

    @property
    def workers(self) -> int:
        """That are expected to update a row at the same time."""
        return self.cache.workers or 1

    @property
    def batches_in_use(self) -> int:
        """Batches whose rows are not evicted."""
        return len(self._batches)

    @property
    def window_left(self) -> int:
        """How many more batches may be announced now: the one that begins next, and the window behind it."""
        return max(self.cache.window + 1 - len(self._announced), 0) if self.cache.policy == "ahead" else 0

    def announce(self, keys: Keys) -> Announced:
        """Say which distinct keys a later batch has; batches are announced in the order in which they will begin."""
        if self.window_left == 0:
            raise AssertionError(f"policy {self.cache.policy!r} has no room for another announcement")
        plan = self._rows.plan_distinct(keys)
        announced = Announced(keys, plan, self._rows.announce(plan))
        self._announced.append(announced)
        return announced

    def withdraw(self, announced: Announced) -> None:
        """An announced batch will not begin."""
        self._announced.remove(announced)
        self._rows.withdraw(announced.plan, announced.use)

    def begin(self, keys: Keys, *, samples: int, announced: Announced | None = None) -> CachedBatch:
        """Request the rows of distinct keys, and find places for them. `announced`: of these keys.

        ValueError where an absent key occurs twice: no row is made.
        """
        rows = self._rows
        if announced is None:
            plan, use = rows.plan_distinct(keys), 0
        else:
            self._announced.remove(announced)
            plan, use = announced.plan, announced.use
        found = rows.place(plan, use=use, pinned=[batch.plan for batch in self._batches])
        whole, samples = of_one_period(found.changes, samples, self._swap)
        request = CacheRequest(whole, samples, found.checked, found.clocks, found.fetched)
        counts = self.counts
        counts.add_bytes(request.nbytes, len(keys) * (16 + 8 * self.table.dim))
        counts.hits += len(found.checked)
        counts.ahead += found.ahead
        counts.awaited += found.awaited
        counts.misses += found.absent
        counts.written += len(whole)
        counts.overflowed += found.beyond
        batch = CachedBatch(keys, plan, request, found.uniques, found.created)
        self._batches.append(batch)
        return batch

    def receive(self, batch: CachedBatch, reply: CacheReply) -> None:
        """Store the rows that came."""
        self.counts.add_bytes(reply.nbytes)
        batch.received = True
        if not len(reply.rows.keys):
            return
        invalid = int(reply.invalid.sum())
        self.counts.hits -= invalid
        self.counts.invalid += invalid
        request, checked = batch.request, len(batch.request.checked)
        expected, uniques = request.fetched, batch.uniques[checked:]
        if invalid:
            expected = np.concatenate([request.checked[reply.invalid], expected])
            uniques = np.concatenate([batch.uniques[:checked][reply.invalid], uniques])
        rows = Rows(expected, reply.rows.values, reply.rows.state, reply.rows.fields)
        gone = rows.fields["clock"] == NO_ROW
        for later in self._batches[self._batches.index(batch) + 1 :]:  # not in the rows that came
            rows = with_changes(rows, later.request.changes, self.cache.clock, self._swap)
        if gone.any():
            lost = rows.keys[gone]
            self.counts.lost += int((self._rows.versions(lost) > 1).sum())
            self._rows.erase(lost)
            rows, uniques = _some(rows, ~gone), uniques[~gone]
        self._rows.fill(batch.plan, uniques, rows)

    def read(self, batch: CachedBatch, out: RowValues | None = None) -> RowValues:
        """The rows of a batch that is received, own updates since among them; the default row where there is none.

        They are where the cache is: in host memory, or on its device.
        """
        return self._rows.values(batch.plan, self.table.default, out)

    def apply(
        self, batch: CachedBatch, gradients: RowValues, weights: Floats, *, samples: int, lr_scale: float = 1.0
    ) -> Applied:
        """Update the rows of a batch with a gradient for each key times its weight; a weight of 0 leaves the row."""
        applied = self._rows.update(batch.plan, gradients, weights, samples=samples, lr_scale=lr_scale)
        self.counts.refused += applied.refused
        if applied.absent:
            self._count_without_row(batch, weights)
        return applied

    def _count_without_row(self, batch: CachedBatch, weights: Floats) -> None:
        """Gradients that had no row, or one that has not come yet, by the reason."""
        here = (self._rows.versions(batch.plan) > 0) & (self._rows.clocks(batch.plan) != AWAITED)
        without = batch.keys[~here & (weights != 0)]
        dropped = int(np.isin(without, batch.dropped).sum())
        self.counts.dropped += dropped
        self.counts.unadmitted += len(without) - dropped

    def finish(self, batch: CachedBatch) -> None:
        """Release the rows of a batch, unless that is done.

        One whose reply did not come leaves no row of those that it requested first.
        """
        if batch not in self._batches:
            return
        self._batches.remove(batch)
        if not batch.received:
            self._drop(batch.created)

    def drop(self, lost: Callable[[Keys], Flags]) -> None:
        """Forget rows whose server has lost its own, of the keys that `lost` flags; changes among them are counted."""
        for batch in self._batches:
            gone = batch.keys[lost(batch.keys) & (self._rows.versions(batch.plan) > 0)]
            batch.dropped = np.union1d(batch.dropped, gone)
        for keys in [chunk[lost(chunk)] for chunk in self._rows.all_keys()]:
            self._drop(keys)

    def take_all_changes(self, *, samples: int, bytes_most: int = 2**62) -> Iterator[CacheRequest]:
        """The changes of all rows for a flush, in requests of `bytes_most` or less. The rows stay.

        No request may be in flight. Changes are taken with their request: those of later ones stay here until then.
        """
        most = max(1, bytes_most // (16 + 4 * (self._rows.dim + self._rows.state_dim)))
        for keys in self._rows.changed_keys():
            for first in range(0, len(keys), most):
                yield self._flush_request(self._rows.take_changes(keys[first : first + most]), samples)

    def _flush_request(self, changes: Changes, samples: int) -> CacheRequest:
        whole, reached = of_one_period(changes, samples, self._swap)
        self.counts.written += len(whole)
        request = CacheRequest(whole, reached, NO_KEYS, np.empty(0, np.uint32), NO_KEYS)
        self.counts.add_bytes(request.nbytes)
        return request

    def close(self) -> None:
        """Release all rows; changes are lost."""
        self._rows.close()

    def _drop(self, keys: Keys) -> None:
        self.counts.dropped += int((self._rows.versions(keys) > 1).sum())
        self._rows.erase(keys)


def _rows_on(device: torch.device, table: Table, cache: Cache, threads: int) -> CacheRows:
    from hotrow.cache.device_rows import DeviceRows  # needs Triton, which others do without

    return DeviceRows(table, cache, threads, device)


def _some(rows: Rows, which: Flags) -> Rows:
    fields = {name: column[which] for name, column in rows.fields.items()}
    return Rows(rows.keys[which], rows.values[which], rows.state[which], fields)


def counts_since(taken: Mapping[str, CacheCounts], now: Mapping[str, CacheCounts]) -> dict[str, int]:
    """By name and table ("cache_hits.user"), what was counted since counts were last taken."""
    return {
        f"cache_{name}.{table}": number - (getattr(taken[table], name) if table in taken else 0)
        for table, counts in now.items()
        for name, number in asdict(counts).items()
    }
