"""Makes any block of rows of a synthetic stream: every value is a function of the settings and the row's number."""

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from hotrow.data.chance import MASK, STEP, U64, bits, mixed, stream, uniform
from hotrow.data.synthetic.config import Part, SyntheticConfig
from hotrow.data.synthetic.draws import F32, I64, Zipf, normal
from hotrow.data.synthetic.teacher import Sums, Teacher, TeacherScale, chances

BLOCK = 16_384  # rows made at once: a column of 8-byte values then stays in the processor's second cache
SAMPLE = 32_768  # rows that scale the teacher
STEADY_RANKS = 16  # the most frequent ids of a feature are never replaced: the days of a week stay what they are
PARTS: dict[Part, int] = {"train": 0, "valid": 1, "test": 2}
SAMPLE_PART = 3
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True)
class SyntheticRows:
    """A block of rows, column by column."""

    labels: NDArray[np.bool_]
    numbers: list[F32]
    ids: list[U64]
    times: NDArray[np.int64]  # unix seconds
    log_odds: F32  # the teacher's: what no model may see

    def from_row(self, start: int) -> "SyntheticRows":
        """The rows of the block from `start` on."""
        numbers, ids = [column[start:] for column in self.numbers], [column[start:] for column in self.ids]
        return SyntheticRows(self.labels[start:], numbers, ids, self.times[start:], self.log_odds[start:])


@dataclass(frozen=True, slots=True)
class SyntheticDay:
    """Where a day of a part begins and ends, in rows."""

    number: int
    start: int
    stop: int


class Maker:
    """The rows of one stream. A block never crosses a day, so the drift of its weights is one number."""

    def __init__(self, config: SyntheticConfig) -> None:
        self.config = config
        self._teacher = Teacher(config)
        sizes = config.feature_sizes()
        self._zipfs = [Zipf(size, config.zipf) for size in sizes]
        self._starts = [0, *accumulate(sizes[:-1])]  # of a feature's ids among all
        self._scales: dict[int, TeacherScale] = {}

    def read(self, part: Part, skip: int = 0) -> Iterator[SyntheticRows]:
        """The rows of a part from row `skip` on. The block that holds it is made whole: no value depends on `skip`."""
        row = skip
        while row < self.config.size(part):
            day = self.day_of(part, row)
            first = row - (row - day.start) % BLOCK
            stop = min(first + BLOCK, day.stop)
            yield self._block(part, first, stop, day).from_row(row - first)
            row = stop

    def day_range(self, part: Part, number: int) -> tuple[int, int]:
        """Where a day's rows begin and end."""
        rows, days = self.config.size(part), self.config.days
        return number * rows // days, (number + 1) * rows // days

    def day_of(self, part: Part, row: int) -> SyntheticDay:
        """The day of a row. Training rows are spread over all days, the others belong to the last."""
        rows, days = self.config.size(part), self.config.days
        if part != "train":
            return SyntheticDay(days - 1, 0, rows)
        number = ((row + 1) * days - 1) // rows
        return SyntheticDay(number, *self.day_range(part, number))

    def _block(self, part: Part, start: int, stop: int, day: SyntheticDay) -> SyntheticRows:
        ids, numbers, sums = self._columns(PARTS[part], start, stop, day.number)
        odds = self._scale(day.number).log_odds(sums)
        counters = np.arange(start, stop, dtype=np.uint64)
        labels: NDArray[np.bool_] = uniform(bits(stream(self.config.seed, PARTS[part], 0), counters)) < chances(odds)
        midnight = datetime.datetime.combine(self.config.first_day, datetime.time(), datetime.UTC).timestamp()
        within = np.arange(start - day.start, stop - day.start) * SECONDS_PER_DAY // (day.stop - day.start)
        return SyntheticRows(labels, numbers, ids, within + (int(midnight) + day.number * SECONDS_PER_DAY), odds)

    def _scale(self, day: int) -> TeacherScale:
        """Fitted to a sample of its own: the weights' scale on the first day, the bias on every day that differs."""
        day = day if self.config.drift or self.config.new_ids else 0
        if day not in self._scales:
            _, _, sample = self._columns(SAMPLE_PART, 0, SAMPLE, day)
            first = TeacherScale.fitted(sample, self.config.signal) if day == 0 else self._scale(0)
            self._scales[day] = first.with_click_rate(sample, self.config.click_rate)
        return self._scales[day]

    def _columns(self, part: int, start: int, stop: int, day: int) -> tuple[list[U64], list[F32], Sums]:
        """All columns of a block, and the teacher's sums over them."""
        counters = np.arange(start, stop, dtype=np.uint64)
        sums = self._teacher.sums(stop - start, day)
        ids, numbers = [], []
        for feature, zipf in enumerate(self._zipfs):
            ranks = zipf.ranks(uniform(bits(stream(self.config.seed, part, 1, feature), counters)))
            plain = self._plain_ids(feature, ranks, day)
            scattered = mixed(plain ^ np.uint64(stream(self.config.seed, 103)))
            sums.add_ids(feature, scattered, ranks)
            ids.append(scattered if self.config.scattered else plain)
        for number in range(self.config.numbers):
            values = normal(bits(stream(self.config.seed, part, 2, number), counters))
            sums.add_number(number, values)
            numbers.append(values)
        return ids, numbers, sums

    def _plain_ids(self, feature: int, ranks: I64, day: int) -> U64:
        """All features' ids in one count: feature by feature, the most frequent first, from 0.

        An id that was replaced gets the one that lies `ids` further on, so that no two ever share one.
        """
        plain: U64 = ranks.view(np.uint64) + np.uint64(self._starts[feature] - 1 & MASK)  # ranks count from 1
        replaced = day * self.config.new_ids
        if replaced > 0:
            times, share = int(replaced), replaced - int(replaced)
            generation = np.uint64(times) + (plain * np.uint64(STEP) < np.uint64(int(share * 2**64)))
            plain += generation * (ranks > STEADY_RANKS) * np.uint64(self.config.ids & MASK)
        return plain
