"""Rows that were read from disk ahead of their lookup, and are on their way into memory.

The disk is read without the lock of the table. Rows that are written or erased meanwhile are noted in each load, so
that an old copy never replaces a newer row.
"""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hotrow.store.arrays import Flags, Keys
from hotrow.store.rows import LookupPlan, Rows


class PendingLoad:
    """Rows of a batch that were on disk. One thread reads them, then one puts them."""

    def __init__(self, plan: LookupPlan, rows: Rows) -> None:
        self.plan, self.rows = plan, rows
        self._moved: list[Keys] = []  # written or erased since the read began, and not in `stale` yet
        self._dropped = False
        self._stale = np.zeros(len(rows.keys), np.bool_)

    def take(self, rows: Rows) -> None:
        """The rows that the disk had."""
        self.rows, self._stale = rows, np.zeros(len(rows.keys), np.bool_)

    def note_moved(self, keys: Keys) -> None:
        """What was read of these keys is not their row any more. With the lock of the table."""
        self._moved.append(keys)

    def drop(self) -> None:
        """The table was cleared: none of the rows exists any more. With the lock of the table."""
        self._dropped = True

    def stale(self) -> Flags:
        """Which of the rows are not as they were read. With the lock of the table."""
        if self._moved:
            self._stale |= np.isin(self.rows.keys, np.concatenate(self._moved))
            self._moved.clear()
        return np.ones_like(self._stale) if self._dropped else self._stale


class PendingLoads:
    """The loads of a table that are on their way. A lock of its own: a read does not wait for rows that move."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loads: weakref.WeakSet[PendingLoad] = weakref.WeakSet()
        self.announced = 0  # keys of batches, those of each once

    def begin(self, plan: LookupPlan, none: Rows) -> PendingLoad:
        """A load without rows so far. What moves from now on is noted in it."""
        load = PendingLoad(plan, none)
        with self._lock:
            self._loads.add(load)
        return load

    def announce(self, keys: int) -> None:
        """Count the keys of a batch that will be looked up."""
        with self._lock:
            self.announced += keys

    def note_moved(self, keys: Keys) -> None:
        """These keys are written or erased now. With the lock of the table."""
        with self._lock:
            for load in self._loads:
                load.note_moved(keys)

    def drop(self) -> None:
        """The table was cleared. With the lock of the table."""
        with self._lock:
            for load in self._loads:
                load.drop()


class ReadGate:
    """Counts reads that go on beside other calls, so that a file is not closed under them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reads = self._shut = 0

    @contextmanager
    def reading(self) -> Iterator[bool]:
        """Inside, the gate is not shut; False: it is shut, and nothing may be read."""
        with self._changed:
            may_read = not self._shut
            self._reads += may_read
        try:
            yield may_read
        finally:
            with self._changed:
                self._reads -= may_read
                self._changed.notify_all()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Inside, no read is under way and none begins."""
        with self._changed:
            self._shut += 1
            self._changed.wait_for(lambda: not self._reads)
        try:
            yield
        finally:
            with self._changed:
                self._shut -= 1
