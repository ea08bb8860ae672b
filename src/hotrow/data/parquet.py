"""Parquet files: row groups one after the other, only the columns that are needed."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from hotrow.data.columns import Columns, checked
from hotrow.data.files import File, Where, find_files
from hotrow.data.keys import has_its_values
from hotrow.data.numbers import LARGEST
from hotrow.data.row_ranges import NumberedRows, RowSpan, WantedRows
from hotrow.data.schema import Schema, Time
from hotrow.data.source import LIMIT, Limit, Malformed, Tally, Trouble, check_columns, row_text
from hotrow.data.times import FIRST_SECOND, LAST_SECOND, TICKS
from hotrow.errors import InputError
from hotrow.sizes import MOST

BATCH = 65_536  # rows
UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError)  # the last: names in damaged metadata that are no UTF-8
BUFFER = 2**20  # bytes of a column of a local file that are read at once; of others, far away, whole row groups


class ParquetSource:
    """Rows of Parquet files, one file after the other."""

    def __init__(
        self,
        where: Where,
        schema: Schema,
        *,
        labels: bool = True,
        limit: Limit = LIMIT,
        trouble: Trouble | None = None,
        columns: Columns | None = None,  # what to read, where it is not what the schema names
    ) -> None:
        self._files, self._limit = find_files(where), limit
        self._columns = columns or Columns.of(schema, labels)
        self.schema = _with_lists(schema, self._opened(self._files[0]).schema_arrow)
        self.trouble = trouble or Trouble()

    def rows(self) -> int | None:
        return sum(int(self._opened(file).metadata.num_rows) for file in self._files)

    def files(self) -> tuple[File, ...]:
        return self._files

    def group_rows(self) -> int:
        """Of the largest row group of the first file."""
        about = self._opened(self._files[0]).metadata
        return max((about.row_group(group).num_rows for group in range(about.num_row_groups)), default=0)

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """A row group that lies before row `skip` is jumped over where its statistics promise that all its rows count;
        else only what decides that is read of it."""
        return (batch for _, batch in self.read_ranges([(skip, MOST)]))

    def read_ranges(self, ranges: Iterable[RowSpan]) -> NumberedRows:
        """Row groups without a wanted row are jumped over as those before `skip`."""
        tally, wanted, row = Tally(self.trouble, self._limit), WantedRows(ranges), 0
        for file in self._files:
            opened, first = self._opened(file), 0
            probe: pq.ParquetFile | None = None
            for group in range(opened.num_row_groups):
                rows = opened.metadata.row_group(group).num_rows
                passed = not wanted.any_in(row, row + rows)
                if wanted.ended:
                    return
                if passed:
                    probe = probe or self._opened(file, probing=opened)
                if passed and probe is not None and self._is_faultless(file, probe, group):
                    row += rows
                    tally.block(file.name, rows, first + rows, [])
                else:
                    names = self._columns.demanding if passed else self._columns.names
                    for batch in self._group(file, opened, group, first, tally, names):
                        yield from () if passed else wanted.cut(row, batch)
                        row += batch.num_rows
                first += rows
        tally.end()

    def _group(
        self, file: File, opened: pq.ParquetFile, group: int, first: int, tally: Tally, names: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The good rows of a row group, whose first row has the number `first`, from 0."""
        try:
            for batch in opened.iter_batches(BATCH, row_groups=[group], columns=list(names), use_threads=False):
                columns = batch.select(list(names))
                _check_dictionaries(columns)
                good, faults = checked(columns, self._columns)
                shown = {row: row_text(columns, row) for row in faults}
                malformed = [
                    Malformed(file.name, first + row + 1, why, shown[row], text) for row, (why, text) in faults.items()
                ]
                first += batch.num_rows
                tally.block(file.name, good.num_rows, first, malformed)
                yield good
        except UNREADABLE as error:
            raise InputError(f"{file.name} row group {group}: cannot be read: {error}") from None

    def _is_faultless(self, file: File, opened: pq.ParquetFile, group: int) -> bool:
        """Whether the statistics of a row group promise that every row of it can be used.

        One row is read first: a damaged description of a column is an error of the reader then, while to look at it
        directly would abort the process, because pyarrow does not catch what its C++ throws there. `opened` must not
        pre-buffer, or this one row costs whole column chunks.
        """
        try:
            needed = list(self._columns.demanding)
            if needed:
                next(opened.iter_batches(1, row_groups=[group], columns=needed, use_threads=False), None)
            return is_faultless(opened, group, self._columns)
        except UNREADABLE as error:
            raise InputError(f"{file.name} row group {group}: cannot be read: {error}") from None

    def _opened(self, file: File, *, probing: pq.ParquetFile | None = None) -> pq.ParquetFile:
        """`probing`: the file, opened already; this one is to read single rows of it."""
        metadata = None if probing is None else probing.metadata
        ahead = probing is None and not file.is_local
        try:
            opened = pq.ParquetFile(file.file(), metadata=metadata, buffer_size=BUFFER, pre_buffer=ahead)
            names = opened.schema_arrow.names
        except UNREADABLE as error:
            raise InputError(f"{file.name}: is no Parquet file that can be read: {error}") from None
        check_columns(self._columns, names, file.name)
        return opened


