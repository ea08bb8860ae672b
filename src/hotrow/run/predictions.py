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
from hotrow.errors import ConfigError, InputError
from hotrow.run.output_file import OutputFile, check_output
from hotrow.trainer import Trainer
from hotrow.worker.losses import Task

I64 = NDArray[np.int64]
SUFFIXES = (".csv", ".parquet")
AHEAD = 4  # blocks that are read while one is predicted


@dataclass(frozen=True, slots=True)
class Predicted:
    """Some rows of a file and their predictions."""

    rows: I64  # their numbers, from 0: a header and empty lines do not count, malformed lines do
    values: NDArray[np.float32]  # [rows, labels]: probabilities, or the numbers of a regression
    kept: pa.RecordBatch | None = None  # columns of the file beside them


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
                raise InputError(f"{message}: predictions are of labels, and need one score for each")
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
    """The positions of `rows` good rows among all rows of a block that ends with a line; blank lines are not rows."""
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


class PredictionFile(OutputFile):
    """A CSV or Parquet file with the columns row, those to keep, and probability; it appears when it is whole.

    The predictions of a regression are in a column `prediction`.
    """

    def __init__(
        self,
        path: Path,
        schema: Schema,
        *,
        force: bool = False,
        keep: Sequence[str] = (),
        task: Task = "classification",
    ) -> None:
        labels = [label.column for label in schema.label]
        what = "prediction" if task == "regression" else "probability"
        self._names = [what] if len(labels) == 1 else [f"{what}_{label}" for label in labels]
        check_kept(keep, self._names)
        self._keep = tuple(keep)
        # With columns to keep the schema is known with the first rows: they have the types of the input.
        super().__init__(path, None if keep else self._columns([]), "predictions", SUFFIXES, force=force)

    def write(self, some: Predicted) -> None:
        """Further rows."""
        kept = [] if some.kept is None else [some.kept.column(name) for name in self._keep]
        if not self.is_open:
            self.open(self._columns([column.type for column in kept]))
        self.write_batch([pa.array(some.rows), *kept, *(pa.array(column) for column in some.values.T)])

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None and not self.is_open:  # not a single row
            self.open(self._columns([pa.string()] * len(self._keep)))
        super().__exit__(kind, *rest)

    def _columns(self, types: Sequence[pa.DataType]) -> pa.Schema:
        kept = list(zip(self._keep, types, strict=True))
        for name, kind in kept:
            if self.path.suffix == ".csv" and pa.types.is_nested(kind):
                message = f"--keep {name}: the column holds {kind} values, which CSV cannot hold"
                raise ConfigError(f"{message}: write the predictions as .parquet")
        return pa.schema([("row", pa.int64()), *kept, *((name, pa.float32()) for name in self._names)])


def check_kept(keep: Sequence[str], names: Sequence[str]) -> None:
    """ConfigError where a column to keep occurs twice, or has the name of a column of predictions."""
    for place, name in enumerate(keep):
        if name in keep[:place]:
            raise ConfigError(f"--keep {name}: is given twice: leave one out")
        if name in ("row", *names):
            raise ConfigError(f"--keep {name}: predictions have a column of this name: rename it in the input")


def check_free(path: Path, *, force: bool = False) -> None:
    """ConfigError where the file could not be written at the end."""
    check_output(path, "predictions", SUFFIXES, force=force)
