"""Rows of a batch that are read from disk ahead of their lookup, and are on their way into memory.

The disk is read without the lock of the table. Rows that are written or erased meanwhile are noted in each load, so
that an old copy never replaces a newer row. Rows of a batch that waits for its lookup stay in memory while its load is
held: rows of later batches would displace them otherwise.
"""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import numpy as np

from hotrow.store.arrays import Flags, Keys
from hotrow.store.rows import LookupPlan, Rows

WAITING_MOST = 3  # batches whose rows stay: a put looks for them among all rows that it could displace


class PendingLoad:
    """One batch. A thread reads its rows, then another one puts them. Hold it until the batch is looked up."""

    def __init__(self, plan: LookupPlan, none: Rows) -> None:
        self.plan, self.rows = plan, none
        self._none = none
        self._keys = np.sort(plan.keys)
        self._moved = np.zeros(len(self._keys), np.bool_)
        self._noted: list[Keys] = []  # written or erased, and not in `_moved` yet
        self._noted_keys = 0

    # With the lock of the table:

    def note_moved(self, keys: Keys) -> None:
        """What was read of these keys is not their row any more."""
        self._noted.append(keys)
        self._noted_keys += len(keys)
        if self._noted_keys > len(self._keys):  # a load that waits for long keeps no more than this
            self._take_notes()

    def drop(self) -> None:
        """The table was cleared: nothing that was read is a row any more."""
        self._moved[:] = True

    def moved(self, keys: Keys) -> Flags:
        """Which of these keys of the batch were noted."""
        self._take_notes()
        return self._moved[np.searchsorted(self._keys, keys)]

    def restart(self) -> Keys:
        """The keys that were noted; what is read from now on is new."""
        self._take_notes()
        moved = self._keys[self._moved]
        self._moved[:] = False
        return moved

    def finish(self) -> None:
        """The rows are in memory."""
        self.rows = self._none

    def _take_notes(self) -> None:
        if not self._noted:
            return
        noted = np.concatenate(self._noted)
        self._noted.clear()
        self._noted_keys = 0
        if not len(self._keys):
            return
        places = np.minimum(np.searchsorted(self._keys, noted), len(self._keys) - 1)
        self._moved[places[self._keys[places] == noted]] = True


class PendingLoads:
    """The loads of a table that are held somewhere. A lock of its own: a read does not wait for rows that move."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading: weakref.WeakSet[PendingLoad] = weakref.WeakSet()
        self._waiting: weakref.WeakValueDictionary[int, PendingLoad] = weakref.WeakValueDictionary()  # in their order
        self._finished = 0
        self.announced = 0  # keys of batches, those of each once

    def begin(self, load: PendingLoad) -> None:
        """What moves from now on is noted in this load."""
        with self._lock:
            self.announced += load.plan.unique
            self._reading.add(load)

    def finish(self, load: PendingLoad) -> None:
        """Its rows are in memory. They stay there while the load is held."""
        with self._lock:
            load.finish()
            self._reading.discard(load)
            self._finished += 1
            self._waiting[self._finished] = load

    def waiting(self) -> list[LookupPlan]:
        """Where rows are of finished loads that are held, the oldest ones."""
        with self._lock:
            return [load.plan for load in islice(self._waiting.values(), WAITING_MOST)]

    def note_moved(self, keys: Keys) -> None:
        """These keys are written or erased. With the lock of the table."""
        with self._lock:
            for load in self._reading:
                load.note_moved(keys)

    def drop(self) -> None:
        """The table was cleared. With the lock of the table."""
        with self._lock:
            for load in self._reading:
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
        try:
            with self._changed:
                self._changed.wait_for(lambda: not self._reads)
            yield
        finally:
            with self._changed:
                self._shut -= 1
