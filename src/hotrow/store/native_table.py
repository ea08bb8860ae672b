"""A native table while it is open: made or attached, used in the process that opened it, closed."""

import os
import sys
import time
import weakref

from hotrow import _native
from hotrow._native import TableClock
from hotrow.config import Cache, Table
from hotrow.errors import ConfigError, InputError
from hotrow.spec import whole_number
from hotrow.store.arrays import ArrayLike, as_keys
from hotrow.store.deferred import DeferredUpdate
from hotrow.store.native_spec import identity, table_spec
from hotrow.store.pushes import Pushes
from hotrow.store.rows import Attached, LookupPlan
from hotrow.store.segments import refused_rows, segment_path


class NativeTable:
    """Opens the native table and its segment, plans batches, and closes it. `RamTier` reads and writes its rows."""

    def __init__(
        self,
        table: Table,
        *,
        threads: int = 1,
        partitions: int | None = None,
        keep_evicted: bool = False,
        attach: bool = True,
        cached: Cache | None = None,
    ) -> None:
        """`cached`: of the cache whose rows these are; its policy is that of the table."""
        if not isinstance(table, Table):
            raise ConfigError(f"table={table!r}: give a hotrow.Table(dim=...)")
        if not isinstance(keep_evicted, bool):
            raise ConfigError(f"keep_evicted={keep_evicted!r}: must be True or False")
        self.table = table
        self.dim = table.dim
        self.threads = whole_number("threads", threads, 1, 1024)
        if partitions is not None and (whole_number("partitions", partitions, 1, 1024) & (partitions - 1)):
            raise ConfigError(f"partitions={partitions}: must be a power of two")
        self._keeps_evicted = keep_evicted
        spec, self.partitions = table_spec(
            table, partitions, keep_evicted=keep_evicted, cached=cached, threads=self.threads
        )
        self.capacity_rows = spec.capacity_rows  # 0: no limit
        self.attached: Attached | None = None
        self._process = os.getpid()
        self.deferred = DeferredUpdate()
        self._opened: _native.RamTier | None = self._open(spec, attach=attach)
        self.state_dim = self._native.state_dim
        self.fields: tuple[str, ...] = tuple(spec.fields)

    def _open(self, spec: _native.TableSpec, *, attach: bool) -> _native.RamTier:
        segment = self.table.segment
        if segment is None:
            return _native.RamTier(spec, None)
        path = segment_path(segment.run, self.table.name, segment.directory, huge=segment.huge)
        agreed = identity(self.table, spec, self.partitions)
        native = _native.RamTier(spec, (str(path), agreed, segment.huge, segment.keep))
        if native.attached and not attach:  # its lock is held here: no rows can come between the check and the refusal
            native.leave_segment()
            native.close_segment()
            raise refused_rows(path, path.stat().st_size, "left behind")
        if native.attached:
            start = time.perf_counter()
            rows, dropped = native.attach(self.threads)
            self.attached = Attached(rows, dropped, time.perf_counter() - start, native.push_partly())
        self._finalizer = weakref.finalize(self, _end, native)
        return native

    @property
    def _unsettled(self) -> _native.RamTier:
        """The table as it is. An update may wait."""
        if self._opened is None:
            raise InputError(f"table {self.table.name!r} is closed: make a new tier")
        if os.getpid() != self._process:  # a fork copies locks as they were held, and rows in the middle of a change
            raise InputError(
                f"table {self.table.name!r} belongs to process {self._process}: a forked child cannot use it; "
                f"open a table in the child, or start the child by spawn"
            )
        return self._opened

    @property
    def usable(self) -> bool:
        """Whether the table is open, in the process that opened it."""
        return self._opened is not None and os.getpid() == self._process

    @property
    def _native(self) -> _native.RamTier:
        """The table after an update that waits."""
        native = self._unsettled
        if self.deferred.waits():
            self.deferred.settle()
        return native

    @property
    def pushes(self) -> Pushes:
        """The log of applied pushes, in the segment."""
        if self.table.segment is None:
            raise InputError(f"pushes: table {self.table.name!r} has no segment for them: give it one")
        return Pushes(lambda: self._native)

    @property
    def samples(self) -> int:
        """The latest count of samples passed to the table, rounded down to a tick; a segment keeps it."""
        return self._native.samples

    def clock(self) -> TableClock:
        """The latest tick and SWAP period, for `restore_clock`: rows that are put into an empty table move both."""
        return self._native.clock()

    def restore_clock(self, clock: TableClock) -> None:
        """Put it back, in a table that is empty again."""
        self._native.restore_clock(clock)

    def close(self, *, leave: bool = False) -> None:
        """Release the rows, and remove their segment unless it is to be kept. The tier cannot be used afterwards.

        With `leave` the segment stays, whatever its settings are: the next process attaches to it.
        """
        try:
            if self.usable:
                self.deferred.settle()
        finally:  # an update that fails does not change whether the segment is removed
            if self._opened is not None and self.table.segment is not None:
                if leave and self.usable:
                    self._opened.leave_segment()
                self._finalizer()
            self._opened = None

    def __len__(self) -> int:
        return len(self._native)

    def batch(self, keys: ArrayLike) -> LookupPlan:
        """Plan a batch: group its keys by partition and fold duplicates."""
        return LookupPlan(self._unsettled.batch(as_keys("keys", keys), self.threads))

    def _batch(self, keys: ArrayLike | LookupPlan) -> LookupPlan:
        if not isinstance(keys, LookupPlan):
            return self.batch(keys)
        if keys._native.partitions != self.partitions:
            raise InputError(
                f"keys: the batch was planned for a table of {keys._native.partitions} partitions, "
                f"this one has {self.partitions}: plan it with this table's batch()"
            )
        if self._unsettled.counts_occurrences and not keys._native.counted:
            raise InputError("keys: the batch was planned by another kind of table: plan it with this table's batch()")
        return keys

    def _check_field(self, name: str) -> None:
        if not isinstance(name, str) or name not in self.fields:
            raise InputError(f"'{name}': rows of table '{self.table.name}' carry only {', '.join(self.fields)}")


def _end(native: _native.RamTier) -> None:
    """The tier is collected or the program ends. One that ends by an error leaves its rows to the next."""
    failed = hasattr(sys, "last_value") and not hasattr(sys, "ps1")  # at a prompt, an error is not the end
    if failed:
        native.leave_segment()
    native.close_segment()
