"""Day after day: train on what is known by yesterday, test on today, train on today, test on tomorrow."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotrow.data.schema import Schema
from hotrow.data.source import Source, Trouble
from hotrow.data.splits.ranges import TimeRange, seconds_of, time_reader
from hotrow.data.splits.settings import DaysSplit
from hotrow.errors import ConfigError, InputError

SECONDS_PER_DAY = 86_400
HELD_ROWS = 5_000_000  # up to here a data set is held in memory, sorted by time
ROWS_AT_ONCE = 65_536
EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Day:
    """What to train on before a day, and then the day's rows to test on."""

    name: str
    date: date | None  # None where a file is a day
    train: Source
    test: Source


class Held:
    """Rows in memory."""

    def __init__(self, table: pa.Table, schema: Schema, trouble: Trouble) -> None:
        self.schema, self.trouble = schema, trouble
        self._table = table

    def rows(self) -> int:
        """All there are."""
        return int(self._table.num_rows)

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """Slices of the columns, nothing is copied."""
        yield from self._table.slice(skip).to_batches(ROWS_AT_ONCE)


def days_of(source: Source) -> list[date]:
    """The days that have rows, in order. The whole source is read."""
    seconds_in = time_reader(source.schema)
    found: set[int] = set()
    for batch in source.read():
        found.update(np.unique(seconds_in(batch) // SECONDS_PER_DAY).tolist())
    return [EPOCH + timedelta(days=day) for day in sorted(found)]


def day_by_day(source: Source, config: DaysSplit | None = None) -> Iterator[Day]:
    """One `Day` for each test day.

    Up to five million rows are held in memory, sorted by time, and the source is read once. With more it is read anew
    for every day, and rows keep their own order within the day.
    """
    held = _sorted_by_time(source)
    days = days_of(source) if held is None else held.days()
    since = None
    for day in _test_days(days, config or DaysSplit()):
        train, test = (since, day), (day, day + timedelta(days=1))
        if held is None:
            yield Day(day.isoformat(), day, TimeRange(source, *train), TimeRange(source, *test))
        else:
            yield Day(day.isoformat(), day, held.between(*train), held.between(*test))
        since = day


def file_days(sources: Mapping[str, Source]) -> Iterator[Day]:
    """The same where every source, by its name, is a day."""
    if len(sources) < 2:
        raise ConfigError(f"train: {len(sources)} file: testing on the next day needs at least two, one for each day")
    for (_, train), (name, test) in pairwise(sources.items()):
        yield Day(name, None, train, test)


class _Sorted:
    """All rows of a source, by time."""

    def __init__(self, source: Source, table: pa.Table, seconds: NDArray[np.int64]) -> None:
        self._source, self._table, self._seconds = source, table, seconds

    def days(self) -> list[date]:
        found = np.unique(self._seconds // SECONDS_PER_DAY)
        return [EPOCH + timedelta(days=day) for day in found.tolist()]

    def between(self, since: date | None, until: date) -> Held:
        """The rows from one day up to, not including, another."""
        start = 0 if since is None else int(np.searchsorted(self._seconds, seconds_of(since)))
        stop = int(np.searchsorted(self._seconds, seconds_of(until)))
        return Held(self._table.slice(start, stop - start), self._source.schema, self._source.trouble)


def _sorted_by_time(source: Source) -> _Sorted | None:
    """All rows by time, those of the same second in their order; None where they are too many to hold."""
    seconds_in = time_reader(source.schema)
    if (source.rows() or 0) > HELD_ROWS:
        return None
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in source.read():
        batches.append(batch)
        rows += batch.num_rows
        if rows > HELD_ROWS:
            return None
    if not batches:
        raise InputError("split.by='days': there are no rows at all")
    table, seconds = pa.Table.from_batches(batches), np.concatenate([seconds_in(batch) for batch in batches])
    if (np.diff(seconds) < 0).any():
        order = np.argsort(seconds, kind="stable")
        table, seconds = table.take(pa.array(order)), seconds[order]
    return _Sorted(source, table, seconds)


def _test_days(days: list[date], config: DaysSplit) -> list[date]:
    """Which days are tested on; there must be one before the first of them."""
    span = f"the data has {len(days)} days with rows, {days[0]} to {days[-1]}"
    if config.first is not None and config.first not in days:
        raise ConfigError(f"split.first={config.first}: no row is of this day; {span}: choose one of them")
    if config.last is not None and config.last >= len(days):
        raise ConfigError(f"split.last={config.last}: a day to train on must come before; {span}: choose fewer")
    start = 1 if config.last is None else len(days) - config.last
    start = start if config.first is None else days.index(config.first)
    if start == 0 or start == len(days):
        raise ConfigError(f"split.by='days': a day to train on must come before the first test day; {span}")
    return days[start:]
