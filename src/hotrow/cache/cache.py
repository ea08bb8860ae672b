"""The rows of one table that a worker keeps, from the request of a batch to the update of its rows.

`begin` decides what a batch needs and gives every absent key a place, so that `receive` needs no eviction. Rows of
batches between `begin` and `finish` are not evicted. A key for which the cache has no place then (all rows are in use,
or new rows are the first to be evicted) gets a row in `overflow` until the batches that use it are finished.

Requests are answered in the order in which they began, and every reply has to be received in this order: a batch that
needs a row which an earlier one has requested does not request it again. Changes that the server did not know when it
answered stay on top of the rows that come: those that no request has (`CachedRows.fill`: a write-back makes the row as
it is sent the new base), and those that later requests have (`with_changes`).
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hotrow.cache.changes import Changes, joined, no_changes, of_one_period, with_changes
from hotrow.cache.exchange import NO_ROW, CacheReply, CacheRequest
from hotrow.cache.rows import CachedRows, Placed
from hotrow.config import Cache, Table
from hotrow.optim.sparse import Swap
from hotrow.store import Applied, LookupPlan, Rows
from hotrow.store.arrays import Flags, Floats, Integers, Keys

I64 = NDArray[np.int64]
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
    overflowed: int = 0  # rows without a place in the cache
    refused: int = 0  # gradients that were not finite
    lost: int = 0  # changes of rows that the server no longer had a place for
    dropped: int = 0  # rows with changes whose server has lost its own, or whose request failed
    bytes: int = 0  # of requests and replies
    bytes_saved: int = 0  # that the same batches send more without a cache: keys, rows and gradients

    def add_bytes(self, sent: int, without: int = 0) -> None:
        """Bytes of a message, and those of the batch without a cache."""
        self.bytes += sent
        self.bytes_saved += without - sent


@dataclass(slots=True, eq=False)
class BatchShare:
    """The keys of a batch whose rows are in one of the stores."""

    store: CachedRows
    keys: Keys
    plan: LookupPlan
    places: I64 | None  # in the batch; None: all keys, in order


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
    request: CacheRequest
    created: Keys  # keys whose rows are empty until the reply is received
    shares: list[BatchShare] = field(default_factory=list)
    received: bool = False
    dropped: bool = False  # some of its rows were, since


# What was known of the rows in each of the stores, and the shares.
PlacedBatch: TypeAlias = tuple[list[Placed], list[BatchShare]]


class RowCache:
    """Cached rows of one table. Not thread-safe."""

    def __init__(
        self, table: Table, cache: Cache, *, workers: int = 1, threads: int = 1, counts: CacheCounts | None = None
    ) -> None:
        """`workers`: with caches of this table. `counts`: those of an earlier cache, to be continued."""
        self.table, self.cache = table, cache.model_copy(update={"workers": cache.workers or workers})
        self.counts = counts or CacheCounts()
        plain = {"type": "float32", "clock": True, "cache": None, "segment": None, "admission": None, "expiry": None}
        plain |= {"default": 0.0, "last_seen": False, "eviction": None, "disk": None, "path": None}
        self._rows = CachedRows(table.model_copy(update={**plain, "capacity": cache.capacity}), self.cache, threads)
        self._overflow = CachedRows(table.model_copy(update={**plain, "capacity": None}), self.cache, threads)
        self._swap: Swap | None = getattr(table.optimizer, "swap", None)
        self._nothing = no_changes(table.dim, self._rows.state_dim)
        self._announced: deque[Announced] = deque()  # in the order in which they are to begin
        self._batches: list[CachedBatch] = []
        self._unsent: list[Changes] = []  # of rows that left the overflow

    @property
    def tier(self) -> CachedRows:
        """The rows that are kept between batches."""
        return self._rows

    @property
    def stores(self) -> tuple[CachedRows, CachedRows]:
        """The cache and its overflow."""
        return self._rows, self._overflow

    @property
    def changed_rows(self) -> int:
        """Rows with changes that the server does not know."""
        return sum(store.changed_rows for store in self.stores) + sum(map(len, self._unsent))

    @property
    def window_left(self) -> int:
        """How many more batches may be announced now: the one that begins next, and the window behind it."""
        return max(self.cache.window + 1 - len(self._announced), 0) if self.cache.policy == "ahead" else 0

    def announce(self, keys: Keys) -> Announced:
        """Say which distinct keys a later batch has; batches are announced in the order in which they will begin."""
        if self.window_left == 0:
            raise AssertionError(f"policy {self.cache.policy!r} has no room for another announcement")
        plan = self._rows.batch(keys)
        announced = Announced(keys, plan, self._rows.announce(plan))
        self._announced.append(announced)
        return announced

    def withdraw(self, announced: Announced) -> None:
        """An announced batch will not begin."""
        self._announced.remove(announced)
        self._rows.withdraw(announced.plan, announced.use)

    def begin(self, keys: Keys, *, samples: int, announced: Announced | None = None) -> CachedBatch:
        """Request the rows of distinct keys, and find places for them. `announced`: of these keys."""
        if announced is not None:
            self._announced.remove(announced)
        place = self._place_apart if len(self._overflow) else self._place
        found, shares = place(keys, announced)
        changes = [*(each.changes for each in found), *self._unsent]
        self._unsent = []
        whole, samples = of_one_period(joined(changes, self._nothing), samples, self._swap)
        checked, clocks, fetched, created = _requested(found)
        request = CacheRequest(whole, samples, checked, clocks, fetched)
        counts = self.counts
        counts.add_bytes(request.nbytes, len(keys) * (16 + 8 * self.table.dim))
        counts.hits += len(checked)
        counts.ahead += len(fetched) - len(created)
        counts.awaited += sum(each.awaited for each in found)
        counts.misses += len(created)
        counts.written += len(whole)
        batch = CachedBatch(keys, request, created, shares)
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
        expected = np.concatenate([batch.request.checked[reply.invalid], batch.request.fetched])
        rows = Rows(expected, reply.rows.values, reply.rows.state, reply.rows.fields)
        gone = rows.fields["clock"] == NO_ROW
        for later in self._batches[self._batches.index(batch) + 1 :]:  # not in the rows that came
            rows = with_changes(rows, later.request.changes, self.cache.clock, self._swap)
        came = _some(rows, ~gone) if gone.any() else rows
        for store in self.stores:
            if not len(store):
                continue
            store.fill(came)
            if len(came.keys) < len(rows.keys):
                lost = rows.keys[gone]
                self.counts.lost += int((store.versions(lost) > 1).sum())
                store.erase(lost)

    def read(self, batch: CachedBatch, out: Floats) -> None:
        """The rows of a batch that is received, own updates since among them; the default row where there is none.

        The share of the cache has all keys that are in no overflow before; the overflow's comes later, and is right.
        """
        for share in batch.shares:
            if share.places is None:
                share.store.read_placed(share.plan, out, self.table.default)
            else:
                part = np.empty((len(share.keys), self.table.dim), np.float32)
                share.store.read_placed(share.plan, part, self.table.default)
                out[share.places] = part

    def apply(
        self, batch: CachedBatch, gradients: Floats, weights: Floats, *, samples: int, lr_scale: float = 1.0
    ) -> Applied:
        """Update the rows of a batch with a gradient for each key times its weight; a weight of 0 leaves the row."""
        applied = Applied(0, 0, 0)
        for share in batch.shares:
            mine: slice | I64 = slice(None) if share.places is None else share.places
            applied += share.store.apply(
                share.plan, gradients[mine], weights=weights[mine], samples=samples, lr_scale=lr_scale
            )
        self.counts.refused += applied.refused
        self.counts.dropped += applied.absent if batch.dropped else 0
        return replace(applied, unadmitted=0)  # by the cache: those rows are in the overflow

    def finish(self, batch: CachedBatch) -> None:
        """Release the rows of a batch. One whose reply did not come leaves no row of those that it requested first."""
        self._batches.remove(batch)
        if not batch.received:
            for store in self.stores:
                self.counts.dropped += int((store.versions(batch.created) > 1).sum())
                store.erase(batch.created)
        for share in batch.shares:
            if share.store is self._overflow:
                self._leave_overflow(share)

    def drop(self, lost: Callable[[Keys], Flags]) -> None:
        """Forget rows whose server has lost its own, of the keys that `lost` flags; changes among them are counted."""
        for store in self.stores:
            for keys in [chunk.keys[lost(chunk.keys)] for chunk in store.export()]:
                self.counts.dropped += int((store.versions(keys) > 1).sum())
                store.erase(keys)
        kept = [changes.some(~lost(changes.keys)) for changes in self._unsent]
        self.counts.dropped += sum(map(len, self._unsent)) - sum(map(len, kept))
        self._unsent = [changes for changes in kept if len(changes)]
        for batch in self._batches:
            batch.dropped = True

    def take_all_changes(self, *, samples: int, bytes_most: int = 2**62) -> Iterator[CacheRequest]:
        """The changes of all rows for a flush, in requests of `bytes_most` or less. The rows stay.

        No request may be in flight. Changes are taken with their request: those of later ones stay here until then.
        """
        most = max(1, bytes_most // (16 + 4 * (self._rows.dim + self._rows.state_dim)))
        for store in self.stores:
            for keys in store.changed_keys():
                for first in range(0, len(keys), most):
                    yield self._flush_request(store.take_changes(keys[first : first + most]), samples)
        unsent = joined(self._unsent, self._nothing)
        self._unsent = [
            unsent.some(np.arange(first, min(first + most, len(unsent)))) for first in range(0, len(unsent), most)
        ]
        while self._unsent:
            yield self._flush_request(self._unsent.pop(), samples)

    def _flush_request(self, changes: Changes, samples: int) -> CacheRequest:
        whole, reached = of_one_period(changes, samples, self._swap)
        self.counts.written += len(whole)
        request = CacheRequest(whole, reached, NO_KEYS, np.empty(0, np.uint32), NO_KEYS)
        self.counts.add_bytes(request.nbytes)
        return request

    def close(self) -> None:
        """Release all rows; changes are lost."""
        for store in self.stores:
            store.close()

    def _place(self, keys: Keys, announced: Announced | None) -> PlacedBatch:
        """A row for each key; new rows that find no place are in the overflow."""
        rows = self._rows
        plan, use = (rows.batch(keys), 0) if announced is None else (announced.plan, announced.use)
        in_use = [share.plan for batch in self._batches for share in batch.shares if share.store is rows]
        found = rows.place(plan, use=use, pinned=in_use, unsent=self._unsent)
        self._unsent = []
        shares = [BatchShare(rows, keys, plan, None)]
        if found.placed is not None:
            share = self._overflow_share(keys, np.flatnonzero(~found.placed))
            self._overflow.place(share.plan)
            shares.append(share)
        return [found], shares

    def _place_apart(self, keys: Keys, announced: Announced | None) -> PlacedBatch:
        """As `_place`, with rows of the overflow among them."""
        over = self._overflow.has(keys)
        if not over.any():
            return self._place(keys, announced)
        if announced is not None:  # its plan is of other keys than those that need a place
            self._rows.withdraw(announced.plan, announced.use)
        share = self._overflow_share(keys, np.flatnonzero(over))
        found = [self._overflow.place(share.plan)]
        if over.all():
            return found, [share]
        others = np.flatnonzero(~over)
        more, shares = self._place(keys[others], None)
        for each in shares:
            each.places = others if each.places is None else others[each.places]
        return [*more, *found], [*shares, share]

    def _overflow_share(self, keys: Keys, places: I64) -> BatchShare:
        self.counts.overflowed += len(places)
        mine = keys[places]
        return BatchShare(self._overflow, mine, self._overflow.batch(mine), places)

    def _leave_overflow(self, share: BatchShare) -> None:
        """Remove rows that no other batch uses; their changes wait for the next request."""
        others = [each.keys for batch in self._batches for each in batch.shares if each.store is self._overflow]
        keys, plan = share.keys, share.plan
        if others:
            keys = keys[~np.isin(keys, np.concatenate(others))]
            plan = self._overflow.batch(keys)
        changes = self._overflow.take_changes(keys, plan, erase=True)
        if len(changes):
            self._unsent.append(changes)


def _requested(found: Sequence[Placed]) -> tuple[Keys, Integers, Keys, Keys]:
    """Keys to be checked and their clocks, keys to be fetched, and those of the latter that had no row."""
    if len(found) == 1:
        (only,) = found
        return only.checked, only.clocks, only.fetched, only.created
    created = np.concatenate([each.created for each in found])
    fetched = np.concatenate([created, *(each.fetched[each.absent :] for each in found)])
    checked, clocks = (np.concatenate([getattr(each, name) for each in found]) for name in ("checked", "clocks"))
    return checked, clocks, fetched, created


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
