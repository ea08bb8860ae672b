"""Rows of a cache: each as it is now and, once it is changed, as it was fetched (the base).

`CacheRows` is what a cache needs of them. `CachedRows` are in native memory, `DeviceRows` on a device.

The `clock` of a row is its start clock, its `version` counts from 1 at the fetch. So the current clock is
clock + version - 1, and a row of a version above 1 has changes that the server does not know.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from hotrow.cache.changes import Changes, no_changes
from hotrow.cache.device_copies import DeviceCopies
from hotrow.config import Cache, Table
from hotrow.store import Applied, LookupPlan, RamTier, Rows
from hotrow.store.arrays import ArrayLike, Floats, Integers, Keys

CHUNK_ROWS = 65_536
RowValues: TypeAlias = Any  # Floats, or a float32 tensor on the device of the rows
AWAITED = np.uint32(2**32 - 1)  # the clock of a row that was requested and has not come: it is neither read nor updated


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The distinct keys of a plan by what was known of their rows before: the rules of `clocks`."""

    checked: Keys  # there, and valid as far as the worker knows: the server checks their clocks
    clocks: Integers  # current ones of the checked rows
    fetched: Keys  # absent ones, then those with too many own updates
    uniques: Integers  # their numbers in the plan: of checked ones, then of fetched ones
    absent: int
    awaited: int  # an earlier request fetches them
    changes: Changes  # of rows with too many own updates, and of those that were evicted
    beyond: int  # rows beyond the capacity: batches in flight use them

    @property
    def created(self) -> Keys:
        """Keys without a row before."""
        return self.fetched[: self.absent]

    @property
    def ahead(self) -> int:
        """How many have too many own updates: their changes are taken, and they are fetched."""
        return len(self.fetched) - self.absent


class CacheRows(Protocol):
    """Cached rows of one table: what `RowCache` needs of them."""

    dim: int
    state_dim: int
    fields: tuple[str, ...]
    copies: DeviceCopies | None  # to and from the device of the rows; None: they are in host memory

    def plan_distinct(self, keys: Keys) -> LookupPlan:
        """A plan of keys that are known to be distinct."""

    def place(self, plan: LookupPlan, *, use: int = 0, pinned: Sequence[LookupPlan] = ()) -> Placed:
        """Find or make a row for each distinct key of a plan; rows beyond the capacity go.

        Rows of the plan and of pinned ones stay. `use`: the number of its announcement, 0: there was none.
        """

    def values(self, plan: LookupPlan, default: float, out: RowValues | None = None) -> RowValues:
        """The rows of a plan, and `default` in every element where there is none, or where it has not come.

        In `out`, where it is given.
        """

    def update(
        self, plan: LookupPlan, gradients: RowValues, weights: Floats, *, samples: int, lr_scale: float = 1.0
    ) -> Applied:
        """Update the rows of a plan with a gradient for each key times its weight; a weight of 0 leaves the row."""

    def announce(self, plan: LookupPlan) -> int:
        """The keys of a batch that will be placed later than those announced before; returns its number."""

    def withdraw(self, plan: LookupPlan, use: int) -> None:
        """An announced batch that will not be placed."""

    def take_changes(self, keys: Keys) -> Changes:
        """The changes of those of the keys that have any. Their rows stay, and count as fetched as they are now."""

    def fill(self, plan: LookupPlan, uniques: Integers, fetched: Rows) -> None:
        """Rows of the server, in place of those that are here. Changes that it does not know stay on top of them.

        `uniques`: the numbers in the plan of their keys. Keys without a row here are passed over.
        """

    @property
    def changed_rows(self) -> int:
        """Rows with changes that the server does not know."""

    def changed_keys(self) -> Iterator[Keys]:
        """Their keys, in chunks."""

    def all_keys(self) -> Iterator[Keys]:
        """Of all rows, in chunks."""

    def versions(self, keys: ArrayLike | LookupPlan) -> Integers:
        """Counted from 1 at the fetch; 0 where there is no row."""

    def clocks(self, keys: ArrayLike | LookupPlan) -> Integers:
        """Start clocks, AWAITED of rows that have not come; 0 where there is no row."""

    def erase(self, keys: ArrayLike | LookupPlan) -> int:
        """Remove rows; returns how many there were."""

    def __len__(self) -> int: ...

    def close(self) -> None:
        """Release all rows."""


