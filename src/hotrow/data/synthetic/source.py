"""The synthetic stream as a source, as batches and as a Parquet file, with the best that a model can reach on it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hotrow.data import batch as batches
from hotrow.data.batch import Batch
from hotrow.data.files import File
from hotrow.data.keys import Keyspace
from hotrow.data.row_ranges import NumberedRows, RowSpan
from hotrow.data.schema import Schema
from hotrow.data.source import Trouble
from hotrow.data.splits import Day, RowRange
from hotrow.data.synthetic.config import Part, SyntheticConfig
from hotrow.data.synthetic.draws import F32
from hotrow.data.synthetic.rows import BLOCK, Maker, SyntheticRows
from hotrow.data.synthetic.teacher import chances
from hotrow.spec import whole_number

BLOCKS_PER_GROUP = 8  # of a Parquet file: a column of a row group is then a megabyte


class SyntheticSource:
    """A part of a synthetic stream. Any row can be reached at once; nothing is malformed."""

    def __init__(self, config: SyntheticConfig, part: Part = "train") -> None:
        self.config, self.part = config, part
        self.trouble = Trouble()
        self.schema = Schema(
            label="label",
            numbers=tuple(f"number_{place}" for place in range(1, config.numbers + 1)),
            ids=tuple(f"id_{place}" for place in range(1, config.features + 1)),
            time={"column": "time", "format": "s"},
        )
        self._maker = Maker(config)
        self._names = self.schema.columns
        space = Keyspace(self.schema)
        self._features = tuple(feature.name for feature in self.schema.ids)
        self._salts = [np.uint64(space.salt(name)) for name in self._features]

    def rows(self) -> int:
        """All there are."""
        return self.config.size(self.part)

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Blocks of rows as Arrow columns."""
        for rows in self._maker.read(self.part, skip):
            columns = [
                rows.labels.astype(np.int8),
                *rows.numbers,
                *(ids.view(np.int64) for ids in rows.ids),
                rows.times,
            ]
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=list(self._names))

    def files(self) -> tuple[File, ...]:
        """None: rows are computed, by any process."""
        return ()

    def group_rows(self) -> int:
        return BLOCK

    def read_ranges(self, ranges: Iterable[RowSpan]) -> NumberedRows:
        for start, stop in ranges:
            row = start
            for batch in RowRange(self, start, stop).read():
                yield row, batch
                row += batch.num_rows
            if row < stop:
                return

    def read_batches(self, skip: int = 0, *, labels: bool = True) -> Iterator[Batch]:
        """The same as decoded batches."""
        for rows in self._maker.read(self.part, skip):
            yield self._batch(rows, labels)

    def days(self) -> Iterator[Day]:
        """Day after day, the first of them to train on before anything is tested."""
        first = self.config.first_day
        days = [self._maker.day_range(self.part, number) for number in range(self.config.days)]
        for number, ((start, stop), (_, end)) in enumerate(pairwise(days), 1):
            date = first + timedelta(days=number)
            yield Day(date.isoformat(), date, RowRange(self, start, stop), RowRange(self, stop, end))

    def log_odds(self, start: int = 0, stop: int | None = None) -> F32:
        """The teacher's log-odds of rows from `start` up to, not including, `stop`: no model can score better."""
        stop = self.rows() if stop is None else min(stop, self.rows())
        found: list[F32] = [np.empty(0, np.float32)]
        for rows in self._maker.read(self.part, start):
            found.append(rows.log_odds[: max(0, stop - start)])
            start += len(rows.log_odds)
            if start >= stop:
                break
        return np.concatenate(found)

    def _batch(self, rows: SyntheticRows, labels: bool) -> Batch:
        keys = np.empty((len(rows.labels), len(rows.ids)), np.uint64)
        for place, (ids, salt) in enumerate(zip(rows.ids, self._salts, strict=True)):
            np.bitwise_xor(ids, salt, out=keys[:, place])
        numbers = np.empty((len(rows.labels), len(rows.numbers)), np.float32)
        for place, values in enumerate(rows.numbers):
            numbers[:, place] = values
        truth = rows.labels[:, None].astype(np.float32) if labels else None
        part = batches.FeatureBlock("default", "one", self._features, keys.reshape(-1).view(np.int64))
        return Batch((part,), numbers, truth, None, rows.times)


@dataclass(frozen=True, slots=True)
class TeacherQuality:
    """What a model that knew the teacher would reach on average."""

    auc: float | None  # None with fewer than two rows
    logloss: float


def best(log_odds: F32) -> TeacherQuality:
    """From the teacher's log-odds alone: a row counts as a click by its chance, so drawn labels add no noise."""
    odds = np.sort(log_odds.astype(np.float64))
    clicks, misses = chances(odds), chances(-odds)
    won = float(clicks @ (np.cumsum(misses) - misses))
    pairs = float(clicks.sum() * misses.sum() - clicks @ misses)  # no row competes with itself
    return TeacherQuality(
        won / pairs if pairs else None, float((clicks * np.logaddexp(0, -odds) + misses * np.logaddexp(0, odds)).mean())
    )


def write_parquet(path: str | Path, config: SyntheticConfig, rows: int | None = None, part: Part = "train") -> Path:
    """The first `rows` rows of a part, or all, as a Parquet file; one row group is in memory at a time."""
    source = SyntheticSource(config, part)
    left = source.rows() if rows is None else whole_number("rows", rows, 1, source.rows())
    blocks = RowRange(source, 0, left).read()
    first = next(blocks)
    with pq.ParquetWriter(path, first.schema) as writer:
        writer.write_table(pa.Table.from_batches([first, *islice(blocks, BLOCKS_PER_GROUP - 1)]))
        while group := list(islice(blocks, BLOCKS_PER_GROUP)):
            writer.write_table(pa.Table.from_batches(group))
    return Path(path)
