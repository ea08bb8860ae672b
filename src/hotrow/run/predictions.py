"""Predictions of a file, row by row: each with the number of its row, as rows that cannot be read are left out."""

import csv
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from hotrow.data.background import read_ahead
from hotrow.data.batch import Batch
from hotrow.data.decode import Decoder
from hotrow.data.schema import Schema
from hotrow.data.source import Malformed, Source
from hotrow.disk import part_of, written
from hotrow.errors import ConfigError, InputError
from hotrow.trainer import Trainer

I64 = NDArray[np.int64]
AHEAD = 4  # blocks that are read while one is predicted


@dataclass(frozen=True, slots=True)
class Predicted:
    """Some rows of a file and what the model says of them."""

    rows: I64  # their numbers, from 0: a header and empty lines do not count, malformed lines do
    probabilities: NDArray[np.float32]  # [rows, labels]
    kept: pa.RecordBatch | None = None  # columns of the file that stand beside them


def predicted(trainer: Trainer, source: Source, keep: Sequence[str] = ()) -> Iterator[Predicted]:
    """All rows of a source without labels, in its order, with the columns to `keep`."""
    labels = len(source.schema.label)
    for batch, rows, kept in read_ahead(_decoded(source, keep), AHEAD):
        for start in range(0, len(batch), trainer.global_batch):
            some = slice(start, min(start + trainer.global_batch, len(batch)))
            found = trainer.predict_batch(batch.slice(some.start, some.stop))
            found = found.reshape(len(found), -1)
            if found.shape[1] != labels:
                message = f"the model gives {found.shape[1]} scores for {labels} label"
                raise InputError(f"{message}: predictions are probabilities of labels, which it does not have")
            yield Predicted(rows[some], found, kept.slice(some.start, len(found)) if keep else None)


def numbered(source: Source) -> Iterator[tuple[pa.RecordBatch, I64]]:
    """What a source reads, with the number of each row."""
    noted: list[tuple[int, Sequence[Malformed], Sequence[int]]] = []
    source.trouble.watch = lambda *block: noted.append(block)
    first = 0
    for record in source.read():
        *without_rows, (last_line, faults, blank) = noted
        noted.clear()
        first += sum(len(bad) for _, bad, _ in without_rows)
        yield record, first + places(record.num_rows, last_line, [fault.line for fault in faults], blank)
        first += record.num_rows + len(faults)


def places(rows: int, last_line: int, faults: Sequence[int], blank: Sequence[int]) -> I64:
    """Where `rows` good rows stand among all rows of a block that ends with a line; blank lines are no rows."""
    lines = rows + len(faults) + len(blank)
    first_line = last_line - lines + 1
    is_row = np.ones(lines, bool)
    is_row[np.asarray(blank, np.int64) - first_line] = False
    is_good = is_row.copy()
    is_good[np.asarray(faults, np.int64) - first_line] = False
    number: I64 = np.cumsum(is_row) - 1
    return number[is_good]


def _decoded(source: Source, keep: Sequence[str]) -> Generator[tuple[Batch, I64, pa.RecordBatch], None, None]:
    decoder = Decoder(source.schema)
    for record, rows in numbered(source):
        yield decoder.batch(record, labels=False), rows, record.select(list(keep))


class PredictionFile:
    """A CSV or Parquet file with the columns row, those to keep, and probability; it appears when it is whole."""

    def __init__(self, path: Path, schema: Schema, *, force: bool = False, keep: Sequence[str] = ()) -> None:
        check_free(path, force=force)
        labels = [label.column for label in schema.label]
        self._names = ["probability"] if len(labels) == 1 else [f"probability_{label}" for label in labels]
        check_kept(keep, self._names)
        self._keep = tuple(keep)
        self._rows = 0
        self._path, self._beside = path, part_of(path.with_name(f".{path.name}.{os.getpid()}"))
        self._beside.unlink(missing_ok=True)  # of a process that had this number before
        self._writer: Any = None
        self._schema: pa.Schema | None = None  # known with the first rows: kept columns have the types of the input
        if not keep:
            self._open([])

    def write(self, some: Predicted) -> None:
        """Further rows."""
        kept = [] if some.kept is None else [some.kept.column(name) for name in self._keep]
        if self._writer is None:
            self._open([column.type for column in kept])
        columns = [pa.array(some.rows), *kept, *(pa.array(column) for column in some.probabilities.T)]
        with self._written():
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows += len(some.rows)

    def _open(self, types: Sequence[pa.DataType]) -> None:
        for name, kind in zip(self._keep, types, strict=True):
            if self._path.suffix == ".csv" and pa.types.is_nested(kind):
                message = f"--keep {name}: the column holds {kind} values, which CSV cannot hold"
                raise ConfigError(f"{message}: write the predictions as .parquet")
        kept = list(zip(self._keep, types, strict=True))
        self._schema = pa.schema([("row", pa.int64()), *kept, *((name, pa.float32()) for name in self._names)])
        with self._written():
            self._writer = WRITERS[self._path.suffix](self._beside, self._schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            if self._writer is None:  # not a single row
                self._open([pa.string()] * len(self._keep))
            with self._written():
                self._writer.close()
                self._beside.replace(self._path)
        else:
            if self._writer is not None:
                with suppress(OSError):  # the error before it is the one that is told
                    self._writer.close()
            self._beside.unlink(missing_ok=True)

    @contextmanager
    def _written(self) -> Iterator[None]:
        """What cannot be written leaves nothing behind."""
        try:
            with written(self._path, f"predictions (so far {self._rows:,} rows)"):
                yield
        except BaseException:
            with suppress(OSError):
                self._beside.unlink(missing_ok=True)
            raise


def _csv_writer(path: Path, schema: pa.Schema) -> Any:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow(schema.names)  # Arrow would put every name in quotes
    options = arrow_csv.WriteOptions(include_header=False)
    return arrow_csv.CSVWriter(pa.OSFile(str(path), "ab"), schema, write_options=options)


def _parquet_writer(path: Path, schema: pa.Schema) -> Any:
    return pq.ParquetWriter(str(path), schema)


WRITERS = {".csv": _csv_writer, ".parquet": _parquet_writer}


def check_kept(keep: Sequence[str], names: Sequence[str]) -> None:
    """ConfigError where a column to keep stands there twice, or has the name of a column that predictions have."""
    for place, name in enumerate(keep):
        if name in keep[:place]:
            raise ConfigError(f"--keep {name}: is given twice: leave one out")
        if name in ("row", *names):
            raise ConfigError(f"--keep {name}: predictions have a column of this name: rename it in the input")


def check_free(path: Path, *, force: bool = False) -> None:
    """ConfigError where the file could not be written at the end."""
    if path.suffix not in WRITERS:
        raise ConfigError(f"{path}: predictions are written as {' or '.join(WRITERS)}: give it such a name")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: the folder {path.parent} does not exist, make it first")
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder, name a file in it")
    if path.exists() and not force:
        raise ConfigError(f"{path}: exists: name another file, or give --force to replace it")
