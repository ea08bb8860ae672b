"""The slow twin of a row's life: capacity, eviction, expiry and admission on plain dicts and lists, one key at a time.

Values are those of SGD with lr=1, so that an update is one subtraction. Expired rows leave at once here; the native
table only has to behave as if they did: no living row is evicted, and no key refused, while an expired one takes room.

Admission is by exact counts. A Bloom filter and chance have tests of their own.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotrow.config import AtLeast, Table

F32 = NDArray[np.float32]
FirstValues = Callable[[NDArray[np.uint64], F32], object]

MASK = 2**64 - 1
FREQUENCIES = 4095  # rows seen so often or more count alike


def hash_key(key: int) -> int:
    """native/store/hash.h"""
    h = key ^ key >> 32
    h = h * 0xD6E8FEB86659FD93 & MASK
    h ^= h >> 32
    h = h * 0xD6E8FEB86659FD93 & MASK
    return h ^ h >> 32


def partition_of(key: int, partitions: int) -> int:
    """The top bits of the ten that choose a partition; `partitions` is a power of two."""
    return (hash_key(key) >> 44 & 1023) >> (10 - (partitions.bit_length() - 1))


def partitions_for(capacity: int, most: int = 32) -> int:
    """How many partitions a table of so many rows is cut into."""
    while most > 1 and capacity / most < 256:
        most //= 2
    return most


@dataclass
class LifeRow:
    value: F32
    last_seen: int
    frequency: int
    version: int = 1
    last_update: int = 0

    def copy(self) -> "LifeRow":
        return LifeRow(self.value.copy(), self.last_seen, self.frequency, self.version, self.last_update)


@dataclass
class Partition:
    capacity: int | None
    rows: dict[int, LifeRow] = field(default_factory=dict)
    seen: list[int] = field(default_factory=list)  # keys, the one seen last at the end

    @property
    def full(self) -> bool:
        return self.capacity is not None and len(self.rows) >= self.capacity

    def see(self, key: int, occurrences: int, now: int) -> None:
        self.seen.remove(key)
        self.seen.append(key)
        self.rows[key].frequency += occurrences
        self.rows[key].last_seen = now

    def add(self, key: int, row: LifeRow) -> None:
        assert key not in self.rows
        self.rows[key] = row
        self.seen.append(key)

    def remove(self, key: int) -> LifeRow:
        self.seen.remove(key)
        return self.rows.pop(key)

    def order(self, policy: str) -> list[int]:
        """The first to go first."""
        if policy == "lru":
            return list(self.seen)
        return sorted(self.seen, key=lambda key: min(self.rows[key].frequency, FREQUENCIES))  # stable: oldest first


@dataclass
class Lookup:
    """What one find_or_init or put did."""

    given: dict[int, F32] = field(default_factory=dict)
    turned_away: set[int] = field(default_factory=set)
    evicted: list[list[tuple[int, LifeRow]]] = field(default_factory=list)  # by partition, in the order of falling out
    rows: dict[int, LifeRow] = field(default_factory=dict)  # of its keys, as it left them


@dataclass(frozen=True)
class Updated:
    rows: int
    absent: int
    unadmitted: int


@dataclass
class Counts:
    created: int = 0
    erased: int = 0
    evicted: int = 0
    expired: int = 0
    turned_away: int = 0
    turned_away_ahead: int = 0  # of these: by reading ahead
    unadmitted: int = 0
    absent: int = 0


class TwinLife:
    """Rows of `table`, cut into `partitions`. First values come from `first_values`, which has tests of its own."""

    def __init__(self, table: Table, partitions: int, first_values: FirstValues) -> None:
        assert table.admission is None or isinstance(table.admission, AtLeast)
        assert table.capacity is None or isinstance(table.capacity, int)
        self.table, self.first_values = table, first_values
        self.partitions = [Partition(share) for share in _shares(table.capacity, partitions)]
        self.unit = 1024 if table.expiry is None else -(-table.expiry // 65_536)
        self.now = 0
        self.waiting: Counter[int] = Counter()
        self.counts = Counts()
        self.gone: list[int] = []  # keys evicted or expired

    def __len__(self) -> int:
        return sum(len(partition.rows) for partition in self.partitions)

    def row(self, key: int) -> LifeRow | None:
        return self._home(key).rows.get(key)

    def keys(self) -> set[int]:
        return {key for partition in self.partitions for key in partition.rows}

    def order(self, partition: int) -> list[int]:
        assert self.table.policy in ("lru", "lfu")
        return self.partitions[partition].order(self.table.policy)

    # Lookups

    def find_or_init(
        self, keys: Iterable[int], samples: int | None = None, seen: bool = True, pinned: Iterable[Lookup] = ()
    ) -> Lookup:
        """Rows that the pinned lookups left behind stay."""
        stay = {id(row) for lookup in pinned for row in lookup.rows.values()}
        if samples is not None:
            self.expire(samples)
        elif self.table.expiry is None:
            self.now += 1
        done = Lookup()
        asked = Counter(keys)  # in the order of first occurrence
        for number, partition in enumerate(self.partitions):
            here = {key: n for key, n in asked.items() if partition_of(key, len(self.partitions)) == number}
            done.evicted.append(self._look_up(partition, here, seen, done, stay))
        done.rows = {key: row for key in asked if (row := self.row(key)) is not None}
        self.counts.turned_away += len(done.turned_away)
        self.counts.turned_away_ahead += 0 if seen else len(done.turned_away)
        return done

    def _look_up(
        self, partition: Partition, asked: dict[int, int], seen: bool, done: Lookup, stay: set[int]
    ) -> list[tuple[int, LifeRow]]:
        absent = {key: n for key, n in asked.items() if key not in partition.rows}
        for key, occurrences in asked.items():
            if key not in absent:
                done.given[key] = partition.rows[key].value.copy()
                if seen:
                    partition.see(key, occurrences, self.now)
        evicted: list[tuple[int, LifeRow]] = []
        for key, occurrences in absent.items():
            if not self._lets_in(key, occurrences, seen) or not self._makes_room(partition, evicted, stay):
                done.turned_away.add(key)
                done.given[key] = np.full(self.table.dim, self.table.default, np.float32)
                continue
            value = self._first_value(key)
            done.given[key] = value.copy()
            self._create(partition, key, value, occurrences)
        return evicted

    def _lets_in(self, key: int, occurrences: int, seen: bool) -> bool:
        if self.table.admission is None:
            return True
        assert isinstance(self.table.admission, AtLeast)
        if not seen:
            return False
        self.waiting[key] += occurrences
        if self.waiting[key] < self.table.admission.count:
            return False
        del self.waiting[key]
        return True

    def _makes_room(self, partition: Partition, evicted: list[tuple[int, LifeRow]], stay: Collection[int] = ()) -> bool:
        if not partition.full:
            return True
        if self.table.policy == "refuse":
            return False
        assert self.table.policy is not None
        may_go = [key for key in partition.order(self.table.policy) if id(partition.rows[key]) not in stay]
        if not may_go:
            return False
        first = may_go[0]
        evicted.append((first, partition.remove(first)))
        self.counts.evicted += 1
        self.gone.append(first)
        return True

    def _create(self, partition: Partition, key: int, value: F32, occurrences: int) -> None:
        partition.add(key, LifeRow(value, self.now, occurrences))
        self.counts.created += 1

    # Changes

    def touch(self, keys: Iterable[int], samples: int | None = None) -> int:
        if samples is not None:
            self.expire(samples)
        present = {key: n for key, n in Counter(keys).items() if self.row(key) is not None}
        for key, occurrences in present.items():
            self._home(key).see(key, occurrences, self.now)
        return len(present)

    def change(self, keys: list[int], changes: F32, step: int, turned_away: set[int]) -> Updated:
        """Add the sum of its changes to each row; `turned_away`: the keys that the lookup of this batch turned away."""
        absent = unadmitted = rows = 0
        for key in dict.fromkeys(keys):
            row = self.row(key)
            if row is None:
                unadmitted += key in turned_away
                absent += key not in turned_away
                continue
            rows += 1
            total = sum(changes[i].astype(np.float64) for i, each in enumerate(keys) if each == key)
            row.value = (row.value + total).astype(np.float32)
            row.version += 1
            row.last_update = step + 1
        self.counts.absent += absent
        self.counts.unadmitted += unadmitted
        return Updated(rows, absent, unadmitted)

    def put(self, keys: Iterable[int], values: F32) -> Lookup:
        """Overwrite rows, then create those that were absent, past admission. Each key stands there once."""
        done = Lookup(dict(zip(keys, values, strict=True)), evicted=[[] for _ in self.partitions])
        absent = [key for key in done.given if self.row(key) is None]
        for key, value in done.given.items():
            if (row := self.row(key)) is not None:
                row.value = value.copy()
                row.version += 1
                self._home(key).see(key, 0, self.now)  # just written is not old; how often it was seen stays
        for key in absent:
            partition = self._home(key)
            if self._makes_room(partition, done.evicted[partition_of(key, len(self.partitions))]):
                self._create(partition, key, done.given[key].copy(), 1)
            else:
                done.turned_away.add(key)
        self.counts.turned_away += len(done.turned_away)
        return done

    def erase(self, keys: Iterable[int]) -> int:
        present = [key for key in dict.fromkeys(keys) if self.row(key) is not None]
        for key in present:
            self._home(key).remove(key)
        self.counts.erased += len(present)
        return len(present)

    def expire(self, samples: int | None = None) -> int:
        """Let time move to `samples`; the rows whose time is up leave."""
        if samples is not None:
            self.now = max(self.now, samples // self.unit)
        expired = [key for key in self.keys() if self._is_expired(key)]
        for key in expired:
            self._home(key).remove(key)
        self.counts.expired += len(expired)
        self.gone += expired
        return len(expired)

    def _is_expired(self, key: int) -> bool:
        row = self.row(key)
        assert row is not None
        return self.table.expiry is not None and (self.now - row.last_seen) * self.unit > self.table.expiry

    def _home(self, key: int) -> Partition:
        return self.partitions[partition_of(key, len(self.partitions))]

    def _first_value(self, key: int) -> F32:
        value = np.empty((1, self.table.dim), np.float32)
        self.first_values(np.array([key], np.uint64), value)
        return value.reshape(-1)


def _shares(capacity: int | None, partitions: int) -> list[int | None]:
    if capacity is None:
        return [None] * partitions
    return [capacity // partitions + (number < capacity % partitions) for number in range(partitions)]
