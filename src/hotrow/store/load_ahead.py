"""Rows on disk that are brought into memory ahead of their lookup.

Rows are found and read without the lock of the table, so that training goes on meanwhile and the disk does not wait for
it; they are put into memory in parts, each under the lock. pending_load.py has what moves in between.
"""

import time

import numpy as np

from hotrow.store.arrays import ArrayLike, Keys
from hotrow.store.pending_load import PendingLoad
from hotrow.store.ram import RamTier
from hotrow.store.rows import LookupPlan, Rows
from hotrow.store.tier_moves import TierMoves, some_rows

PUT_AT_ONCE = 4_096  # rows that `load_ahead` puts into memory under one hold of the lock, which a lookup may wait for
LOCK_FREE_S = 1e-4  # between two holds: the lock is not fair, and the thread that had it would take it again at once


class TierPrefetch(TierMoves):
    """The memory of a table and its file, with rows that come up before they are needed."""

    def load_ahead(self, keys: ArrayLike) -> int:
        """Bring rows of keys that will be looked up soon into memory; returns how many came from the disk.

        The disk is read while other calls go on. Rows for which rows in use would have to go stay on disk.
        """
        return self.finish_load(self.start_load(keys))

    def start_load(self, keys: ArrayLike) -> PendingLoad:
        """The first half of `load_ahead`, which reads the disk: rows of the batch before may be put meanwhile.

        Rows that move after the load has begun are noted in it, or found to be in memory.
        """
        load = PendingLoad(self.batch(keys), self._empty_rows(0))
        with self._reads.reading() as may_read:
            if may_read:
                self._check_whole()
                self._loads.begin(load)
                load.rows = self._read_on_disk(self._absent(load.plan))
        return load

    def finish_load(self, load: PendingLoad) -> int:
        """The second half of `load_ahead`, which puts rows into memory; returns how many.

        Rows that left memory since the load began, or changed on disk, are read again: as a rule the write buffer has
        them. The rows of the batch stay in memory, where later loads would displace them, while the load is held.
        """
        with self._reads.reading() as may_read:
            if not may_read:
                return 0
            came = self._put_load(load)
            with self._moving():
                moved = load.restart()
            absent = self._absent(load.plan)  # also says where the rows are that stay
            load.rows = self._read_on_disk(absent[np.isin(absent, moved)] if len(moved) else moved)
            came += self._put_load(load)
            self._loads.finish(load)
            return came

    def _absent(self, plan: LookupPlan) -> Keys:
        """Keys of a plan that are not in memory, where rows are on disk. Without the lock."""
        if not self.disk.unshadowed:
            return np.empty(0, np.uint64)
        plan.below = None
        plan.absent = self._unsettled.find(plan._native, None, False, self.threads)  # an update makes no rows
        return plan.absent_keys()[0]

    def _read_on_disk(self, keys: Keys) -> Rows:
        return self.disk.read(keys, shadowed=False)[0] if len(keys) else self._empty_rows(0)

    def _put_load(self, load: PendingLoad) -> int:
        """In parts, so that a lookup waits for one of them."""
        came = 0
        for first in range(0, len(load.rows.keys), PUT_AT_ONCE):
            if first:
                time.sleep(LOCK_FREE_S)
            came += self._put_part(load, slice(first, first + PUT_AT_ONCE))
        return came

    def _put_part(self, load: PendingLoad, part: slice) -> int:
        """Put some of the rows into memory, except those that have moved since they were read."""
        with self._moving():
            rows = rows_between(load.rows, part)
            here = RamTier.read(self, rows.keys, "version") > 0
            as_read = some_rows(rows, ~(load.moved(rows.keys) | here))
            came = self._put_up(as_read, [load.plan, *self._in_use, *self._loads.waiting()])
            self.moved_ahead += came
            return came


def rows_between(rows: Rows, part: slice) -> Rows:
    """Some consecutive rows, not copied."""
    fields = {name: column[part] for name, column in rows.fields.items()}
    return Rows(rows.keys[part], rows.values[part], rows.state[part], fields)
