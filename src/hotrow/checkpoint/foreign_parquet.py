"""Embedding tables in Parquet files: a column of keys or none, and a column of lists or many columns of numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hotrow.data.files import File
from hotrow.errors import ConfigError, InputError
from hotrow.store.arrays import Floats, Keys

ALL = "*"  # every column is one of numbers; the number of a row is its key
UNREADABLE = (pa.ArrowException, OSError)


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """The rows of some files, one after the other."""

    files: tuple[File, ...]
    key: str | None  # None: the number of a row is its key
    values: tuple[str, ...]
    rows: int
    dim: int

    @property
    def source(self) -> str:
        return ", ".join(file.name for file in self.files)

    @property
    def numbered(self) -> bool:
        return self.key is None

    def chunks(self, rows: int) -> Iterator[tuple[Keys, Floats]]:
        """All rows; InputError where a value is missing."""
        first = 0
        columns = [*([] if self.key is None else [self.key]), *self.values]
        for file in self.files:
            try:
                for batch in _opened(file).iter_batches(rows, columns=columns, use_threads=False):
                    yield self._keys(file, batch, first), self._matrix(file, batch, first)
                    first += len(batch)
            except UNREADABLE as error:
                raise InputError(f"{file.name}: cannot be read: {error}") from None

    def _keys(self, file: File, batch: pa.RecordBatch, first: int) -> Keys:
        if self.key is None:
            return np.arange(first, first + len(batch), dtype=np.uint64)
        column = batch.column(self.key)
        _check_whole(file, self.key, column, first)
        numbers = np.ascontiguousarray(column.to_numpy(zero_copy_only=False), _key_type(column.type))
        return numbers.view(np.uint64)

    def _matrix(self, file: File, batch: pa.RecordBatch, first: int) -> Floats:
        columns = [batch.column(name) for name in self.values]
        for name, column in zip(self.values, columns, strict=True):
            _check_whole(file, name, column, first)
        if _is_list(columns[0].type):
            flat = columns[0].flatten()
            lengths = columns[0].value_lengths().to_numpy() if _is_open(columns[0].type) else None
            if lengths is not None and (odd := np.flatnonzero(lengths != self.dim)).size:
                message = f"row {first + int(odd[0])} has {int(lengths[odd[0]])} numbers and the first has {self.dim}"
                raise InputError(f"{file.name}: column {self.values[0]!r}: {message}: give all rows the same number")
            _check_whole(file, self.values[0], flat, first * self.dim, each=self.dim)
            return np.ascontiguousarray(_floats(flat).reshape(len(batch), self.dim))
        return np.ascontiguousarray(np.stack([_floats(column) for column in columns], axis=1))


def parquet_table(name: str, wanted: str, files: Sequence[File]) -> ParquetTable:
    """The table that `wanted` names: KEY, KEY:VECTOR, VECTOR (a column of lists), or *."""
    opened = [(file, _opened(file)) for file in files]
    key, _, vector = wanted.partition(":")
    named = [] if wanted == ALL else [key, *([vector] if vector else [])]
    mine = [(file, each) for file, each in opened if set(named) <= set(each.schema_arrow.names)]
    if not mine:
        known = ", ".join(map(repr, opened[0][1].schema_arrow.names))
        raise ConfigError(f"--table {name}={wanted}: no file has such columns; {opened[0][0].name} has {known}")
    schema = mine[0][1].schema_arrow
    of_key, values = _columns(name, wanted, schema, key, vector)
    for file, each in mine:
        if each.schema_arrow.types != schema.types or each.schema_arrow.names != schema.names:
            raise InputError(f"{file.name}: its columns differ from those of {mine[0][0].name}: import them one by one")
    dim = _dim(mine[0][0], mine[0][1], values)
    rows = sum(each.metadata.num_rows for _, each in mine)
    return ParquetTable(tuple(file for file, _ in mine), of_key, values, rows, dim)


def _columns(name: str, wanted: str, schema: pa.Schema, key: str, vector: str) -> tuple[str | None, tuple[str, ...]]:
    """The column of keys, if there is one, and those of values."""
    if wanted != ALL and not vector and _is_list(schema.field(key).type):
        key, vector = "", key
    if key and wanted != ALL and not pa.types.is_integer(schema.field(key).type):
        message = f"column {key!r} is {schema.field(key).type}: keys are whole numbers, vectors are lists of numbers"
        raise ConfigError(f"--table {name}={wanted}: {message}")
    of_key = key if key and wanted != ALL else None
    if vector:
        _check_type(name, wanted, vector, schema.field(vector).type.value_type)
        return of_key, (vector,)
    others = [field for field in schema if field.name != of_key]
    lists = [field.name for field in others if _is_list(field.type)]
    if len(lists) > 1:
        raise ConfigError(f"--table {name}={wanted}: there are several columns of lists ({', '.join(lists)}): name one")
    if lists:
        return of_key, (lists[0],)
    for field in others:
        _check_type(name, wanted, field.name, field.type)
    if not others:
        raise ConfigError(f"--table {name}={wanted}: there is no column of values beside the keys: name other columns")
    return of_key, tuple(field.name for field in others)


def _check_type(name: str, wanted: str, column: str, kind: pa.DataType) -> None:
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        message = f"column {column!r} is {kind}: values are numbers"
        raise ConfigError(f"--table {name}={wanted}: {message}: name the columns as KEY:VECTOR")


def _dim(file: File, opened: pq.ParquetFile, values: tuple[str, ...]) -> int:
    kind = opened.schema_arrow.field(values[0]).type
    if not _is_list(kind):
        return len(values)
    if not _is_open(kind):
        return int(kind.list_size)
    batch = next(opened.iter_batches(1, columns=list(values)), None)
    if batch is None or not len(batch) or not batch.column(0)[0].is_valid or not len(batch.column(0)[0]):
        raise InputError(f"{file.name}: column {values[0]!r}: the first row has no numbers: give at least one row")
    return len(batch.column(0)[0])


def _check_whole(file: File, name: str, column: pa.Array, first: int, each: int = 1) -> None:
    if column.null_count:
        row = (first + int(np.flatnonzero(np.asarray(column.is_null()))[0])) // each
        raise InputError(f"{file.name}: column {name!r}: row {row} is empty: give every row a key and all its numbers")


def _opened(file: File) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(file.file())
    except UNREADABLE as error:
        raise InputError(f"{file.name}: is no Parquet file that can be read: {error}") from None


def _floats(column: pa.Array) -> Floats:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float32)


def _key_type(kind: pa.DataType) -> type[np.int64] | type[np.uint64]:
    return np.int64 if pa.types.is_signed_integer(kind) else np.uint64


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_list(kind) or _is_open(kind))


def _is_open(kind: pa.DataType) -> bool:
    """A list of any length."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