def _with_lists(schema: Schema, there: pa.Schema) -> Schema:
    """The schema with `several` set where a column holds lists."""
    lists = {name for name in there.names if isinstance(there.field(name).type, pa.ListType | pa.LargeListType)}
    ids = tuple(each.model_copy(update={"several": True}) if each.column in lists else each for each in schema.ids)
    return schema.model_copy(update={"ids": ids})


def _check_dictionaries(batch: pa.RecordBatch) -> None:
    """ArrowInvalid where a damaged row names a value beyond its dictionary: Arrow itself would read past its end."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if isinstance(column, pa.DictionaryArray) and not has_its_values(column):
            raise pa.ArrowInvalid(f"column {name!r}: a row names a value that its dictionary does not have")


def is_faultless(file: pq.ParquetFile, group: int, columns: Columns) -> bool:
    """Whether the statistics of a row group promise that every row of it can be used."""
    whole, schema = file.metadata.row_group(group), file.schema_arrow
    places = {file.schema.column(place).path: place for place in range(len(file.schema))}
    chunks = {name: whole.column(places[name]).statistics for name in columns.demanding if name in places}
    return all(_is_faultless(chunks.get(name), schema.field(name).type, name, columns) for name in columns.demanding)


def _is_faultless(statistics: Any, kind: pa.DataType, name: str, columns: Columns) -> bool:
    is_time = columns.time is not None and name == columns.time.column
    must_be_there = is_time or name in columns.never_missing
    if must_be_there and (statistics is None or not statistics.has_null_count or statistics.null_count):
        return False
    bounded = statistics is not None and statistics.has_min_max
    if is_time:
        return bounded and _in_calendar(kind, columns.time, statistics.min_raw, statistics.max_raw)
    if pa.types.is_floating(kind):  # statistics do not cover NaN, which is no label
        largest = max(abs(statistics.min), abs(statistics.max)) if bounded else math.inf
        return name not in columns.never_missing and largest <= LARGEST
    if name == columns.weight and not (bounded and statistics.min >= 0):
        return False
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _in_calendar(kind: pa.DataType, time: Time | None, low: int, high: int) -> bool:
    if pa.types.is_timestamp(kind):
        ticks = TICKS[kind.unit]
    elif pa.types.is_integer(kind) and time is not None and time.format in ("auto", "s", "ms"):
        ticks = TICKS["ms" if time.format == "ms" else "s"]
    else:
        return False
    return FIRST_SECOND * ticks <= low and high <= LAST_SECOND * ticks
