"""Rows that lookups of a shard will need soon: a thread brings them from disk into memory while the shard serves.

The newest ids are loaded first: they have the most time left. Older ones, whose lookup comes next, would be read twice
at the same time where loading falls behind. The ids that wait are bounded: where more come, the oldest are dropped and
counted, and their lookups read the disk themselves.
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

_log = logging.getLogger("hotrow.server")


class RowsAhead:
    """The tables of a shard that have a disk. The thread starts with the first ids."""

    def __init__(self, tiers: Mapping[str, RamTier]) -> None:
        self._tiers = {name: tier for name, tier in tiers.items() if isinstance(tier, TieredTier)}
        self._waiting: deque[tuple[str, Keys]] = deque()
        self._keys: Counter[str] = Counter()  # that wait, by table
        self._loading = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = self._failed = False

    def most(self, table: str) -> int:
        """Ids of a table that may wait: as many as memory has rows."""
        return self._tiers[table].ram_rows_max

    def add(self, table: str, keys: Keys) -> None:
        """Load the rows of ids soon. A table without a disk has all of them in memory."""
        if table not in self._tiers or not len(keys):
            return
        with self._changed:
            if self._closed:
                self._drop(table, len(keys))
                return
            taken = np.array(keys[: self.most(table)])  # a copy: the frame may be in memory that its sender waits for
            self._drop(table, len(keys) - len(taken))
            while self._keys[table] + len(taken) > self.most(table):
                oldest = next(place for place, (name, _) in enumerate(self._waiting) if name == table)
                dropped = len(self._waiting[oldest][1])
                del self._waiting[oldest]
                self._keys[table] -= dropped
                self._drop(table, dropped)
            self._keys[table] += len(taken)
            self._waiting.append((table, taken))
            self._start()
            self._changed.notify_all()

    def wait(self, most_s: float) -> bool:
        """Whether all that was added is loaded or dropped within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._loading, most_s)

    def close(self) -> None:
        """Drop what waits, and wait for the load in progress. The tables can be closed then."""
        with self._changed:
            self._closed = True
            for table, keys in self._waiting:
                self._drop(table, len(keys))
            self._waiting.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _drop(self, table: str, keys: int) -> None:
        self._tiers[table].hints_dropped += keys

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
                table, keys = self._waiting.pop()  # the newest
                self._keys[table] -= len(keys)
                self._loading = True
            try:
                self._load(table, keys)
            finally:
                with self._changed:
                    self._loading = False
                    self._changed.notify_all()

    def _load(self, table: str, keys: Keys) -> None:
        """A fault of the disk is met again by the lookup, which reports it."""
        try:
            self._tiers[table].load_ahead(keys)
        except HotrowError as error:
            if not self._failed:
                self._failed = True
                _log.warning("table %r: rows could not be loaded ahead: %s", table, error)
        except Exception:  # a bug, or no memory for so many rows: lookups go on without it
            _log.exception("table %r: rows could not be loaded ahead", table)
