"""What is in a data set: rows, labels, ids and their skew, numbers, days. Plain data; others make pictures of it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotrow.data.columns import numbers
from hotrow.data.decode import Decoder
from hotrow.data.keys import MISSING
from hotrow.data.labels import label_values
from hotrow.data.schema import Ids, Label, Schema
from hotrow.data.sketch import IdFrequencies, Moments, Sample
from hotrow.data.source import Source
from hotrow.data.splits.ranges import RowRange, moment_of, time_reader

Watch: TypeAlias = Callable[[int, int | None], None]  # (rows read, rows there are if known)

EXACT_IDS = 1 << 18  # distinct ids of a feature that are counted one by one
SAMPLE_ROWS = 100_000  # that quantiles are taken from
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True)
class IdColumn:
    """The ids of a feature."""

    name: str
    distinct: int
    exact: bool  # else `distinct` is an estimate (HyperLogLog, 0.8 %) and counts may be too low by `count_error`
    count_error: int
    missing: int  # samples without an id
    ids_per_sample: float
    most_per_sample: int
    top_share: float | None  # of all occurrences, that of the most frequent id
    skew: list[tuple[int, int]]  # (rank, how often the id of this rank came)


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column of numbers, before any transform."""

    name: str
    missing: int
    low: float | None
    high: float | None
    mean: float | None
    deviation: float | None
    quantiles: dict[str, float]  # "0.5" is the median
    sampled: bool  # the quantiles are those of a sample


@dataclass(frozen=True, slots=True)
class Times:
    """When the rows happened, in UTC."""

    first: str
    last: str
    rows_per_day: dict[str, int]


@dataclass(frozen=True, slots=True)
class Description:
    """All that was found."""

    rows: int
    complete: bool  # every row was read
    malformed: int
    labels: dict[str, float | None]  # their means
    ids: list[IdColumn]
    numbers: list[NumberColumn]
    times: Times | None

    def document(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def describe(source: Source, rows: int | None = None, watch: Watch | None = None) -> Description:
    """Read a source, or its first `rows` rows, once; memory does not grow with it."""
    reader = _Reader(source.schema)
    there = source.rows()
    total = there if rows is None or there is None else min(rows, there)
    for batch in RowRange(source, 0, rows).read():
        reader.add(batch)
        if watch is not None:
            watch(reader.rows, total)
    complete = rows is None or reader.rows < rows or reader.rows == there
    return Description(
        rows=reader.rows,
        complete=complete,
        malformed=source.trouble.malformed,
        labels={name: moments.mean if moments.there else None for name, moments in reader.labels.items()},
        ids=[column.described() for column in reader.ids],
        numbers=reader.described_numbers(),
        times=reader.times.described() if reader.times else None,
    )


class _Reader:
    """Takes blocks of raw columns."""

    def __init__(self, schema: Schema) -> None:
        self.rows = 0
        self.labels = {_name(label): Moments() for label in schema.label}
        self._label_columns = schema.label
        self.ids = [_IdReader(feature, schema.label[0]) for feature in schema.ids]
        weights = [schema.weight] if schema.weight else []
        self.numbers = {name: Moments() for name in [*(number.column for number in schema.numbers), *weights]}
        self._sample = Sample(SAMPLE_ROWS, len(self.numbers))
        self.times = _TimeReader(schema) if schema.time is not None else None

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        for label in self._label_columns:
            if label.column in batch.schema.names:
                values, _ = label_values(batch[label.column], label)
                self.labels[_name(label)].add(values.astype(np.float64, copy=False))
        for column in self.ids:
            column.add(batch)
        there = frozenset(batch.schema.names)  # without labels there are no weights
        empty: NDArray[np.float64] = np.full(batch.num_rows, np.nan)
        found = [numbers(batch[name], name)[0] if name in there else empty for name in self.numbers]
        for moments, values in zip(self.numbers.values(), found, strict=True):
            moments.add(values)
        if found:
            self._sample.add(np.stack(found, axis=1))
        if self.times is not None:
            self.times.add(batch)

    def described_numbers(self) -> list[NumberColumn]:
        return [self._number(place, *named) for place, named in enumerate(self.numbers.items())]

    def _number(self, place: int, name: str, found: Moments) -> NumberColumn:
        if found.there == 0:
            return NumberColumn(name, found.missing, None, None, None, None, {}, sampled=False)
        values = self._sample.column(place)
        cuts = np.quantile(values, QUANTILES).tolist() if len(values) else []
        quantiles = {f"{share:g}": cut for share, cut in zip(QUANTILES, cuts, strict=False)}
        return NumberColumn(
            name, found.missing, found.low, found.high, found.mean, found.deviation, quantiles, not self._sample.whole
        )


class _IdReader:
    """One feature. Alone in its schema its keys are its ids, and sequences come whole."""

    def __init__(self, feature: Ids, label: Label) -> None:
        self._feature = feature.model_copy(update={"sequence": None, "several": feature.many})
        self._decoder = Decoder(Schema(label=label, ids=(self._feature,)))
        self._counts = IdFrequencies(EXACT_IDS)
        self._samples = self._missing = self._most = 0

    def add(self, batch: pa.RecordBatch) -> None:
        (part,) = self._decoder.batch(batch, labels=False).parts
        ids = part.keys.view(np.uint64)
        self._samples += batch.num_rows
        if part.bounds is None:
            ids = ids[ids != MISSING]
            self._missing += batch.num_rows - len(ids)
            self._most = max(self._most, int(len(ids) > 0))
        else:
            lengths: NDArray[np.int64] = np.diff(part.bounds)
            self._missing += int(np.count_nonzero(lengths == 0))
            self._most = max(self._most, int(lengths.max(initial=0)))
        self._counts.add(ids)

    def described(self) -> IdColumn:
        curve, total = self._counts.curve(), self._counts.total
        return IdColumn(
            name=self._feature.name,
            distinct=self._counts.distinct(),
            exact=self._counts.exact,
            count_error=self._counts.error,
            missing=self._missing,
            ids_per_sample=total / max(1, self._samples),
            most_per_sample=self._most,
            top_share=curve[0][1] / total if curve else None,
            skew=curve,
        )


class _TimeReader:
    """The time column."""

    def __init__(self, schema: Schema) -> None:
        self._seconds = time_reader(schema)
        self._ends: list[int] = []  # the first and the last second so far
        self._days: Counter[int] = Counter()

    def add(self, batch: pa.RecordBatch) -> None:
        seconds = self._seconds(batch)
        ends = [*self._ends, int(seconds.min()), int(seconds.max())]
        self._ends = [min(ends), max(ends)]
        days, counts = np.unique(seconds // SECONDS_PER_DAY, return_counts=True)
        self._days.update(dict(zip(days.tolist(), counts.tolist(), strict=True)))

    def described(self) -> Times | None:
        if not self._ends:
            return None
        per_day = {str(date(1970, 1, 1) + timedelta(days=day)): self._days[day] for day in sorted(self._days)}
        return Times(moment_of(self._ends[0]), moment_of(self._ends[1]), per_day)


def _name(label: Label) -> str:
    """Of a label: one column may give several."""
    if label.positive is not None:
        return f"{label.column} = {' or '.join(label.positive)}"
    return label.column if label.at_least is None else f"{label.column} >= {label.at_least:g}"
