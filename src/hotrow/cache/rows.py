"""Rows of a cache in native memory: each as it is now and, once it is changed, as it was fetched (the base).

The `clock` of a row is its start clock, its `version` counts from 1 at the fetch. So the current clock is
clock + version - 1, and a row of a version above 1 has changes that the server does not know.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hotrow.cache.changes import Changes, joined, no_changes
from hotrow.config import Cache, Table
from hotrow.store import LookupPlan, RamTier, Rows
from hotrow.store.arrays import Flags, Floats, Integers, Keys

CHUNK_ROWS = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The distinct keys of a plan by what was known of their rows before: the rules of `clocks`."""

    checked: Keys  # there, and valid as far as the worker knows: the server checks their clocks
    clocks: Integers  # current ones of the checked rows
    fetched: Keys  # absent ones, then those with too many own updates
    absent: int
    awaited: int  # an earlier request fetches them
    changes: Changes  # of rows with too many own updates, of those that were evicted for the plan, and unsent ones
    placed: Flags | None  # of each key of the plan, whether it has a row now; None: all have

    @property
    def created(self) -> Keys:
        """Keys without a row before."""
        return self.fetched[: self.absent]

    @property
    def ahead(self) -> int:
        """How many have too many own updates: their changes are taken, and they are fetched."""
        return len(self.fetched) - self.absent


class CachedRows(RamTier):
    """Cached rows of one table; with a capacity in `table` rows are evicted."""

    def __init__(self, table: Table, cache: Cache, threads: int) -> None:
        super().__init__(table, threads=threads, cached=cache)
        self.cache = cache
        self._nothing = no_changes(self.dim, self.state_dim)

    def place(
        self, plan: LookupPlan, *, use: int = 0, pinned: Sequence[LookupPlan] = (), unsent: Sequence[Changes] = ()
    ) -> Placed:
        """Find or make a row for each distinct key of a plan. Rows that are there stay, as those of pinned plans do.

        `use`: the number of its announcement, 0: there was none. `unsent`: changes that follow those of the plan.
        """
        count = len(plan)
        keys, clocks = np.empty(count, np.uint64), np.empty(count, np.uint32)
        valid, absent, ahead, awaited = self._native.find_places(
            plan._native, use, self.cache.staleness, keys, clocks, self.threads
        )
        checked, fetched = keys[:valid], keys[valid : valid + absent + ahead]
        if not len(fetched):
            return Placed(checked, clocks[:valid], fetched, 0, awaited, joined(unsent, self._nothing), None)
        most = len(fetched) if self.capacity_rows else ahead  # without a capacity no row is evicted
        room = self._empty_changes(np.empty(most + sum(map(len, unsent)), np.uint64))
        placed = np.empty(count, np.bool_)
        columns = room.keys, room.values, room.state, room.clocks, room.updates, room.periods
        written, unplaced = self._native.make_places(
            plan._native, use, [each._native for each in pinned], *columns, placed, self.threads
        )
        for more in unsent:
            room.put(written, more)
            written += len(more)
        changes = room if written == len(room) else room.some(slice(written))
        return Placed(checked, clocks[:valid], fetched, absent, awaited, changes, placed if unplaced else None)

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

    def take_changes(self, keys: Keys, plan: LookupPlan | None = None, *, erase: bool = False) -> Changes:
        """The changes of those of the keys that have any. Their rows stay, and count as fetched as they are now.

        `plan`: of these keys, where there is one. With `erase` the rows of all keys go.
        """
        taken = self._empty_changes(keys)
        columns = taken.values, taken.state, taken.clocks, taken.updates, taken.periods
        changed = np.empty(len(keys), np.bool_)
        planned = self.batch(keys) if plan is None else plan
        self._native.take_changes(planned._native, *columns, changed, erase, self.threads)
        return taken if changed.all() else taken.some(changed)

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
