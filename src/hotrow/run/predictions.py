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
from hotrow.disk import written
from hotrow.errors import ConfigError, InputError
from hotrow.trainer import Trainer
from hotrow.worker.losses import Task

I64 = NDArray[np.int64]
AHEAD = 4  # blocks that are read while one is predicted


@dataclass(frozen=True, slots=True)
class Predicted:
    """Some rows of a file and what the model says of them."""

    rows: I64  # their numbers, from 0: a header and empty lines do not count, malformed lines do
    values: NDArray[np.float32]  # [rows, labels]: probabilities, or the numbers of a regression


def predicted(trainer: Trainer, source: Source) -> Iterator[Predicted]:
    """All rows of a source without labels, in its order."""
    labels = len(source.schema.label)
    for batch, rows in read_ahead(_decoded(source), AHEAD):
        for start in range(0, len(batch), trainer.global_batch):
            some = slice(start, min(start + trainer.global_batch, len(batch)))
            found = trainer.predict_batch(batch.slice(some.start, some.stop))
            found = found.reshape(len(found), -1)
            if found.shape[1] != labels:
                message = f"the model gives {found.shape[1]} scores for {labels} label"
                raise InputError(f"{message}: predictions are of labels, and need one score for each")
            yield Predicted(rows[some], found)


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


def _decoded(source: Source) -> Generator[tuple[Batch, I64], None, None]:
    decoder = Decoder(source.schema)
    for record, rows in numbered(source):
        yield decoder.batch(record, labels=False), rows


class PredictionFile:
    """A CSV or Parquet file with the columns row and probability; it takes its place when it is whole.

    The predictions of a regression are in a column `prediction`.
    """

    def __init__(self, path: Path, schema: Schema, *, force: bool = False, task: Task = "classification") -> None:
        check_free(path, force=force)
        labels = [label.column for label in schema.label]
        what = "prediction" if task == "regression" else "probability"
        names = [what] if len(labels) == 1 else [f"{what}_{label}" for label in labels]
        self._schema = pa.schema([("row", pa.int64()), *((name, pa.float32()) for name in names)])
        self._rows = 0
        self._path, self._beside = path, path.with_name(f".{path.name}.{os.getpid()}.part")
        self._beside.unlink(missing_ok=True)  # of a process that had this number before
        with self._written():
            self._writer: Any = WRITERS[path.suffix](self._beside, self._schema)

    def write(self, some: Predicted) -> None:
        """Further rows."""
        columns = [pa.array(some.rows), *(pa.array(column) for column in some.values.T)]
        with self._written():
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        self._rows += len(some.rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with self._written():
                self._writer.close()
                self._beside.replace(self._path)
        else:
            with suppress(OSError):  # what went wrong before is told
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


def check_free(path: Path, *, force: bool = False) -> None:
    """Say what would go wrong at the end before the beginning."""
    if path.suffix not in WRITERS:
        raise ConfigError(f"{path}: predictions are written as {' or '.join(WRITERS)}: give it such a name")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: the folder {path.parent} does not exist, make it first")
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder, name a file in it")
    if path.exists() and not force:
        raise ConfigError(f"{path}: is there already: name another file, or give --force to replace it")
