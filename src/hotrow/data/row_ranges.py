"""Rows of a source in chosen ranges, in one pass: what several readers of one source share.

A range is (first row, row after the last). Ranges rise and have no row in common.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from hotrow.data.files import File
from hotrow.data.source import Source

RowSpan: TypeAlias = tuple[int, int]
NumberedRows: TypeAlias = Iterator[tuple[int, pa.RecordBatch]]  # the number of the first row, and rows of one range


@runtime_checkable
class RangeSource(Protocol):
    """A source that reads ranges of rows at less than the price of all rows."""

    def group_rows(self) -> int:
        """Rows that are read together, as a row group; a shorter range costs as much."""

    def read_ranges(self, ranges: Iterable[RowSpan]) -> NumberedRows:
        """The rows in the ranges, never an empty batch. Malformed rows before and between them are counted too."""


def read_ranges(source: Source, ranges: Iterable[RowSpan]) -> NumberedRows:
    """The rows of any source in the ranges; one that has no cheaper way is read from the first of them on."""
    if isinstance(source, RangeSource):
        yield from source.read_ranges(ranges)
        return
    wanted = WantedRows(ranges)
    if (row := wanted.first) is None:
        return
    for batch in source.read(row):
        yield from wanted.cut(row, batch)
        row += batch.num_rows
        if wanted.ended:
            return


def group_rows_of(source: Source) -> int:
    """Rows that a source reads together; 0 where every row is read anyway."""
    return source.group_rows() if isinstance(source, RangeSource) else 0


def files_of(source: Source) -> tuple[File, ...] | None:
    """The files that a source is read from; None where another process may not be able to read the same rows."""
    files = getattr(source, "files", None)
    found: tuple[File, ...] | None = None if files is None else files()
    return found


class WantedRows:
    """Which of the rows that come are in a range."""

    def __init__(self, ranges: Iterable[RowSpan]) -> None:
        self._ranges = iter(ranges)
        self._range = next(self._ranges, None)

    @property
    def first(self) -> int | None:
        """The first row that is wanted and did not come yet."""
        return None if self._range is None else self._range[0]

    @property
    def ended(self) -> bool:
        """Whether no further row is wanted."""
        return self._range is None

    def any_in(self, start: int, stop: int) -> bool:
        """Whether a row from start up to, not including, stop is wanted. Rows before `start` came."""
        while self._range is not None and self._range[1] <= start:
            self._range = next(self._ranges, None)
        return self._range is not None and self._range[0] < stop

    def cut(self, row: int, batch: pa.RecordBatch) -> NumberedRows:
        """The wanted ones of rows that begin with number `row`."""
        at, stop = row, row + batch.num_rows
        while self.any_in(at, stop) and at < stop and self._range is not None:
            first, at = max(at, self._range[0]), min(stop, self._range[1])
            yield first, batch.slice(first - row, at - first)
