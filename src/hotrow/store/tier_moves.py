"""How rows move between memory and the file of a table's disk tier. `TieredTier` has the calls of users.

A row is in memory or on disk, never lost between them: what a call evicts is written to the file, with all its fields,
before the call. Rows that wait to be written are in shared memory where the table has a segment, so a process that is
killed at any moment leaves the last state of each row in one place or the other. A lookup brings rows back in one
batch. While a row is in memory its copy on disk is shadowed: it only serves the next process.

One lock orders what moves rows; `load_ahead` reads the disk without it (load_ahead.py).
"""

import fcntl
import os
import re
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotrow.config import Segment, Table
from hotrow.errors import ConfigError, DiskError, DiskFullError, InputError, LockedFileError
from hotrow.sizes import size_text
from hotrow.store.arrays import ArrayLike, Flags, Integers, Keys
from hotrow.store.pending_load import PendingLoads, ReadGate
from hotrow.store.ram import RamTier
from hotrow.store.rows import Attached, LookupPlan, Rows
from hotrow.store.ssd import INDEX_CACHE, SsdTier
from hotrow.store.tier_plan import plan_tiers, slots_path

SHARD_DIRECTORY = "hotrow-"  # begins the names that `share_of` gives
TICKS_PER_EXPIRY = 65_536  # as native/store/life.h


@dataclass(frozen=True)
class Sight:
    """What a lookup says of the rows it finds, as native/store/ram_tier.h."""

    seen: bool
    samples: int | None  # trained so far; None: the call counts as one tick


class NoRoomError(InputError):
    """Rows of a call and those in use do not fit into memory together."""


