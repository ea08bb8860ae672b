"""Rows of a cache in native memory: each as it is now and, once it is changed, as it was fetched (the base).

The `clock` of a row is its start clock, its `version` counts from 1 at the fetch. So the current clock is
clock + version - 1, and a row of a version above 1 has changes that the server does not know.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hotrow.cache.changes import Changes, no_changes
from hotrow.config import Cache, Table
from hotrow.store import LookupPlan, RamTier, Rows
from hotrow.store.arrays import Floats, Integers, Keys

CHUNK_ROWS = 65_536
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


class CachedRows(RamTier):
    """Cached rows of one table, which has a capacity."""

    def __init__(self, table: Table, cache: Cache, threads: int) -> None:
        super().__init__(table, threads=threads, cached=cache)
        self.cache = cache
        self._nothing = no_changes(self.dim, self.state_dim)

    def plan_distinct(self, keys: Keys) -> LookupPlan:
        """A plan of keys that are known to be distinct."""
        return LookupPlan(self._native.batch_of_distinct(np.ascontiguousarray(keys)))

    def place(self, plan: LookupPlan, *, use: int = 0, pinned: Sequence[LookupPlan] = ()) -> Placed:
        """Find or make a row for each distinct key of a plan; rows beyond the capacity go.

        Rows of the plan and of pinned ones stay. `use`: the number of its announcement, 0: there was none.
        """
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
        columns = room.keys, room.values, room.state, room.clocks, room.updates, room.periods
        written, beyond = self._native.make_places(
            plan._native, use, [each._native for each in pinned], *columns, self.threads
        )
        return Placed(*found, room if written == len(room) else room.some(slice(written)), beyond)

    def read_placed(self, plan: LookupPlan, out: Floats, default: float) -> None:
        """The rows of a plan, and `default` in every element where there is none, or where it has not come."""
        self._native.read_placed(plan._native, out, default, self.threads)

    def announce(self, plan: LookupPlan) -> int:
        """The keys of a batch that will be placed later than those announced before; returns its number."""
        return self._native.announce(plan._native, self.threads)

    def withdraw(self, plan: LookupPlan, use: int) -> None:
        """An announced batch that will not be placed."""
        self._native.withdraw(plan._native, use, self.threads)

    def take_changes(self, keys: Keys) -> Changes:
        """The changes of those of the keys that have any. Their rows stay, and count as fetched as they are now."""
        taken = self._empty_changes(keys)
        columns = taken.values, taken.state, taken.clocks, taken.updates, taken.periods
        changed = np.empty(len(keys), np.bool_)
        self._native.take_changes(self.batch(keys)._native, *columns, changed, self.threads)
        return taken if changed.all() else taken.some(changed)

    def fill(self, plan: LookupPlan, uniques: Integers, fetched: Rows) -> None:
        """Rows of the server, in place of those that are here. Changes that it does not know stay on top of them.

        `uniques`: the numbers in the plan of their keys. Keys without a row here are passed over.
        """
        period = fetched.fields.get("period")
        values, state = np.ascontiguousarray(fetched.values), np.ascontiguousarray(fetched.state)
        clocks = np.ascontiguousarray(fetched.fields["clock"])
        periods = None if period is None else np.ascontiguousarray(period)
        self._native.fill(plan._native, uniques, values, state, clocks, periods, self.threads)

    @property
    def changed_rows(self) -> int:
        """Rows with changes that the server does not know."""
        return self._native.changed_rows

    def changed_keys(self) -> Iterator[Keys]:
        """Their keys, in chunks."""
        keys = np.frombuffer(self._native.changed_keys(), np.uint64)
        for start in range(0, len(keys), CHUNK_ROWS):
            yield keys[start : start + CHUNK_ROWS]

    def _empty_changes(self, keys: Keys) -> Changes:
        count = len(keys)
        values, state = (np.empty((count, width), np.float32) for width in (self.dim, self.state_dim))
        return Changes(keys, values, state, *(np.empty(count, np.uint32) for _ in range(3)))
