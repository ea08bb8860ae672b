"""A cut of a table: all its rows as they were at one moment, exported while training goes on.

A row that changes after the moment is copied first. A table that tracks its changes can cut only the rows that changed
since the cut before.
"""

import weakref
from collections.abc import Iterable, Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hotrow import _native
from hotrow.admission import AtLeast
from hotrow.errors import InputError
from hotrow.spec import whole_number
from hotrow.store.arrays import ArrayLike, Integers, Keys, as_integers, as_keys
from hotrow.store.native_table import NativeTable
from hotrow.store.rows import Rows, first_rows

Counters = NDArray[np.uint8]


class TableCut:
    """The rows of a table at the moment of `begin_cut`. Used by one thread at a time, beside those that train.

    A cut that is collected without `close` counts as not saved.
    """

    def __init__(self, tier: "CutTable", *, changed_only: bool) -> None:
        try:  # after an update that waits
            self.rows, self.changed_rows, self.samples = tier._native.begin_cut(changed_only)
        except ValueError as refused:
            raise InputError(f"table {tier.table.name!r}: {refused}") from None
        self.changed_only = changed_only
        self._tier = tier
        self._finalizer = weakref.finalize(self, _abandon, weakref.ref(tier))
        self._finalizer.atexit = False

    def chunks(self, rows: int = 65_536) -> Iterator[Rows]:
        """The rows, or those that changed, in chunks of at most `rows`; each row once, whichever iterator gives it.

        They come in the order of eviction, where the table has one: rows that are put back in this order have it again.
        A cut of changes then also has rows that did not change and come after one that did.
        """
        rows = whole_number("rows", rows, 1, 2**32, InputError)
        while True:
            chunk = self._tier._empty_rows(rows)
            count = self._open().cut_rows(chunk.keys, chunk.values, chunk.state, chunk.fields)
            if count == 0:
                return
            yield first_rows(chunk, count)

    @property
    def removed(self) -> Keys:
        """Keys whose rows were removed since the cut before, or are expired; none in a cut of all rows.

        A key that was removed and made again is here and in `chunks`: remove first, then put.
        """
        return np.frombuffer(self._open().cut_removed(), np.uint64)

    def waiting(self) -> Iterator[tuple[Keys, Integers]]:
        """Keys that wait for admission and how often each has come, where the counts are exact."""
        for partition in range(self._tier.partitions):
            keys, counts = self._open().cut_waiting(partition)
            if keys:
                yield np.frombuffer(keys, np.uint64), np.frombuffer(counts, np.uint32)

    def filters(self) -> Iterator[Counters]:
        """The counters of each partition's counting Bloom filter, where admission has one."""
        if self._open().filter_bytes:
            for partition in range(self._tier.partitions):
                yield np.frombuffer(self._open().cut_filter(partition), np.uint8)

    @property
    def copied_bytes(self) -> int:
        """Bytes of rows that were copied because they changed before they were exported."""
        return self._open().cut_copied_bytes()

    def close(self, *, saved: bool) -> None:
        """End the cut. Changes of one that was not saved belong to the next. A second call does nothing."""
        if self._finalizer.detach() is not None and self._tier.usable:
            self._tier._unsettled.end_cut(saved)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close(saved=False)

    def _open(self) -> _native.RamTier:
        """The table as it is: the thread that exports must not perform an update that waits."""
        if not self._finalizer.alive:
            raise InputError(f"table {self._tier.table.name!r}: the cut is closed: begin another one")
        return self._tier._unsettled


def _abandon(tier: "weakref.ref[CutTable]") -> None:
    if (table := tier()) is not None and table.usable:
        table._unsettled.end_cut(False)


class CutTable(NativeTable):
    """The calls of `RamTier` for cuts, and to put back what admission has counted."""

    def track_changes(self, on: bool = True) -> None:
        """Record which rows change and which are removed, for cuts of changes. The next cut must be of all rows."""
        if not isinstance(on, bool):
            raise InputError(f"on={on!r}: must be True or False")
        try:
            self._native.track_changes(on)
        except ValueError as refused:
            raise InputError(f"table {self.table.name!r}: {refused}") from None

    def begin_cut(self, *, changed_only: bool = False) -> TableCut:
        """All rows as they are now, to be exported while other calls change them; one cut at a time.

        With `changed_only` those that changed since the cut before. InputError where these are not known: without
        `track_changes`, before the first cut, after an attach, and where too many rows were removed.
        """
        if not isinstance(changed_only, bool):
            raise InputError(f"changed_only={changed_only!r}: must be True or False")
        return TableCut(self, changed_only=changed_only)

    def forget_waiting(self) -> None:
        """Let all counts of keys that wait for admission start at 0, those of counting Bloom filters too."""
        self._native.forget_waiting()

    def restore_waiting(self, chunks: Iterable[tuple[ArrayLike, ArrayLike]]) -> None:
        """Replace all counts of keys that wait for admission by those of `TableCut.waiting`."""
        admission = self.table.admission
        if not isinstance(admission, AtLeast) or admission.filter is not None:
            raise InputError(f"table {self.table.name!r} has no exact counts of keys that wait: use AtLeast(count=...)")
        checked = []
        for keys, counts in chunks:
            waiting = as_keys("keys", keys)
            count = as_integers("counts", counts, len(waiting))
            if len(count) and not 1 <= count.min() <= count.max() < admission.count:
                message = f"counts are from {count.min()} to {count.max()}"
                raise InputError(f"{message}: keys wait with 1 to {admission.count - 1} (admission.count - 1)")
            checked.append((waiting, count))
        self.forget_waiting()
        for waiting, count in checked:
            self._native.restore_waiting(waiting, count)

    def restore_filters(self, filters: Iterable[Counters]) -> None:
        """Replace the counters of all counting Bloom filters by those of `TableCut.filters`."""
        native = self._native
        checked = [np.ascontiguousarray(each, np.uint8) for each in filters]
        expected = [(native.filter_bytes,)] * (self.partitions if native.filter_bytes else 0)
        if [each.shape for each in checked] != expected:
            message = f"{len(checked)} filters of {sum(each.size for each in checked):,} bytes"
            room = f"{len(expected)} of {len(expected) * native.filter_bytes:,}"
            raise InputError(f"{message}: table {self.table.name!r} has {room}: use the same filter and partitions")
        for partition, counters in enumerate(checked):
            native.restore_filter(partition, counters)

    def _empty_rows(self, rows: int) -> Rows:
        return Rows(
            np.empty(rows, np.uint64),
            np.empty((rows, self.dim), np.float32),
            np.empty((rows, self.state_dim), np.float32),
            {name: np.empty(rows, np.uint32) for name in self.fields},
        )
