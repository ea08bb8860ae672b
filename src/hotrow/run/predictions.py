"""Predictions of a file, row by row: each with the number of its row, as rows that cannot be read are left out."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotrow.data.background import read_ahead
from hotrow.data.batch import Batch
from hotrow.data.decode import Decoder
from hotrow.data.schema import Schema
from hotrow.data.source import Malformed, Source
from hotrow.errors import InputError
from hotrow.run.output_file import OutputFile, check_output
from hotrow.trainer import Trainer
from hotrow.worker.losses import Task

I64 = NDArray[np.int64]
SUFFIXES = (".csv", ".parquet")
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


class PredictionFile(OutputFile):
    """A CSV or Parquet file with the columns row and probability; it takes its place when it is whole.

    The predictions of a regression are in a column `prediction`.
    """

    def __init__(self, path: Path, schema: Schema, *, force: bool = False, task: Task = "classification") -> None:
        labels = [label.column for label in schema.label]
        what = "prediction" if task == "regression" else "probability"
        names = [what] if len(labels) == 1 else [f"{what}_{label}" for label in labels]
        columns = pa.schema([("row", pa.int64()), *((name, pa.float32()) for name in names)])
        super().__init__(path, columns, "predictions", SUFFIXES, force=force)

    def write(self, some: Predicted) -> None:
        """Further rows."""
        self.write_batch([pa.array(some.rows), *(pa.array(column) for column in some.values.T)])


def check_free(path: Path, *, force: bool = False) -> None:
    """Say what would go wrong at the end before the beginning."""
    check_output(path, "predictions", SUFFIXES, force=force)
