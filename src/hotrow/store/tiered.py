"""A table in two tiers: hot rows in memory, the others in a file on disk."""

import weakref
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hotrow.config import Table
from hotrow.errors import InputError
from hotrow.store.applied import Applied
from hotrow.store.arrays import ArrayLike, Flags, Integers, Keys, as_keys
from hotrow.store.load_ahead import TierPrefetch
from hotrow.store.ram import Per, RamTier, sample_count
from hotrow.store.rows import LookupPlan, Rows, RowsToPut, Stats
from hotrow.store.tier_moves import NoRoomError, Sight, end_disk, some_rows
from hotrow.store.tiered_cut import TieredCut

PUT_SHARE = 4  # rows of one put that are in memory at a time, as a part of the memory


class TieredTier(TierPrefetch):
    """Rows in memory up to the table's capacity, the others in a file of `table.disk` bytes under `table.path`.

    It has the calls of `RamTier`, and gives the same results as one without a limit. Rows of plans that are in use are
    not evicted: a table whose memory has no room for them raises InputError. Thread-safe.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import hotrow as hr
        >>> from hotrow.store.tiered import TieredTier
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     tier = TieredTier(hr.Table(dim=2, capacity=64, disk="16MB", path=folder))
        ...     for first in range(0, 1000, 50):
        ...         plan = tier.find_or_init(np.arange(first, first + 50))
        ...     rows, on_disk = len(tier), tier.stats().disk_rows
        ...     tier.close()
        >>> rows, on_disk
        (1000, 936)
    """

    _pages: Generator[Rows, None, None] | None = None  # rows that `export_from` has not given yet

    def __init__(self, table: Table, *, threads: int = 1, partitions: int | None = None, attach: bool = True) -> None:
        super().__init__(table, threads=threads, partitions=partitions, attach=attach)
        self.saved_cut: int | None = None  # of the disk, from which the next cut of changes counts

    # Lookups and updates

    def find(self, keys: ArrayLike | LookupPlan, out: ArrayLike | None = None, *, per: Per = "key") -> LookupPlan:
        """As `RamTier.find`. Rows on disk are read there and stay there."""
        with self._moving():
            plan = self._batch(keys)
            plan.below = None
            super().find(plan, out, per=per)
            if plan.absent and self.disk.unshadowed:
                self._read_below(plan, out, per)
        return plan

    def find_or_init(
        self,
        keys: ArrayLike | LookupPlan,
        out: ArrayLike | None = None,
        *,
        per: Per = "key",
        samples: int | None = None,
        seen: bool = True,
        pinned: Sequence[LookupPlan] = (),
    ) -> LookupPlan:
        """As `RamTier.find_or_init`; rows on disk are brought into memory."""
        with self._moving():
            plan = self._batch(keys)
            stay = [*pinned, *self._in_use]
            self._bring(plan, stay)
            sight = Sight(seen=bool(seen), samples=sample_count(samples))
            with self._moving_down(plan, self._evicted_by_lookup(plan, stay, sight)):
                super().find_or_init(plan, out, per=per, samples=samples, seen=seen, pinned=stay)
            self._in_use.add(plan)
            if plan._native.without_room:
                raise self._no_room()
        return plan

    def read_rows(
        self,
        keys: ArrayLike | LookupPlan,
        out: ArrayLike,
        *,
        per: Per = "key",
        only: Flags | None = None,
        as_found: bool = False,
        settled: bool = True,
    ) -> LookupPlan:
        """As `RamTier.read_rows`; rows on disk are brought into memory, unless they are those of the last lookup."""
        if as_found or not settled:  # rows of plans in use are in memory
            return super().read_rows(keys, out, per=per, only=only, as_found=as_found, settled=settled)
        with self._moving():
            plan = self._resident(keys)
            return super().read_rows(plan, out, per=per, only=only)

    def apply(self, keys: ArrayLike | LookupPlan, gradients: ArrayLike, **settings: Any) -> Applied:
        """As `RamTier.apply`; rows on disk are brought into memory."""
        with self._moving():
            plan = self._batch(keys) if settings.get("as_found") else self._resident(keys)
            return super().apply(plan, gradients, **settings)

    def add(self, keys: ArrayLike | LookupPlan, values: ArrayLike, *args: Any, **settings: Any) -> Applied:
        """As `RamTier.add`; rows on disk are brought into memory."""
        with self._moving():
            return super().add(self._resident(keys), values, *args, **settings)

    def put(
        self,
        keys: ArrayLike,
        values: ArrayLike,
        state: ArrayLike | None = None,
        fields: Mapping[str, ArrayLike] | None = None,
        *,
        pinned: Sequence[LookupPlan] = (),
    ) -> LookupPlan:
        """As `RamTier.put`; a row on disk is brought into memory first, so that columns not given keep their values."""
        given = as_keys("keys", keys)
        most = max(1, self.ram_rows_max // PUT_SHARE)
        if len(given) <= most:
            return self._put(given, values, state, fields, pinned)
        plan = self.batch(given)
        if plan.unique != len(given):
            raise InputError(f"keys: {len(given) - plan.unique} of them occur twice, give each row once")
        value, whole, columns = self._columns(len(given), values, state, fields)
        for first in range(0, len(given), most):
            part = slice(first, first + most)
            mine = {name: column[part] for name, column in columns.items()}
            self._put(given[part], value[part], None if whole is None else whole[part], mine, pinned)
        return plan

    def put_parts(self, parts: Sequence[RowsToPut]) -> int:
        """As `put` of one part after the other: each may move rows to the disk."""
        return sum(self.put(*part).turned_away for part in parts)

    def _put(
        self,
        keys: Keys,
        values: ArrayLike,
        state: ArrayLike | None,
        fields: Mapping[str, ArrayLike] | None,
        pinned: Sequence[LookupPlan],
    ) -> LookupPlan:
        """In halves where it has to be: a checkpoint has rows by partition, and one may have no room for all of a call.

        Rows that are put twice by this are the same both times.
        """
        try:
            return self._put_once(keys, values, state, fields, pinned)
        except NoRoomError:
            if len(keys) == 1:
                raise
        value, whole, columns = self._columns(len(keys), values, state, fields)
        for part in (slice(len(keys) // 2), slice(len(keys) // 2, None)):
            mine = {name: column[part] for name, column in columns.items()}
            self._put(keys[part], value[part], None if whole is None else whole[part], mine, pinned)
        return self.batch(keys)

    def _put_once(
        self,
        keys: Keys,
        values: ArrayLike,
        state: ArrayLike | None,
        fields: Mapping[str, ArrayLike] | None,
        pinned: Sequence[LookupPlan],
    ) -> LookupPlan:
        whole = (state is not None or not self.state_dim) and set(fields or ()) == set(self.fields)
        with self._moving():
            stay = [*pinned, *self._in_use] if whole else [*pinned, *self._in_use, self._resident(keys)]
            plan = self.batch(keys)
            with self._moving_down(plan, self._evicted_by_put(plan, stay)):
                self._put_planned(plan, values, state, fields, stay)
            self._shadow(plan)
            if plan.turned_away:
                raise self._no_room()
            return plan

    def touch(self, keys: ArrayLike | LookupPlan, samples: int | None = None) -> int:
        """As `RamTier.touch`; rows on disk are brought into memory."""
        with self._moving():
            return super().touch(self._resident(keys), samples)

    def erase(self, keys: ArrayLike | LookupPlan) -> int:
        """Remove rows from both tiers; returns how many there were.

        From the disk first: an error or a kill in between leaves rows in memory as they were last, and no old copy.
        """
        with self._moving():
            plan = self._batch(keys)
            below = plan.keys
            erased = int(self.disk.contains(below, shadowed=False).sum())
            self._erase_on_disk(below)
            return erased + super().erase(plan)

    def expire(self, samples: int | None = None) -> int:
        """As `RamTier.expire`, in both tiers. It reads all rows on disk."""
        with self._moving():
            gone = super().expire(samples)
            self._forget_expired()
            if self.table.expiry is not None:
                old = [chunk.keys[self._expired(chunk.fields["last_seen"])] for chunk in self.disk.export()]
                for keys in old:  # the export has ended: it would keep the space of what is erased
                    gone += self._erase_on_disk(keys)
            return gone

    def clear(self) -> None:
        """Remove all rows."""
        with self._reads.shut(), self._lock:
            self._loads.drop()
            super().expire()
            self._disk_finalizer.detach()
            self.disk.close(remove=True)  # first, as in `erase`
            for chunk in RamTier.export(self):
                super().erase(chunk.keys)
            self.deferred.failed = False  # no row is left that an update could have missed
            self._doubled = None
            self.disk = self._open_disk()
            self._disk_finalizer = weakref.finalize(self, end_disk, self.disk, self.table.segment)
            self.saved_cut = None  # the next cut is one of all rows

    # Reading

    def read(self, keys: ArrayLike | LookupPlan, field: str) -> Integers:
        """As `RamTier.read`. Rows on disk are read there."""
        with self._moving():
            plan = self._batch(keys)
            out = super().read(plan, field)
            self._find(plan)
            if plan.absent and self.disk.unshadowed:
                wanted, missed = plan.absent_keys()
                rows, there = self._read_disk(wanted)
                unique = np.zeros(plan.unique, np.uint32)
                unique[np.flatnonzero(missed)[there]] = rows.fields[field]
                out = np.where(missed[plan.inverse], unique[plan.inverse], out)
            return out

    def whole_rows(self, keys: ArrayLike | LookupPlan) -> Rows:
        """As `RamTier.whole_rows`. Rows on disk are read there."""
        with self._moving():
            rows = super().whole_rows(keys)
            absent = np.flatnonzero(rows.fields["version"] == 0)
            below, there = self._read_disk(rows.keys[absent])
            at = absent[there]
            rows.values[at], rows.state[at] = below.values, below.state
            for name, column in below.fields.items():
                rows.fields[name][at] = column
            return rows

    def export(self, rows: int = 65_536) -> Generator[Rows, None, None]:
        """All rows of both tiers as they are now, in chunks of at most `rows`."""
        with self._begin_cut(changed_only=False) as cut:
            yield from cut.chunks(rows)

    def export_from(self, cursor: int, most: int) -> tuple[Rows, int]:
        """At most so many rows from a cursor on, 0 at first, and the next cursor; 0: there are no more.

        The rows are those of the first page, also where rows move between the tiers before the last one.
        """
        if cursor == 0:
            self._end_pages()
            self._pages = self.export(most)
        if self._pages is None:
            raise InputError(f"cursor={cursor}: the export has ended, a cut began since; begin again with cursor 0")
        chunk = next(self._pages, None)
        return (self._empty_rows(0), 0) if chunk is None else (chunk, cursor + 1)

    def unexpired(self, rows: Rows) -> Rows:
        """Those of rows on disk that are not expired."""
        if self.table.expiry is None:
            return rows
        return some_rows(rows, ~self._expired(rows.fields["last_seen"]))

    def begin_cut(self, *, changed_only: bool = False) -> TieredCut:
        """As `RamTier.begin_cut`, of both tiers. Pages of `export_from` that were not fetched are given up."""
        self._end_pages()
        return self._begin_cut(changed_only=changed_only)

    def close(self, *, leave: bool = False) -> None:
        """As `RamTier.close`: the file goes and stays with the segment."""
        self._end_pages()
        super().close(leave=leave)

    def _end_pages(self) -> None:
        if self._pages is not None:
            self._pages.close()
            self._pages = None

    def _begin_cut(self, *, changed_only: bool) -> TieredCut:
        with self._moving():
            return TieredCut(self, changed_only=changed_only)

    def stats(self) -> Stats:
        """Counts of both tiers, `disk_rows` of the rows are on disk alone; bytes of memory and of the file."""
        with self._moving():
            memory, disk = super().stats(), self.disk.stats()
            return replace(
                memory,
                rows=memory.rows + self.disk.unshadowed,
                bytes=memory.bytes + disk.memory_bytes,
                capacity_rows=self.capacity_rows,
                created=memory.created - self.moved_up,
                evicted=0,
                disk_rows=self.disk.unshadowed,
                disk_bytes=disk.file_bytes,
                disk_index_bytes=disk.index_bytes + disk.index_cache_bytes,
                disk_filter_bytes=disk.index_filter_bytes,
                disk_page_bytes=disk.index_cache_bytes,
                moved_down=memory.evicted,
                moved_up=self.moved_up,
                moved_ahead=self.moved_ahead,
                moved_late=self.moved_up - self.moved_ahead,
                hinted=self._loads.announced + self.hints_dropped,
                hints_dropped=self.hints_dropped,
                disk_wait_s=self.read_wait_s + disk.write_stall_s,
            )

    def verify(self) -> list[str]:
        """Faults of both tiers as sentences."""
        with self._moving():
            return [*super().verify(), *self.disk.verify()]

    def reserve(self, rows: int) -> None:
        """As `RamTier.reserve`, for the rows that memory has room for."""
        super().reserve(min(rows, self.ram_rows_max))

    def __len__(self) -> int:
        with self._moving():
            return super().__len__() + self.disk.unshadowed

    def _read_disk(self, keys: Keys) -> tuple[Rows, Flags]:
        """The rows of keys that are on disk alone and not expired, and which keys those are."""
        rows, there = self.disk.read(keys, shadowed=False)
        if self.table.expiry is not None:
            old = self._expired(rows.fields["last_seen"])
            there[there] = ~old
            rows = some_rows(rows, ~old)
        return rows, there

    def _read_below(self, plan: LookupPlan, out: ArrayLike | None, per: Per) -> None:
        wanted, missed = plan.absent_keys()
        rows, there = self._read_disk(wanted)
        plan.below = np.zeros(plan.unique, np.bool_)
        plan.below[np.flatnonzero(missed)[there]] = True
        plan.absent -= int(there.sum())
        if out is None:
            return
        values = np.asarray(out)
        if per == "unique":
            values[plan.below] = rows.values
        else:
            place = np.cumsum(plan.below) - 1
            mine = plan.below[plan.inverse]
            values[mine] = rows.values[place[plan.inverse[mine]]]
