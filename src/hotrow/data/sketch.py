"""Summaries of long columns in bounded memory: distinct ids and how often they come, samples, means and deviations."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotrow.data.chance import F64, U64, bits, mixed, stream, uniform

I64 = NDArray[np.int64]

REGISTERS_LOG2 = 14  # the estimate's deviation is 1.04 / sqrt(2^14): 0.8 %
CURVE_POINTS = 200


class HyperLogLog:
    """About how many distinct ids there were, in 16 KiB (Flajolet et al. 2007, with 64-bit hashes)."""

    def __init__(self) -> None:
        self._registers = np.zeros(1 << REGISTERS_LOG2, np.uint8)

    def add(self, ids: U64) -> None:
        """Ids, each any number of times."""
        hashes = mixed(ids.copy())
        rest_bits = 64 - REGISTERS_LOG2
        rest = (hashes & np.uint64(2**rest_bits - 1)).astype(np.float64)  # exact: fewer than 53 bits
        _, length = np.frexp(rest)
        rank = (rest_bits + 1 - length).astype(np.uint8)  # the place of the first bit that is set
        np.maximum.at(self._registers, (hashes >> np.uint64(rest_bits)).astype(np.intp), rank)

    def estimate(self) -> int:
        """Distinct ids, give or take a percent."""
        size = len(self._registers)
        raw = 0.7213 / (1 + 1.079 / size) * size**2 / float(np.exp2(-self._registers.astype(np.float64)).sum())
        empty = int(np.count_nonzero(self._registers == 0))
        if raw <= 2.5 * size and empty:
            return round(size * math.log(size / empty))
        return round(raw)


class IdFrequencies:
    """How often each id came: exactly up to `most` distinct ids, then for frequent ones only.

    Above the bound the rarer half is forgotten again and again: counts are then too low by at most `error`, and the
    number of distinct ids is an estimate.
    """

    def __init__(self, most: int) -> None:
        self.total = 0
        self.error = 0
        self._most = most
        self._ids: U64 = np.empty(0, np.uint64)
        self._counts: I64 = np.empty(0, np.int64)
        self._waiting: list[U64] = []
        self._waiting_size = 0
        self._estimate: HyperLogLog | None = None

    def add(self, ids: U64) -> None:
        """Some more; looked at once they are worth a sort."""
        self.total += len(ids)
        self._waiting.append(ids)
        self._waiting_size += len(ids)
        if self._waiting_size >= self._most:
            self._merge()

    @property
    def exact(self) -> bool:
        """Whether every id was counted."""
        self._merge()
        return self._estimate is None

    def distinct(self) -> int:
        """How many ids there were."""
        self._merge()
        return len(self._ids) if self._estimate is None else self._estimate.estimate()

    def curve(self) -> list[tuple[int, int]]:
        """(rank, count) of the most frequent ids, ranks from 1 in about equal steps of their logarithm."""
        self._merge()
        counts = np.sort(self._counts)[::-1]
        if len(counts) == 0:
            return []
        ranks = np.unique(np.geomspace(1, len(counts), CURVE_POINTS).round().astype(np.int64))
        return list(zip(ranks.tolist(), counts[ranks - 1].tolist(), strict=True))

    def _merge(self) -> None:
        if not self._waiting:
            return
        new, counts = np.unique(np.concatenate(self._waiting), return_counts=True)
        self._waiting, self._waiting_size = [], 0
        self._ids, place = np.unique(np.concatenate([self._ids, new]), return_inverse=True)
        self._counts = np.bincount(place, np.concatenate([self._counts, counts])).astype(np.int64)
        if self._estimate is not None:
            self._estimate.add(new)
        if len(self._ids) > self._most:
            self._forget()

    def _forget(self) -> None:
        if self._estimate is None:
            self._estimate = HyperLogLog()
            self._estimate.add(self._ids)
        kept = np.argsort(self._counts, kind="stable")[-max(1, self._most // 2) :]
        dropped = np.ones(len(self._ids), bool)
        dropped[kept] = False
        self.error += int(self._counts[dropped].max())
        self._ids, self._counts = self._ids[~dropped], self._counts[~dropped]


class Sample:
    """A fair sample of at most `most` rows, the same at every reading: those with the smallest hashed numbers."""

    def __init__(self, most: int, columns: int) -> None:
        self._most = most
        self._row = 0
        self._drawn: F64 = np.empty(0)
        self._values: F64 = np.empty((0, columns))

    def add(self, values: F64) -> None:
        """Some more rows, [rows, columns]."""
        drawn = uniform(bits(stream(104), np.arange(self._row, self._row + len(values), dtype=np.uint64)))
        self._row += len(values)
        if len(self._drawn) == self._most:  # most of a long column is out at once
            near = drawn < self._drawn.max(initial=0)
            drawn, values = drawn[near], values[near]
        self._drawn = np.concatenate([self._drawn, drawn])
        self._values = np.concatenate([self._values, values])
        if len(self._drawn) > self._most:
            kept = np.argpartition(self._drawn, self._most - 1)[: self._most]
            self._drawn, self._values = self._drawn[kept], self._values[kept]

    @property
    def whole(self) -> bool:
        """Whether every row is in it."""
        return self._row <= self._most

    def column(self, place: int) -> F64:
        """The sampled values of a column, without missing ones."""
        values: F64 = self._values[:, place]
        return values[~np.isnan(values)]


@dataclass(slots=True)
class Moments:
    """Range, mean and deviation of a column; NaN is a missing value."""

    there: int = 0
    missing: int = 0
    low: float = math.inf
    high: float = -math.inf
    mean: float = 0.0
    squares: float = 0.0  # summed distances from the mean, squared

    def add(self, values: F64) -> None:
        """Some more values; means are joined, so that no digits are lost in large sums."""
        good = values[~np.isnan(values)]
        self.missing += len(values) - len(good)
        if len(good) == 0:
            return
        self.low, self.high = min(self.low, float(good.min())), max(self.high, float(good.max()))
        mean, count = float(good.mean()), self.there + len(good)
        apart = mean - self.mean
        self.squares += float(((good - mean) ** 2).sum()) + apart**2 * self.there * len(good) / count
        self.mean += apart * len(good) / count
        self.there = count

    @property
    def deviation(self) -> float:
        """Of the values that are there."""
        return math.sqrt(self.squares / self.there) if self.there else 0.0
