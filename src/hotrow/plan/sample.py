"""Read a part of the data once: when each id comes first, how many distinct ids a batch has, how skewed they are."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotrow.data.batch import Batch, FeatureBlock
from hotrow.data.describe import Watch
from hotrow.data.loader import Loader
from hotrow.data.source import Source
from hotrow.errors import InputError
from hotrow.plan.growth import FeatureGrowth, check_rows, fit_growth

I64 = NDArray[np.int64]
WAITING = 1 << 19  # ids that are merged together: a merge sorts all that are known


@dataclass(frozen=True, slots=True)
class TableSample:
    """What the sample says about the ids of one table."""

    features: dict[str, FeatureGrowth]
    distinct: int  # of all its features together: several features may have an id in common
    keys_per_sample: float  # ids, each occurrence
    vectors_per_sample: float  # features, or ids of a sequence
    unique_per_batch: float  # distinct ids of one batch, mean
    shares: tuple[float, ...]  # of the lookups of batches, those of the most frequent 1/64, 2/64, ... of the ids

    def rows(self, total: int) -> float:
        """Distinct ids in `total` rows of data."""
        return self._shared(sum(each.at(total) for each in self.features.values()))

    def rows_most(self, total: int) -> float:
        """The same with exponents that do not fall: an upper estimate."""
        return self._shared(sum(each.at_most(total) for each in self.features.values()))

    def hit_share(self, part: float) -> float:
        """The share of a batch's distinct ids that are among the most frequent `part` of all ids."""
        place = max(0.0, min(1.0, part)) * len(self.shares)
        below = int(place)
        low = self.shares[below - 1] if below else 0.0
        high = self.shares[below] if below < len(self.shares) else 1.0
        return low + (high - low) * (place - below)

    def _shared(self, rows: float) -> float:
        counted = sum(each.distinct for each in self.features.values())
        return rows * self.distinct / counted if counted else 0.0


@dataclass(frozen=True, slots=True)
class DataSample:
    """The part of the data that was read."""

    rows: int
    whole: bool  # there are no more
    batch: int  # samples of the batches that distinct ids were counted in
    tables: dict[str, TableSample] = field(default_factory=dict)


def read_sample(
    source: Source, *, batch: int, rows: int | None = None, total: int | None = None, watch: Watch | None = None
) -> DataSample:
    """Read the first `rows` rows, all if it is None, in batches of `batch` samples.

    InputError where more rows exist, or `total` says so, and those that were read are too few to extrapolate from.
    """
    seen: dict[str, _TableReader] = {}
    there, read, whole = source.rows(), 0, True
    for _, each in Loader(source, batch, labels=True):
        piece = each if rows is None or read + len(each) <= rows else each.slice(0, rows - read)
        if len(piece):
            for table, blocks in _by_table(piece).items():
                seen.setdefault(table, _TableReader()).add(blocks, read, len(piece), counted=len(piece) == batch)
        read += len(piece)
        if watch is not None:
            watch(read, rows if there is None else min(there, rows or there))
        if len(piece) < len(each):
            whole = False
            break
    if read == 0:
        raise InputError("data.train: there is no row in it, so nothing can be predicted: name a file with rows")
    if not whole or (total is not None and total > read):
        check_rows(read)
    return DataSample(read, whole, batch, {name: reader.found(read) for name, reader in seen.items()})


def _by_table(batch: Batch) -> dict[str, list[FeatureBlock]]:
    found: dict[str, list[FeatureBlock]] = {}
    for part in batch.parts:
        found.setdefault(part.table, []).append(part)
    return found


class _TableReader:
    """Ids of one table."""

    def __init__(self) -> None:
        self._features: dict[str, _FirstRows] = {}
        self._ids: I64 = np.empty(0, np.int64)
        self._lookups: I64 = np.empty(0, np.int64)  # batches that each id was in
        self._waiting: list[I64] = []
        self._waiting_size = 0
        self._samples = self._keys = self._vectors = self._batches = self._unique = self._all_unique = 0

    def add(self, blocks: list[FeatureBlock], first: int, samples: int, *, counted: bool) -> None:
        """A batch that begins with row `first`; the distinct ids of a short one are not counted."""
        self._samples += samples
        for block in blocks:
            self._keys += len(block.keys)
            self._vectors += len(block.keys) if block.kind == "sequence" else samples * len(block.features)
            for name, keys, rows in _columns(block, samples):
                self._features.setdefault(name, _FirstRows()).add(keys, rows + first)
        ids = np.unique(np.concatenate([block.keys for block in blocks]))
        self._waiting.append(ids)
        self._waiting_size += len(ids)
        if self._waiting_size >= WAITING:
            self._merge()
        self._all_unique += len(ids)
        self._batches += counted
        self._unique += len(ids) if counted else 0

    def _merge(self) -> None:
        if not self._waiting:
            return
        new = np.concatenate(self._waiting)
        self._waiting, self._waiting_size = [], 0
        merged, place = np.unique(np.concatenate([self._ids, new]), return_inverse=True)
        counts = np.concatenate([self._lookups, np.ones(len(new), np.int64)])
        self._ids, self._lookups = merged, np.bincount(place, counts, len(merged)).astype(np.int64)

    def found(self, rows: int) -> TableSample:
        self._merge()
        features = {name: fit_growth(each.rows(), rows) for name, each in self._features.items()}
        return TableSample(
            features,
            len(self._ids),
            self._keys / self._samples,
            self._vectors / self._samples,
            self._unique / self._batches if self._batches else float(self._all_unique),
            tuple(_shares(self._lookups)),
        )


class _FirstRows:
    """The row in which each distinct id of a feature came first."""

    def __init__(self) -> None:
        self._known: I64 = np.empty(0, np.int64)
        self._rows: list[I64] = []
        self._waiting: list[tuple[I64, I64]] = []
        self._waiting_size = 0

    def add(self, keys: I64, rows: I64) -> None:
        self._waiting.append((keys.copy(), rows))  # a copy: the whole block would be kept
        self._waiting_size += len(keys)
        if self._waiting_size >= WAITING:
            self._merge()

    def _merge(self) -> None:
        keys, rows = (np.concatenate(each) for each in zip(*self._waiting, strict=True))
        self._waiting, self._waiting_size = [], 0
        ids, first = np.unique(keys, return_index=True)
        new = ~np.isin(ids, self._known, assume_unique=True)
        self._rows.append(np.sort(rows[first[new]]))
        self._known = np.union1d(self._known, ids[new])

    def rows(self) -> list[int]:
        """In rising order."""
        if self._waiting:
            self._merge()
        found: list[int] = np.concatenate(self._rows).tolist()
        return found


def _columns(block: FeatureBlock, samples: int) -> Iterator[tuple[str, I64, I64]]:
    """Feature by feature: its ids, and the sample that each is of."""
    wide = len(block.features)
    if block.bounds is None:
        matrix = block.keys.reshape(-1, wide)
        for place, name in enumerate(block.features):
            yield name, matrix[:, place], np.arange(samples)
        return
    bags = np.repeat(np.arange(samples * wide), np.diff(block.bounds))
    for place, name in enumerate(block.features):
        mine = bags % wide == place
        yield name, block.keys[mine], bags[mine] // wide


def _shares(lookups: I64, parts: int = 64) -> Iterator[float]:
    """Of all lookups, those of the most frequent ids, in `parts` equal steps of their number."""
    sums = np.cumsum(np.sort(lookups)[::-1])
    for part in range(1, parts + 1):
        at = max(1, round(len(sums) * part / parts))
        yield float(sums[at - 1] / sums[-1])