class TierMoves(RamTier):
    """The memory of a table, its file, and the rows that move between them."""

    def __init__(self, table: Table, *, threads: int = 1, partitions: int | None = None, attach: bool = True) -> None:
        """Rows of an earlier process are used where its segment is: without those in memory a file is removed."""
        self._plan = plan_tiers(table)
        make_directory(table)
        super().__init__(self._plan.in_memory, threads=threads, partitions=partitions, keep_evicted=True, attach=attach)
        self.table = table
        self.ram_rows_max = self.capacity_rows
        self._lock = self.deferred.lock  # an update that waits is performed under it: two locks could block each other
        self._in_use: weakref.WeakSet[LookupPlan] = weakref.WeakSet()
        self._reads = ReadGate()  # of `load_ahead`, which reads the file without the lock
        self._loads = PendingLoads()
        self.moved_up = self.moved_ahead = 0  # rows that came from the disk; of these, before a lookup needed them
        self.hints_dropped = 0  # keys that were announced, and are more than could wait
        self.read_wait_s = 0.0  # of calls that needed rows at once
        self._doubled: str | None = None  # why rows are in both tiers
        try:
            if self.attached is None:
                remove_unused(slots_path(table))
            self.disk = self._open_disk()
            self._take_over()
        except BaseException:
            RamTier.close(self, leave=True)
            raise
        self.capacity_rows = self.ram_rows_max + self.disk.stats().capacity_rows
        self._disk_finalizer = weakref.finalize(self, end_disk, self.disk, table.segment)

    def _open_disk(self) -> SsdTier:
        table, plan = self.table, self._plan
        try:
            return SsdTier(
                table,
                slots_path(table),
                dim=self.dim,
                state_dim=self.state_dim,
                fields=self.fields,
                capacity_bytes=plan.disk_bytes,
                threads=self.threads,
                direct=table.direct_io,
                write_behind=plan.write_behind_bytes,
                staging=plan.staging,
                index=plan.index,
                index_cache=plan.index_cache_bytes or INDEX_CACHE,
            )
        except DiskError as error:
            field, _, said = str(error).partition(": ")
            if not field.startswith("capacity_bytes="):
                raise
            raise ConfigError(f"Table.disk={table.disk!r}: {said}") from None

    def _take_over(self) -> None:
        """Rows in the segment of an earlier process are newer than its copies of them on disk."""
        if self.attached is None:
            return
        for chunk in RamTier.export(self):
            self._shadow_keys(chunk.keys)
        if (found := self.disk.opened) is not None:
            before, rows = self.attached, RamTier.__len__(self) + self.disk.unshadowed
            seconds = before.seconds + found.seconds
            self.attached = Attached(rows, before.dropped + found.torn, seconds, before.partly_applied)

    @contextmanager
    def _moving(self) -> Iterator[None]:
        """Hold the lock."""
        with self._lock:
            self._check_whole()
            yield

    def _check_whole(self) -> None:
        if self._doubled is not None:
            raise DiskError(self._doubled)

    def close(self, *, leave: bool = False) -> None:
        """As `RamTier.close`: the file goes and stays with the segment."""
        with self._reads.shut():
            self._close(leave=leave)

    def _close(self, *, leave: bool) -> None:
        segment = self.table.segment
        kept = segment is not None and (leave or segment.keep)
        try:
            if self.usable and kept and self._doubled is None:
                with self._moving():
                    self.settle()
                    self.disk.flush()
        finally:
            super().close(leave=leave)
            self._disk_finalizer.detach()
            self.disk.close(remove=not kept)
            if segment is None and self.disk.path.parent.name.startswith(SHARD_DIRECTORY):
                with suppress(OSError):  # of a shard alone; another file in it stays
                    self.disk.path.parent.rmdir()

    # The lock is held from here on.

    def _find(self, plan: LookupPlan) -> None:
        """Where its rows in memory are."""
        plan.below = None
        RamTier.find(self, plan)

    def _resident(self, keys: ArrayLike | LookupPlan) -> LookupPlan:
        """A plan whose rows are in memory, as far as there are any."""
        plan = self._batch(keys)
        self._bring(plan, list(self._in_use))
        return plan

    def _bring(self, plan: LookupPlan, pinned: Sequence[LookupPlan]) -> None:
        """Bring the rows of a plan that are on disk into memory."""
        if not self.disk.unshadowed:
            return
        self._find(plan)
        if plan.absent:
            wanted, _ = plan.absent_keys()
            began = time.perf_counter()
            rows, _ = self.disk.read(wanted, shadowed=False)
            self.read_wait_s += time.perf_counter() - began
            if self._put_up(rows, [plan, *pinned]) < len(rows.keys):
                raise self._no_room()

    def _put_up(self, rows: Rows, pinned: Sequence[LookupPlan]) -> int:
        """Put rows of the disk into memory, as far as there is room; returns how many."""
        if not len(rows.keys):
            return 0
        state = rows.state if self.state_dim else None
        plan = self.batch(rows.keys)
        with self._moving_down(plan, self._evicted_by_put(plan, pinned)):
            self._put_planned(plan, rows.values, state, rows.fields, pinned)
        came = self._shadow(plan)
        self.moved_up += came
        return came

    def _shadow(self, plan: LookupPlan) -> int:
        """Rows that were put into memory are newer than their copies on disk; returns how many were put."""
        keys = plan.keys
        if plan.turned_away:
            keys = keys[RamTier.read(self, keys, "version") > 0]
        self._shadow_keys(keys)
        return len(keys)

    def _shadow_keys(self, keys: Keys) -> None:
        """Memory has these rows. Where the disk fails they are in both tiers, and the table takes no more calls."""
        try:
            self.disk.shadow(keys)
        except DiskError as error:
            self._doubled = (
                f"table {self.table.name!r}: its disk failed while rows moved, and it takes no more calls: "
                f"continue from the last checkpoint ({error})"
            )
            raise DiskError(self._doubled) from error

    @contextmanager
    def _moving_down(self, plan: LookupPlan, evicted: Rows) -> Iterator[None]:
        """Around a call that makes rows for a plan: those that it evicts are on disk before.

        Where the file does not take them, the call is not made and nothing has changed.
        """
        written = self._write_first(evicted)
        fell = 0
        try:
            yield
            fell = self._native.evicted_rows(plan._native)
        finally:
            if fell < len(written):  # rows expired, or the call failed
                self._shadow_keys(written[RamTier.read(self, written, "version") > 0])
            assert fell <= len(written), "a row was evicted that was not written"
            if self.table.expiry is not None:
                self._forget_expired()

    def _evicted_by_put(self, plan: LookupPlan, pinned: Sequence[LookupPlan]) -> Rows:
        """The rows that a put of a plan will evict."""
        plans = self._plans("pinned", pinned)
        return self._previewed(
            plan, self._native.preview_evictions(plan._native, False, False, None, plans, self.threads)
        )

    def _evicted_by_lookup(self, plan: LookupPlan, pinned: Sequence[LookupPlan], sight: Sight) -> Rows:
        """The rows that a lookup will evict, which makes rows for the keys that are admitted."""
        plans = self._plans("pinned", pinned)
        return self._previewed(
            plan,
            self._native.preview_evictions(plan._native, True, sight.seen, sight.samples, plans, self.threads),
        )

    def _previewed(self, plan: LookupPlan, count: int) -> Rows:
        rows = self._empty_rows(count)
        if count:
            self._native.evicted(plan._native, rows.keys, rows.values, rows.state, rows.fields)
        return rows

    def _write_first(self, rows: Rows) -> Keys:
        """Write the rows that a call will evict; returns their keys."""
        if not len(rows.keys):
            return rows.keys
        self._note_moved(rows.keys)
        try:
            self.disk.write(rows)
        except BaseException as error:
            self._shadow_keys(rows.keys)  # some may be there: memory has them still
            if not isinstance(error, DiskFullError):
                raise
            said = str(error).replace("raise capacity_bytes, or erase rows", "raise disk, or set expiry")
            said = re.sub(r"capacity_bytes=\d+ has", "the file has", said)
            raise DiskFullError(f"table {self.table.name!r} with disk={self.table.disk!r}: {said}") from None
        return rows.keys

    def _with_evicted(self, batch: LookupPlan) -> LookupPlan:
        """Evicted rows are on disk already."""
        return batch

    def _note_moved(self, keys: Keys) -> None:
        """What `load_ahead` has read of these keys is not their row any more."""
        self._loads.note_moved(keys)

    def _erase_on_disk(self, keys: Keys) -> int:
        """Noted afterwards: a load that begins meanwhile may still read them. Some are erased where the disk fails."""
        try:
            return self.disk.erase(keys)
        finally:
            self._note_moved(keys)

    def _forget_expired(self) -> None:
        """Remove the copies on disk of rows that expired in memory."""
        keys, _ = self._native.take_gone_keys()
        if keys:
            gone = np.unique(np.frombuffer(keys, np.uint64))
            self._erase_on_disk(gone)

    def _expired(self, last_seen: Integers) -> Flags:
        """Whether rows that were last seen at these ticks are expired."""
        expiry = self.table.expiry or 0
        unit = -(-expiry // TICKS_PER_EXPIRY)
        return self.samples - last_seen.astype(np.int64) * unit > expiry

    def _no_room(self) -> NoRoomError:
        index = ""
        if self.table.capacity_bytes is not None:
            index_bytes = size_text(self._plan.index_bytes)
            index = f", give less than disk={self.table.disk!r}, whose index takes {index_bytes} of it"
        return NoRoomError(
            f"table {self.table.name!r}: capacity={self.table.capacity!r} holds {self.ram_rows_max:,} rows in memory, "
            f"and the rows of batches in use take all of them: raise capacity{index}, or use smaller batches"
        )


def some_rows(rows: Rows, which: Flags) -> Rows:
    """The rows whose flag is set."""
    fields = {name: column[which] for name, column in rows.fields.items()}
    return Rows(rows.keys[which], rows.values[which], rows.state[which], fields)


def make_directory(table: Table) -> None:
    """The directory of a table's file; ConfigError where it cannot be made or written."""
    assert table.path is not None
    with suppress(OSError):
        table.path.mkdir(exist_ok=True)
    if not table.path.is_dir() or not os.access(table.path, os.W_OK):
        raise ConfigError(
            f"Table.path={str(table.path)!r}: is no directory that can be written: make it, or name another one"
        )


def remove_unused(path: Path) -> None:
    """Remove a file that a process left; LockedFileError where a process has it open."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        raise LockedFileError(
            f"disk file {path}: is in use by another table of this process or of another one: close that table, or set "
            "another path for this one"
        ) from None
    finally:
        os.close(file)


def end_disk(disk: SsdTier, segment: Segment | None) -> None:
    """The tier is collected or the program ends. One that ends by an error leaves the file with its segment."""
    failed = hasattr(sys, "last_value") and not hasattr(sys, "ps1")
    disk.close(remove=segment is None or not (segment.keep or failed))
