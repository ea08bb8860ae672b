"""Sources whose batches get more columns: computed ones, or those of a small table found by a key."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from hotrow.data.files import File
from hotrow.data.keys import MISSING, column_ids
from hotrow.data.row_ranges import NumberedRows, RowSpan, files_of, group_rows_of, read_ranges
from hotrow.data.schema import Schema
from hotrow.data.shown import shown
from hotrow.data.source import Source, Trouble
from hotrow.errors import InputError


class Derived:
    """A source with further columns on every batch."""

    def __init__(self, base: Source, schema: Schema, add: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
        self.schema = schema
        self._base, self._add = base, add

    @property
    def trouble(self) -> Trouble:
        return self._base.trouble

    def rows(self) -> int | None:
        return self._base.rows()

    def files(self) -> tuple[File, ...] | None:
        return files_of(self._base)

    def group_rows(self) -> int:
        return group_rows_of(self._base)

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        return map(self._add, self._base.read(skip))

    def read_ranges(self, ranges: Iterable[RowSpan]) -> NumberedRows:
        return ((row, self._add(batch)) for row, batch in read_ranges(self._base, ranges))


class Attributes:
    """A table in memory with one row per key."""

    def __init__(self, table: pa.Table, key: str, where: str) -> None:
        ids = column_ids(table[key].combine_chunks(), key)
        self._order = np.argsort(ids, kind="stable")
        self._sorted = ids[self._order]
        self._batch = pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in table.drop_columns([key]).columns],
            names=[name for name in table.column_names if name != key],
        )
        twice = self._sorted[1:] == self._sorted[:-1]
        if twice.any():
            value = shown(table[key][int(self._order[int(twice.argmax())])])
            raise InputError(f"{where}: {key} {value!r} occurs twice: each may have one row")

    def beside(self, batch: pa.RecordBatch, column: str) -> pa.RecordBatch:
        """The batch with the attributes of the keys in one of its columns; nulls where a key is unknown or missing."""
        ids = column_ids(batch[column], column)
        places = np.minimum(np.searchsorted(self._sorted, ids), len(self._sorted) - 1)
        unknown = (self._sorted[places] != ids) | (ids == MISSING)
        found = self._batch.take(pa.array(self._order[places], mask=unknown))
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *found.columns], names=[*batch.schema.names, *found.schema.names]
        )
