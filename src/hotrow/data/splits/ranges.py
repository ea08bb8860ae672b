"""Parts of a source that are sources themselves: by rows, by chance, by time.

Nothing is held: a part reads its source and hands on its own rows, in their order.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import chain
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotrow.data.chance import bits, stream, uniform
from hotrow.data.columns import times
from hotrow.data.files import File
from hotrow.data.row_ranges import NumberedRows, RowSpan, files_of, group_rows_of, read_ranges
from hotrow.data.schema import Schema
from hotrow.data.source import Source, Trouble
from hotrow.errors import ConfigError, InputError
from hotrow.sizes import MOST, number_text
from hotrow.spec import whole_number

Moment: TypeAlias = date | datetime  # a date is its first second; UTC by default
Mask: TypeAlias = NDArray[np.bool_]

COUNTED_AT_ONCE = 1 << 20
COUNTED_MOST = 1 << 26  # row numbers that are cheap to decide about beforehand


class Around:
    """What all parts share: the schema and the account of malformed lines are the source's."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def schema(self) -> Schema:
        return self.source.schema

    @property
    def trouble(self) -> Trouble:
        return self.source.trouble

    def files(self) -> tuple[File, ...] | None:
        return files_of(self.source)


class RowRange(Around):
    """Rows from `start` up to, not including, `stop` (None: the end), as slices: a source that ends before is no fault.

    With `exact` it is one.
    """

    def __init__(self, source: Source, start: int = 0, stop: int | None = None, *, exact: bool = False) -> None:
        super().__init__(source)
        self._start = whole_number("start", start, 0, MOST)
        self._stop = None if stop is None else whole_number("stop", stop, self._start, MOST)
        self._exact = exact

    def rows(self) -> int | None:
        there = self.source.rows()
        if there is None:
            return None
        return max(0, (there if self._stop is None else min(there, self._stop)) - self._start)

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """The source jumps to the first row."""
        at = self._start + skip
        if self._stop is not None and at >= self._stop:
            return
        for batch in self.source.read(at):
            yield batch if self._stop is None else batch.slice(0, self._stop - at)
            at += batch.num_rows
            if self._stop is not None and at >= self._stop:
                return
        self._check_enough(at)

    def group_rows(self) -> int:
        return group_rows_of(self.source)

    def read_ranges(self, ranges: Iterable[RowSpan]) -> NumberedRows:
        at, missing = self._start, self._inside(ranges)
        for row, batch in read_ranges(self.source, _noted(missing, asked := deque[RowSpan]())):
            yield row - self._start, batch
            at = row + batch.num_rows
            while asked and asked[0][1] <= at:
                asked.popleft()
        unread = next(chain(asked, missing), None)
        if unread is not None:
            self._check_enough(max(at, unread[0]))

    def _inside(self, ranges: Iterable[RowSpan]) -> Iterator[RowSpan]:
        """The same rows by the numbers of the source, as far as they are in this part."""
        for first, last in ranges:
            start, stop = first + self._start, last + self._start
            stop = stop if self._stop is None else min(stop, self._stop)
            if start >= stop:
                return
            yield start, stop

    def _check_enough(self, at: int) -> None:
        """The source has ended before row `at`."""
        if self._exact and (self._stop is not None or at == self._start):
            wanted = "rows" if self._stop is None else f"{self._stop - self._start:,} rows"
            found = f"there are only {at - self._start:,} good ones"
            raise InputError(f"split: wanted are {wanted} from row {self._start:,} on, but {found}: take fewer")


def _noted(ranges: Iterator[RowSpan], asked: deque[RowSpan]) -> Iterator[RowSpan]:
    for each in ranges:
        asked.append(each)
        yield each


