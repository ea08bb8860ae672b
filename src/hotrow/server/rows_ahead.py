"""Rows that lookups of a shard will need soon: a thread brings them from disk into memory while the shard serves.

The ids that wait are bounded; what does not fit is dropped and counted, and its lookups read the disk themselves.
"""

import logging
import threading
from collections import Counter, deque
from collections.abc import Mapping

import numpy as np

from hotrow.errors import HotrowError
from hotrow.store import RamTier
from hotrow.store.arrays import Keys
from hotrow.store.tiered import TieredTier

AT_ONCE = 8_192  # ids of one load: a lookup waits while the rows of one are put into memory
SHARE = 2  # ids that wait are at most this part of the rows in memory

_log = logging.getLogger("hotrow.server")


class RowsAhead:
    """The tables of a shard that have a disk. The thread starts with the first ids."""

    def __init__(self, tiers: Mapping[str, RamTier]) -> None:
        self._tiers = {name: tier for name, tier in tiers.items() if isinstance(tier, TieredTier)}
        self._waiting: deque[tuple[str, Keys]] = deque()
        self._keys: Counter[str] = Counter()  # that wait or are being loaded, by table
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = self._failed = False

    def most(self, table: str) -> int:
        """Ids of a table that may wait."""
        return max(1, self._tiers[table].ram_rows_max // SHARE)

    def add(self, table: str, keys: Keys) -> int:
        """Load the rows of ids soon; returns how many were taken. Those of a table without a disk are none."""
        if table not in self._tiers:
            return 0
        with self._changed:
            room = 0 if self._closed else self.most(table) - self._keys[table]
            taken = np.array(keys[: max(0, room)])  # a copy: the frame may be in memory that its sender waits for
            self._tiers[table].hints_dropped += len(keys) - len(taken)
            if len(taken):
                self._keys[table] += len(taken)
                self._waiting.append((table, taken))
                self._start()
                self._changed.notify_all()
        return len(taken)

    def wait(self, most_s: float) -> bool:
        """Whether all that was added is loaded within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._keys.total(), most_s)

    def close(self) -> None:
        """Drop what waits, and wait for the load in progress. The tables can be closed then."""
        with self._changed:
            self._closed = True
            for table, keys in self._waiting:
                self._tiers[table].hints_dropped += len(keys)
            self._waiting.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="shard-rows-ahead", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                if not self._waiting:
                    return
                table, keys = self._waiting.popleft()
            for first in range(0, len(keys), AT_ONCE):
                if not self._closed:
                    self._load(table, keys[first : first + AT_ONCE])
            with self._changed:
                self._keys[table] -= len(keys)
                self._changed.notify_all()

    def _load(self, table: str, keys: Keys) -> None:
        """A fault of the disk is met again by the lookup, which reports it."""
        try:
            self._tiers[table].load_ahead(keys)
        except HotrowError as error:
            if not self._failed:
                self._failed = True
                _log.warning("table %r: rows could not be loaded ahead: %s", table, error)
