"""A table and its slow twin, told the same and compared after every call.

Memory of expired rows may come back later than the twin's. So what leaves by expiry is compared where it is promised:
at once for what lookups find and give, and after `settle` (a whole sweep) for lengths, counts and listed keys.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotrow import SGD, Table, Uniform
from hotrow.store import LookupPlan, RamTier
from hotrow.store.rows import Rows
from oracles.life import LifeRow, Lookup, TwinLife, Updated, partition_of

F32 = NDArray[np.float32]
DIM = 3
Pins = Sequence[tuple[LookupPlan, Lookup]]  # what find_or_init returned


def as_keys(keys: Sequence[int]) -> NDArray[np.uint64]:
    return np.array(keys, np.uint64)


def life_table(**settings: Any) -> Table:
    """A table whose arithmetic is one subtraction, and whose keys start at different values."""
    return Table(**{"dim": DIM, "optimizer": SGD(lr=1.0), "init": Uniform(bound=0.5), **settings})


def ones(count: int) -> F32:
    return np.ones((count, DIM), np.float32)


def fallen(batch: LookupPlan) -> list[int]:
    """The keys of the rows that made room for a batch."""
    assert batch.evicted is not None
    return [int(key) for key in batch.evicted.keys]


class Pair:
    def __init__(
        self, table: Table, *, partitions: int | None = 1, threads: int = 1, keep_evicted: bool = True
    ) -> None:
        self.table = table
        self.tier = RamTier(table, threads=threads, partitions=partitions, keep_evicted=keep_evicted)
        self.twin = TwinLife(table, self.tier.partitions, self.tier.first_values)
        self.keep_evicted = keep_evicted
        self.listed: list[int] = []  # keys that the table said were gone
        self.step = 0

    # Each call does the same to both and compares what they say

    def find_or_init(
        self,
        keys: Sequence[int],
        *,
        samples: int | None = None,
        seen: bool = True,
        per: Any = "key",
        pinned: Pins = (),
    ) -> tuple[LookupPlan, Lookup]:
        batch = self.tier.batch(as_keys(keys))
        return batch, self.look_up(batch, keys, samples=samples, seen=seen, per=per, pinned=pinned)

    def look_up(
        self,
        batch: LookupPlan,
        keys: Sequence[int],
        *,
        samples: int | None = None,
        seen: bool = True,
        per: Any = "key",
        pinned: Pins = (),
    ) -> Lookup:
        out = np.zeros((len(batch) if per == "key" else batch.unique, DIM), np.float32)
        plans, lookups = [plan for plan, _ in pinned], [lookup for _, lookup in pinned]
        assert self.tier.find_or_init(batch, out, per=per, samples=samples, seen=seen, pinned=plans) is batch
        done = self.twin.find_or_init(keys, samples, seen, lookups)
        given = out if per == "key" else out[batch.inverse]
        np.testing.assert_array_equal(given, _stacked([done.given[key] for key in keys]))
        self._same_losses(batch, done)
        return done

    def find(self, keys: Sequence[int]) -> None:
        out = np.zeros((len(keys), DIM), np.float32)
        batch = self.tier.find(as_keys(keys), out)
        rows = [self.twin.row(key) for key in keys]
        expected = [np.full(DIM, np.nan, np.float32) if row is None else row.value for row in rows]
        np.testing.assert_allclose(out, _stacked(expected), rtol=1e-6)
        assert batch.absent_mask().tolist() == [row is None for row in rows]
        assert batch.absent == len({key for key, row in zip(keys, rows, strict=True) if row is None})

    def touch(self, keys: Sequence[int], *, samples: int | None = None) -> int:
        count = self.tier.touch(as_keys(keys), samples=samples)
        assert count == self.twin.touch(keys, samples)
        return count

    def apply(self, keys: Sequence[int], gradients: F32, target: LookupPlan | None = None, turned: Any = ()) -> Updated:
        self.step += 1
        ours = self.tier.apply(as_keys(keys) if target is None else target, gradients, step=self.step)
        theirs = self.twin.change(list(keys), -gradients, self.step, set(turned))
        assert (ours.rows, ours.absent, ours.unadmitted) == (theirs.rows, theirs.absent, theirs.unadmitted)
        assert (ours.refused, ours.weightless) == (0, 0)
        return theirs

    def add(self, keys: Sequence[int], values: F32, target: LookupPlan | None = None, turned: Any = ()) -> Updated:
        self.step += 1
        ours = self.tier.add(as_keys(keys) if target is None else target, values, step=self.step)
        theirs = self.twin.change(list(keys), values, self.step, set(turned))
        assert (ours.rows, ours.absent, ours.unadmitted) == (theirs.rows, theirs.absent, theirs.unadmitted)
        return theirs

    def put(self, keys: Sequence[int], values: F32) -> tuple[LookupPlan, Lookup]:
        batch, done = self.tier.put(as_keys(keys), values), self.twin.put(keys, values)
        self._same_losses(batch, done)
        return batch, done

    def erase(self, keys: Sequence[int]) -> int:
        count = self.tier.erase(as_keys(keys))
        assert count == self.twin.erase(keys)
        return count

    def settle(self) -> int:
        """Sweep; then everything is as in the twin, whose rows left at once."""
        swept = self.tier.expire()
        assert self.twin.expire() == 0
        assert len(self.tier) == len(self.twin)
        self.check_counts(swept=True)
        self.take()
        assert Counter(self.listed) == Counter(self.twin.gone)
        assert self.tier.expire() == 0
        return swept

    def take(self) -> list[int]:
        taken = self.tier.take_evicted_keys()
        assert taken.complete
        keys = [int(key) for key in taken.keys]
        self.listed += keys
        assert not Counter(self.listed) - Counter(self.twin.gone)
        return keys

    # What must hold at any time

    def check(self, pool: Sequence[int]) -> None:
        assert self.tier.verify() == []
        self.find(pool)
        rows = [self.twin.row(key) for key in pool]
        assert self.tier.versions(as_keys(pool)).tolist() == [0 if row is None else row.version for row in rows]
        assert len(self.twin) <= len(self.tier) <= len(self.twin) + self.twin.counts.expired
        if self.table.capacity_rows is not None:
            assert len(self.tier) <= self.table.capacity_rows
        self.check_order()
        self.check_export()
        self.check_counts(swept=self.table.expiry is None)

    def check_order(self) -> None:
        if self.table.policy not in ("lru", "lfu"):
            return
        for partition in range(self.tier.partitions):
            ours = [int(key) for key in self.tier.eviction_order(partition)]
            living = self.twin.order(partition)
            assert [key for key in ours if self.twin.row(key) is not None] == living
            if self.table.policy == "lru":
                assert ours[len(ours) - len(living) :] == living  # the expired go first

    def check_export(self) -> None:
        found: dict[int, LifeRow] = {}
        for chunk in self.tier.export(rows=3):
            found |= dict(self._as_rows(chunk))
        assert set(found) == self.twin.keys()
        for key, row in found.items():
            self._same_row(key, row, self.twin.row(key))

    def check_counts(self, *, swept: bool) -> None:
        stats, counts = self.tier.stats(), self.twin.counts
        assert (stats.rows, stats.created, stats.erased) == (len(self.tier), counts.created, counts.erased)
        assert (stats.absent, stats.unadmitted) == (counts.absent, counts.unadmitted)
        assert stats.turned_away in (counts.turned_away, counts.turned_away - counts.turned_away_ahead)
        assert stats.capacity_rows == (self.table.capacity_rows or 0)
        # An expired row that is the first to go may be counted as either.
        assert counts.evicted <= stats.evicted <= counts.evicted + counts.expired
        if swept:
            assert stats.evicted + stats.expired == counts.evicted + counts.expired
        if self.table.expiry is None:
            assert stats.expired == 0

    # Comparing rows

    def _same_losses(self, batch: LookupPlan, expected: Lookup) -> None:
        assert batch.turned_away == len(expected.turned_away)
        if not self.keep_evicted:
            assert batch.evicted is None
            return
        assert batch.evicted is not None
        found = self._as_rows(batch.evicted)
        for partition, rows in enumerate(expected.evicted):
            here = [(k, row) for k, row in found if partition_of(k, self.tier.partitions) == partition]
            if self.table.expiry is not None:  # what was expired already may fall out here, or be swept
                here = here[len(here) - len(rows) :]
            assert [key for key, _ in here] == [key for key, _ in rows]
            for (key, ours), (_, theirs) in zip(here, rows, strict=True):
                self._same_row(key, ours, theirs)

    def _as_rows(self, rows: Rows) -> list[tuple[int, LifeRow]]:
        assert rows.values.shape == (len(rows.keys), DIM)
        assert rows.state.shape == (len(rows.keys), 0)
        assert set(rows.fields) == set(self.tier.fields)
        columns = {name: column.tolist() for name, column in rows.fields.items()}
        nothing = [0] * len(rows.keys)
        seen, often = columns.get("last_seen", nothing), columns.get("frequency", nothing)
        return [
            (int(key), LifeRow(rows.values[i], seen[i], often[i], columns["version"][i], columns["last_update"][i]))
            for i, key in enumerate(rows.keys)
        ]

    def _same_row(self, key: int, ours: LifeRow, theirs: LifeRow | None) -> None:
        assert theirs is not None, key
        np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-6)
        assert (ours.version, ours.last_update) == (theirs.version, theirs.last_update), key
        if "frequency" in self.tier.fields:
            assert ours.frequency == theirs.frequency, key
        if self.table.expiry is not None:  # elsewhere a stamp counts calls, and only its order means anything
            assert ours.last_seen == theirs.last_seen, key


def _stacked(rows: list[F32]) -> F32:
    return np.array(rows, np.float32).reshape(len(rows), DIM)


def order(pair: Pair) -> list[int]:
    """The keys of the first partition, the first to go first."""
    return [int(key) for key in pair.tier.eviction_order(0)]