class Fraction(Around):
    """The rows whose number, hashed with `seed`, falls from `low` up to, not including, `high` of 1.

    Fractions of one source and seed whose bounds meet have no row in common and leave none out.
    """

    def __init__(self, source: Source, low: float, high: float, seed: int = 0) -> None:
        super().__init__(source)
        if not 0 <= low < high <= 1:
            bounds = f"low={number_text(low)}, high={number_text(high)}"
            raise ConfigError(f"{bounds}: must be from 0 to 1, low below high")
        self._low, self._high = low, high
        self._stream = stream(whole_number("seed", seed, 0, 2**64 - 1))

    def rows(self) -> int | None:
        there = self.source.rows()
        if there is None or there > COUNTED_MOST:
            return None
        return sum(int(np.count_nonzero(mask)) for mask in self._masks(there))

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """The rows before are counted by their numbers alone, and the source jumps over them."""
        at = self._row_after(skip)
        for batch in self.source.read(at):
            kept = self._mask(at, at + batch.num_rows)
            at += batch.num_rows
            yield from _filtered(batch, kept)

    def _mask(self, start: int, stop: int) -> Mask:
        drawn = uniform(bits(self._stream, np.arange(start, stop, dtype=np.uint64)))
        return (self._low <= drawn) & (drawn < self._high)

    def _masks(self, stop: int) -> Iterator[Mask]:
        for start in range(0, stop, COUNTED_AT_ONCE):
            yield self._mask(start, min(start + COUNTED_AT_ONCE, stop))

    def _row_after(self, kept: int) -> int:
        """The row after the first `kept` rows of the fraction."""
        if kept == 0:
            return 0
        for block, mask in enumerate(self._masks(MOST)):
            found = np.flatnonzero(mask)
            if kept <= len(found):
                return block * COUNTED_AT_ONCE + int(found[kept - 1]) + 1
            kept -= len(found)
        raise AssertionError("a fraction of that many rows was never reached")


class TimeRange(Around):
    """The rows from `since` up to, not including, `until`, in the source's order; no such row is a fault."""

    def __init__(self, source: Source, since: Moment | None = None, until: Moment | None = None) -> None:
        super().__init__(source)
        self._seconds = time_reader(source.schema)
        self._since, self._until = (None if moment is None else seconds_of(moment) for moment in (since, until))
        if self._since is not None and self._until is not None and self._since >= self._until:
            raise ConfigError(f"since={since}, until={until}: must be later than since")

    def rows(self) -> int | None:
        """Unknown without reading."""
        return None

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        """The whole source is read."""
        empty, earliest, latest = True, None, None
        for batch in self.source.read():
            seconds = self._seconds(batch)
            low, high = int(seconds.min()), int(seconds.max())
            earliest = low if earliest is None else min(low, earliest)
            latest = high if latest is None else max(high, latest)
            for inside in _filtered(batch, self._mask(seconds)):
                empty = False
                rest, skip = inside.slice(skip), max(0, skip - inside.num_rows)
                if rest.num_rows:
                    yield rest
        if empty:
            raise InputError(self._told_empty(earliest, latest))

    def _mask(self, seconds: NDArray[np.int64]) -> Mask:
        inside = np.ones(len(seconds), bool)
        if self._since is not None:
            inside &= seconds >= self._since
        if self._until is not None:
            inside &= seconds < self._until
        return inside

    def _told_empty(self, earliest: int | None, latest: int | None) -> str:
        bounds = [] if self._since is None else [f"from {moment_of(self._since)} on"]
        bounds += [] if self._until is None else [f"before {moment_of(self._until)}"]
        if earliest is None or latest is None:
            return f"no row {' and '.join(bounds)}: there are no rows at all"
        there = f"they are from {moment_of(earliest)} to {moment_of(latest)}"
        return f"no row {' and '.join(bounds)}: {there}: choose a day among them"


def time_reader(schema: Schema) -> Callable[[pa.RecordBatch], NDArray[np.int64]]:
    """Unix seconds of a batch's rows; ConfigError where the schema has no time column."""
    column = schema.time
    if column is None:
        raise ConfigError("split: there is no time column to split by: name one as time in [data]")
    return lambda batch: times(batch[column.column], column)[0]


def seconds_of(moment: Moment) -> int:
    """Unix seconds."""
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() // 1)


def moment_of(seconds: int) -> str:
    """Unix seconds as a text for people."""
    return f"{datetime(1970, 1, 1) + timedelta(seconds=seconds)} UTC"


def _filtered(batch: pa.RecordBatch, kept: Mask) -> Iterator[pa.RecordBatch]:
    """The rows that are kept, where there are any."""
    if kept.all():
        yield batch
    elif kept.any():
        yield batch.filter(pa.array(kept))
