"""A file of columns that is written block by block: CSV, Parquet or NumPy. It takes its place when it is whole."""

import csv
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from hotrow.disk import part_of, written
from hotrow.errors import ConfigError

HEADER_BYTES = 4096  # of a NumPy file: its length must be known before the number of rows is


class Writer(Protocol):
    """Takes record batches of one schema."""

    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


class OutputFile:
    """Use it with `with`: a fault inside leaves nothing behind."""

    def __init__(
        self, path: Path, schema: pa.Schema | None, what: str, suffixes: Sequence[str], *, force: bool = False
    ) -> None:
        """Without a schema `open` it before the first rows."""
        check_output(path, what, suffixes, force=force)
        self.rows = 0
        self.path, self._what = path, what
        self._beside = part_of(path.with_name(f".{path.name}.{os.getpid()}"))
        self._beside.unlink(missing_ok=True)  # of a process that had this number before
        self._open: tuple[pa.Schema, Writer] | None = None
        if schema is not None:
            self.open(schema)

    @property
    def is_open(self) -> bool:
        """Whether its columns are known."""
        return self._open is not None

    def open(self, schema: pa.Schema) -> None:
        """Begin the file with these columns."""
        with self._written():
            self._open = schema, WRITERS[self.path.suffix](self._beside, schema)

    @property
    def names(self) -> list[str]:
        """Of its columns."""
        return [] if self._open is None else list(self._open[0].names)

    def write_batch(self, columns: Sequence[pa.Array]) -> None:
        """Further rows."""
        if self._open is None:
            raise AssertionError(f"{self.path}: is written to before it is open")
        schema, writer = self._open
        batch = pa.RecordBatch.from_arrays(list(columns), schema=schema)
        with self._written():
            writer.write_batch(batch)
        self.rows += batch.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        writer = None if self._open is None else self._open[1]
        if kind is None and writer is not None:
            with self._written():
                writer.close()
                self._beside.replace(self.path)
        else:
            if writer is not None:
                with suppress(OSError):  # the first error is reported
                    writer.close()
            self._beside.unlink(missing_ok=True)

    @contextmanager
    def _written(self) -> Iterator[None]:
        """What cannot be written leaves nothing behind."""
        try:
            with written(self.path, f"{self._what} (so far {self.rows:,} rows)"):
                yield
        except BaseException:
            with suppress(OSError):
                self._beside.unlink(missing_ok=True)
            raise


class CsvWriter:
    """Columns as text; a vector is a column for each of its elements."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._flat = pa.schema([field for each in schema for field in _elements(each)])
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow(self._flat.names)  # Arrow would put every name in quotes
        options = arrow_csv.WriteOptions(include_header=False)
        self._writer = arrow_csv.CSVWriter(pa.OSFile(str(path), "ab"), self._flat, write_options=options)

    def write_batch(self, batch: pa.RecordBatch) -> None:
        columns = [column for each in batch.columns for column in _flattened(each)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._flat))

    def close(self) -> None:
        self._writer.close()


class NpyWriter:
    """One structured array: a field for each column, so that `numpy.load(path)["vector"]` is a matrix."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._dtype = np.dtype([_numpy_field(field) for field in schema])
        self._rows = 0
        self._file = path.open("wb")
        self._file.write(bytes(HEADER_BYTES))

    def write_batch(self, batch: pa.RecordBatch) -> None:
        block = np.empty(batch.num_rows, self._dtype)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values = column.flatten() if _is_vector(column.type) else column
            block[name] = values.to_numpy().reshape(block[name].shape)
        self._file.write(block.tobytes())
        self._rows += len(block)

    def close(self) -> None:
        """The header comes last: only now is the number of rows known. It is padded with blanks."""
        if self._file.closed:
            return
        text = repr({"descr": self._dtype.descr, "fortran_order": False, "shape": (self._rows,)}).encode("latin-1")
        room = HEADER_BYTES - 12
        self._file.seek(0)
        self._file.write(b"\x93NUMPY\x02\x00" + room.to_bytes(4, "little") + text.ljust(room - 1) + b"\n")
        self._file.close()


def _parquet_writer(path: Path, schema: pa.Schema) -> Any:
    texts = [field.name for field in schema if pa.types.is_string(field.type)]  # of floats it would only cost time
    return pq.ParquetWriter(str(path), schema, use_dictionary=texts or False)


WRITERS: dict[str, Any] = {".csv": CsvWriter, ".parquet": _parquet_writer, ".npy": NpyWriter}


def check_output(path: Path, what: str, suffixes: Sequence[str], *, force: bool = False) -> None:
    """ConfigError where a file cannot be written: the wrong ending, no folder, or one that is there already."""
    if path.suffix not in suffixes:
        raise ConfigError(f"{path}: {what} are written as {' or '.join(suffixes)}: give it such a name")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: the folder {path.parent} does not exist, make it first")
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder, name a file in it")
    if path.exists() and not force:
        raise ConfigError(f"{path}: exists: name another file, or give --force to replace it")


def _is_vector(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.FixedSizeListType)


def _elements(field: pa.Field) -> list[pa.Field]:
    if not _is_vector(field.type):
        return [field]
    return [pa.field(f"{field.name}_{place}", field.type.value_type) for place in range(field.type.list_size)]


def _flattened(column: pa.Array) -> list[pa.Array]:
    if not _is_vector(column.type):
        return [column]
    matrix = column.flatten().to_numpy().reshape(-1, column.type.list_size)
    return [pa.array(np.ascontiguousarray(element)) for element in matrix.T]


def _numpy_field(field: pa.Field) -> tuple[Any, ...]:
    if _is_vector(field.type):
        return field.name, field.type.value_type.to_pandas_dtype(), (field.type.list_size,)
    return field.name, field.type.to_pandas_dtype()
