"""Rows of a cache in native memory: each as it is now and, once it is changed, as it was fetched (the base).

The `clock` of a row is its start clock, its `version` counts from 1 at the fetch. So the current clock is
clock + version - 1, and a row of a version above 1 has changes that the server does not know.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from hotrow.cache.changes import Changes
from hotrow.config import Cache, Table
from hotrow.store import LookupPlan, RamTier, Rows
from hotrow.store.arrays import Flags, Floats, Integers, Keys

CHUNK_ROWS = 65_536


class CachedState(IntEnum):
    """What a cache knows of a row before a request: the rules of `clocks` in one number."""

    ABSENT = 0
    AWAITED = 1  # an earlier request fetches it
    VALID = 2  # as far as the worker knows: the server checks its clock
    AHEAD = 3  # too many own updates: it is written back and fetched


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """For each key of a plan: what was known of its row, its current clock, and whether it has a place now."""

    states: NDArray[np.uint8]
    clocks: Integers
    placed: Flags
    unplaced: int
    evicted: int  # rows that went for the plan


class CachedRows(RamTier):
    """Cached rows of one table; with a capacity in `table` rows are evicted."""

    def __init__(self, table: Table, cache: Cache, threads: int) -> None:
        super().__init__(table, threads=threads, keep_evicted=table.capacity is not None, cached=cache)
        self.cache = cache

    def place(self, plan: LookupPlan, *, use: int = 0, pinned: Sequence[LookupPlan] = ()) -> Placed:
        """Find or make a row for each distinct key of a plan. Rows that are there stay, as those of pinned plans do.

        `use`: the number of its announcement, 0: there was none.
        """
        count = len(plan)
        states, clocks = np.empty(count, np.uint8), np.empty(count, np.uint32)
        placed = np.empty(count, np.bool_)
        unplaced, evicted = self._native.place(
            plan._native, use, self.cache.staleness, [each._native for each in pinned], states, clocks, placed,
            self.threads,
        )  # fmt: skip
        return Placed(states, clocks, placed, unplaced, evicted)

    def read_placed(self, plan: LookupPlan, out: Floats, default: float) -> None:
        """The rows of a plan, and `default` in every element where there is none."""
        self._native.read_placed(plan._native, out, default, self.threads)

    def announce(self, plan: LookupPlan) -> int:
        """The keys of a batch that will be placed later than those announced before; returns its number."""
        return self._native.announce(plan._native, self.threads)

    def withdraw(self, plan: LookupPlan, use: int) -> None:
        """An announced batch that will not be placed."""
        self._native.withdraw(plan._native, use, self.threads)

    def has(self, keys: Keys) -> Flags:
        """Whether each key has a row."""
        return self.versions(keys) > 0

    def take_changes(self, keys: Keys) -> Changes:
        """The changes of those of the keys that have any. Their rows stay, and count as fetched as they are now."""
        taken = self._empty_changes(keys)
        columns = taken.values, taken.state, taken.clocks, taken.updates, taken.periods
        changed = np.empty(len(keys), np.bool_)
        self._native.take_changes(self.batch(keys)._native, *columns, changed, self.threads)
        return taken if changed.all() else taken.some(changed)

    def changes_of_evicted(self, plan: LookupPlan) -> Changes:
        """The changes of rows that were evicted for a plan."""
        taken = self._empty_changes(np.empty(self._native.evicted_changed(plan._native), np.uint64))
        columns = taken.keys, taken.values, taken.state, taken.clocks, taken.updates, taken.periods
        self._native.evicted_changes(plan._native, *columns)
        return taken

    def fill(self, fetched: Rows) -> None:
        """Rows of the server, in place of those that are here. Changes that it does not know stay on top of them.

        Keys without a row here are passed over.
        """
        period = fetched.fields.get("period")
        values, state = np.ascontiguousarray(fetched.values), np.ascontiguousarray(fetched.state)
        clocks = np.ascontiguousarray(fetched.fields["clock"])
        periods = None if period is None else np.ascontiguousarray(period)
        self._native.fill(self.batch(fetched.keys)._native, values, state, clocks, periods, self.threads)

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
