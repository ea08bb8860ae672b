"""Keys, clocks and order of eviction of cached rows that lie elsewhere, at a slot of their own.

It is the native table of a cache whose rows are one float, which stays 0: so all decisions are those of `CachedRows`.
A row keeps its slot from `place` until it is evicted or erased; a later row may get it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotrow.cache.changes import Changes
from hotrow.cache.rows import CachedRows
from hotrow.config import Cache, Table
from hotrow.optim.sparse import SGD
from hotrow.store import Applied, LookupPlan, Rows
from hotrow.store.arrays import Flags, Floats, Integers, Keys

I64 = NDArray[np.int64]


class Slots(NamedTuple):
    """Where rows are."""

    slots: I64  # -1 without a row
    versions: Integers  # 0 without a row, or where it has not come; above 1 with changes

    @property
    def readable(self) -> I64:
        """Slots of rows that may be read and updated, -1 for the others."""
        return np.where(self.versions > 0, self.slots, -1)


class RowIndex(CachedRows):
    """Changes of it have slots, and neither values nor state."""

    def __init__(self, table: Table, cache: Cache, threads: int) -> None:
        super().__init__(table.model_copy(update={"dim": 1, "optimizer": SGD(lr=1.0)}), cache, threads)

    def slots(self, plan: LookupPlan, uniques: Integers | None = None) -> Slots:
        """Of each key of a plan of distinct keys, or of those with these numbers in it."""
        chosen = plan.inverse if uniques is None else uniques
        slots, versions = np.empty(len(chosen), np.int64), np.empty(len(chosen), np.uint32)
        self._native.place_slots(plan._native, chosen, slots, versions, self.threads)
        return Slots(slots, versions)

    def fill_clocks(self, plan: LookupPlan, uniques: Integers, keys: Keys, clocks: Integers) -> None:
        """Rows of the server came: their clocks are the start clocks of those here."""
        nothing = np.zeros((len(keys), 1), np.float32), np.empty((len(keys), 0), np.float32)
        self.fill(plan, uniques, Rows(keys, *nothing, {"clock": clocks}))

    def count_updates(self, plan: LookupPlan, weights: Floats, refused: Flags) -> Applied:
        """Rows of a plan were updated, but for those without a weight, without a row, and refused ones."""
        gradients = np.where(refused, np.float32(np.nan), np.float32(0))[:, None]
        return self.apply(plan, gradients, weights=weights)

    def _empty_changes(self, keys: Keys) -> Changes:
        changes = super()._empty_changes(keys)
        columns = changes.values, changes.state, changes.clocks, changes.updates, changes.periods
        return Changes(keys, *columns, slots=np.empty(len(keys), np.int64))