class CachedRows(RamTier):
    """Cached rows in native memory, of a table which has a capacity."""

    def __init__(self, table: Table, cache: Cache, threads: int) -> None:
        super().__init__(table, threads=threads, cached=cache)
        self.cache = cache
        self.copies: DeviceCopies | None = None
        self._nothing = no_changes(self.dim, self.state_dim)

    def plan_distinct(self, keys: Keys) -> LookupPlan:
        return LookupPlan(self._native.batch_of_distinct(np.ascontiguousarray(keys)))

    def place(self, plan: LookupPlan, *, use: int = 0, pinned: Sequence[LookupPlan] = ()) -> Placed:
        count = len(plan)
        keys, clocks, uniques = np.empty(count, np.uint64), np.empty(count, np.uint32), np.empty(count, np.uint32)
        valid, absent, ahead, awaited, beyond = self._native.find_places(
            plan._native, use, self.cache.staleness, keys, clocks, uniques, self.threads
        )
        requested = valid + absent + ahead
        found = keys[:valid], clocks[:valid], keys[valid:requested], uniques[:requested], absent, awaited
        if absent + ahead + beyond == 0:
            return Placed(*found, self._nothing, 0)
        room = self._empty_changes(np.empty(absent + ahead + beyond, np.uint64))
        columns = room.keys, room.values, room.state, room.clocks, room.updates, room.periods, room.slots
        written, beyond = self._native.make_places(
            plan._native, use, [each._native for each in pinned], *columns, self.threads
        )
        return Placed(*found, room if written == len(room) else room.some(slice(written)), beyond)

    def values(self, plan: LookupPlan, default: float, out: RowValues | None = None) -> RowValues:
        rows = np.empty((len(plan), self.dim), np.float32) if out is None else out
        self._native.read_placed(plan._native, rows, default, self.threads)
        return rows

    def update(
        self, plan: LookupPlan, gradients: RowValues, weights: Floats, *, samples: int, lr_scale: float = 1.0
    ) -> Applied:
        return self.apply(plan, gradients, weights=weights, samples=samples, lr_scale=lr_scale)

    def announce(self, plan: LookupPlan) -> int:
        return self._native.announce(plan._native, self.threads)

    def withdraw(self, plan: LookupPlan, use: int) -> None:
        self._native.withdraw(plan._native, use, self.threads)

    def take_changes(self, keys: Keys) -> Changes:
        taken = self._empty_changes(keys)
        columns = taken.values, taken.state, taken.clocks, taken.updates, taken.periods
        changed = np.empty(len(keys), np.bool_)
        self._native.take_changes(self.batch(keys)._native, *columns, changed, taken.slots, self.threads)
        return taken if changed.all() else taken.some(changed)

    def fill(self, plan: LookupPlan, uniques: Integers, fetched: Rows) -> None:
        period = fetched.fields.get("period")
        values, state = np.ascontiguousarray(fetched.values), np.ascontiguousarray(fetched.state)
        clocks = np.ascontiguousarray(fetched.fields["clock"])
        periods = None if period is None else np.ascontiguousarray(period)
        self._native.fill(plan._native, uniques, values, state, clocks, periods, self.threads)

    @property
    def changed_rows(self) -> int:
        return self._native.changed_rows

    def all_keys(self) -> Iterator[Keys]:
        return (chunk.keys for chunk in self.export())

    def changed_keys(self) -> Iterator[Keys]:
        keys = np.frombuffer(self._native.changed_keys(), np.uint64)
        for start in range(0, len(keys), CHUNK_ROWS):
            yield keys[start : start + CHUNK_ROWS]

    def _empty_changes(self, keys: Keys) -> Changes:
        count = len(keys)
        values, state = (np.empty((count, width), np.float32) for width in (self.dim, self.state_dim))
        clocks, updates, periods = (np.empty(count, np.uint32) for _ in range(3))
        return Changes(keys, values, state, clocks, updates, periods)
