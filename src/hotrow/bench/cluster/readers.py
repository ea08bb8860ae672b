"""A source that is too slow for the training: four loaders against one.

The source takes four times as long for a row as training does, so that one loader keeps the trainers waiting and four
of them just keep up. It sleeps, as reading from far away does: on one machine loaders would else share its cores with
the trainers.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.cluster.stretches import contestant, part_of, race, stretch, trainer_of
from hotrow.bench.rounds import BenchProgress, Figures, median_ratio
from hotrow.data.parquet import ParquetSource
from hotrow.data.row_ranges import NumberedRows, RowSpan, group_rows_of, read_ranges
from hotrow.data.source import Source
from hotrow.data.splits.ranges import Around
from hotrow.modes import Hybrid
from hotrow.runtime.settings import Ray

LOADERS = 4


class Slowed(Around):
    """A source that takes some seconds for every row it gives."""

    def __init__(self, source: Source, seconds_per_row: float) -> None:
        super().__init__(source)
        self._seconds_per_row = seconds_per_row

    def rows(self) -> int | None:
        return self.source.rows()

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        began = time.perf_counter()
        for batch in self.source.read(skip):
            self._rest(began, batch.num_rows)
            yield batch
            began = time.perf_counter()

    def group_rows(self) -> int:
        return group_rows_of(self.source)

    def read_ranges(self, ranges: Iterable[RowSpan]) -> NumberedRows:
        began = time.perf_counter()
        for row, batch in read_ranges(self.source, ranges):
            self._rest(began, batch.num_rows)
            yield row, batch
            began = time.perf_counter()

    def _rest(self, began: float, rows: int) -> None:
        time.sleep(max(0.0, rows * self._seconds_per_row - (time.perf_counter() - began)))


def measure(plan: ClusterPlan, file: Path, source: Source, watch: BenchProgress) -> Figures:
    """Hybrid on two trainers and two shards, its data read by one loader and by four."""
    hidden, mode = plan.networks["narrow"], Hybrid(max_in_flight=plan.in_flight)
    short = _with_short_groups(plan, file, source)
    with (
        closing(trainer_of(plan, hidden, Ray(trainers=2, shards=2, loaders=1))) as alone,
        closing(trainer_of(plan, hidden, Ray(trainers=2, shards=2, loaders=LOADERS))) as together,
    ):
        together.switch(mode)
        # The slowest of some stretches: where the machine is slower later on, training would be the bottleneck.
        needed_s = max(stretch(plan, together, part_of(plan, short, turn % plan.rounds)).seconds for turn in range(4))
        slowed = Slowed(short, LOADERS * needed_s)
        contestants = {
            "one": contestant(plan, slowed, alone, mode),
            "four": contestant(plan, slowed, together, mode),
            "trainers_need": contestant(plan, short, together, mode),
        }
        seconds = race(plan, contestants, f"a source at a quarter of the speed: one loader, {LOADERS} loaders", watch)
    return {
        "reader_scaling": median_ratio(seconds["one"], seconds["four"]),
        "reader_scaling_share": median_ratio(seconds["trainers_need"], seconds["four"]),
        **{f"readers_{name}_samples_per_s": plan.samples / float(np.median(each)) for name, each in seconds.items()},
    }


def _with_short_groups(plan: ClusterPlan, file: Path, source: Source) -> Source:
    """The same rows in row groups of a global batch: a stretch of batches is one of them."""
    path = file.with_name("readers.parquet")
    pq.write_table(pq.read_table(file), path, row_group_size=plan.samples, compression="none")
    return ParquetSource(path, source.schema)
