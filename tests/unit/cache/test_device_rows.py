"""Cached rows on a device are those in native memory: values, states, clocks, changes and evictions after random calls.

On a GPU where there is one, else on CPU tensors.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

pytest.importorskip("triton", reason="Triton is not installed: pip install 'hotrow[gpu]'")

import hotrow as hr
from hotrow.cache.device_rows import DeviceRows
from hotrow.cache.rows import AWAITED, CachedRows, Placed
from hotrow.errors import ConfigError
from hotrow.store import LookupPlan, Rows
from hotrow.store.arrays import Floats

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DIM, IDS, PERIOD = 3, 12, 10
SWAP = hr.Swap(period=PERIOD, decay=0.5)
OPTIMIZERS = {
    "sgd": hr.SGD(lr=0.5, decay=0.1),
    "adagrad": hr.Adagrad(lr=0.5, initial=0.5, l2=0.1, clip=2.0, decay=0.1),
    "adagrad, eps inside": hr.Adagrad(lr=0.5, eps=0.01, eps_inside=True),
    "rowwise": hr.RowwiseAdagrad(lr=0.5, eps=0.1),
    "adagrad with swap": hr.Adagrad(lr=0.5, swap=SWAP),
    "rowwise with swap": hr.RowwiseAdagrad(lr=0.5, swap=SWAP),
}

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes idle lanes


def close(here: NDArray[Any], there: NDArray[Any]) -> None:
    np.testing.assert_allclose(here, there, rtol=2e-6, atol=2e-6)


@dataclass
class Twins:
    """The same calls of rows on the device and of rows in native memory."""

    optimizer: str
    capacity: int
    policy: str = "lru"
    staleness: int = 2
    workers: int = 1
    threads: int = 1
    samples: int = 0
    in_use: list[tuple[LookupPlan, LookupPlan]] = field(default_factory=list)
    awaited: list[tuple[LookupPlan, LookupPlan, Placed]] = field(default_factory=list)

    def __post_init__(self) -> None:
        cache = hr.Cache(
            capacity=self.capacity, policy=self.policy, staleness=self.staleness, workers=self.workers, hot=2
        )
        table = hr.Table(dim=DIM, optimizer=OPTIMIZERS[self.optimizer], clock=True, capacity=self.capacity)
        self.here = DeviceRows(table, cache, self.threads, DEVICE)
        self.there = CachedRows(table, cache, self.threads)

    def place(self, keys: NDArray[np.uint64]) -> None:
        plans = self.here.plan_distinct(keys), self.there.plan_distinct(keys)
        pinned = [[plan[side] for plan in self.in_use] for side in (0, 1)]
        found = self.here.place(plans[0], pinned=pinned[0])
        expected = self.there.place(plans[1], pinned=pinned[1])
        for name in ("checked", "clocks", "fetched", "uniques", "absent", "awaited", "beyond"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
        self.check_changes(found.changes, expected.changes)
        self.in_use.append(plans)
        self.awaited.append((*plans, expected))

    def fill(self, number: int, seed: int) -> None:
        """A reply to one of the requests; some checked rows are not valid."""
        here, there, found = self.awaited.pop(number)
        chance = np.random.default_rng(seed)
        invalid = np.flatnonzero(chance.random(len(found.checked)) < 0.4)
        keys = np.concatenate([found.checked[invalid], found.fetched])
        uniques = np.concatenate([found.uniques[invalid], found.uniques[len(found.checked) :]])
        values = chance.standard_normal((len(keys), DIM)).astype(np.float32)
        state = chance.random((len(keys), self.there.state_dim)).astype(np.float32)
        fields = {"clock": chance.integers(0, 50, len(keys)).astype(np.uint32)}
        if "period" in self.there.fields:
            latest = self.samples // PERIOD
            fields["period"] = chance.integers(max(latest - 2, 0), latest + 2, len(keys)).astype(np.uint32)
        for tier, plan in ((self.here, here), (self.there, there)):
            tier.fill(plan, uniques, Rows(keys, values, state, fields))

    def update(self, number: int, seed: int, gap: int) -> None:
        plans, chance = self.in_use.pop(number), np.random.default_rng(seed)
        self.samples += gap
        weights = chance.choice(np.array([0, 1, 0.5], np.float32), len(plans[0]))
        if chance.random() < 0.5:
            weights[:] = 0.5
        gradients = chance.standard_normal((len(weights), DIM)).astype(np.float32)
        gradients[chance.random(len(weights)) < 0.1, 0] = chance.choice([np.nan, np.inf, 1e30])
        given = torch.tensor(gradients, device=DEVICE)
        scale = float(chance.choice([1.0, 0.5]))
        applied = self.here.update(plans[0], given, weights, samples=self.samples, lr_scale=scale)
        assert applied == self.there.update(plans[1], gradients, weights, samples=self.samples, lr_scale=scale)

    def erase(self, keys: NDArray[np.uint64]) -> None:
        assert self.here.erase(keys) == self.there.erase(keys)

    def flush(self) -> None:
        chunks = [np.sort(np.concatenate([np.empty(0, np.uint64), *tier.changed_keys()])) for tier in self.both]
        np.testing.assert_array_equal(chunks[0], chunks[1])
        self.check_changes(*(tier.take_changes(chunks[0]) for tier in self.both))
        assert self.here.changed_rows == 0

    @property
    def both(self) -> tuple[DeviceRows, CachedRows]:
        return self.here, self.there

    def check_changes(self, found: Any, expected: Any) -> None:
        for name in ("keys", "clocks", "updates", "periods"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
        close(found.values, expected.values)
        close(found.state, expected.state)

    def check(self) -> None:
        assert (len(self.here), self.here.changed_rows) == (len(self.there), self.there.changed_rows)
        for partition in range(self.there.partitions):
            order = (tier.eviction_order(partition).tolist() for tier in (self.here.index, self.there))
            assert next(order) == next(order)
        assert not self.here.index.verify()
        found, expected = (by_key(tier) for tier in self.both)
        assert found.keys() == expected.keys()
        for key, (value, state, numbers) in expected.items():
            assert found[key][2]["clock"] == numbers["clock"]
            if numbers["clock"] != AWAITED:
                assert found[key][2] == numbers
                close(found[key][0], value)
                close(found[key][1], state)
        keys = np.arange(IDS, dtype=np.uint64)
        rows = self.here.values(self.here.plan_distinct(keys), 0.25)
        close(rows.cpu().numpy(), self.there.values(self.there.plan_distinct(keys), 0.25))


def by_key(tier: DeviceRows | CachedRows) -> dict[int, tuple[Floats, Floats, dict[str, int]]]:
    names = [name for name in ("clock", "version", "period", "frequency") if name in tier.fields]
    return {
        int(key): (chunk.values[at], chunk.state[at], {name: int(chunk.fields[name][at]) for name in names})
        for chunk in tier.export()
        for at, key in enumerate(chunk.keys)
    }


def keys_of(chance: np.random.Generator) -> NDArray[np.uint64]:
    return chance.permutation(IDS)[: chance.integers(1, 7)].astype(np.uint64)


def run(twins: Twins, seed: int, calls: int) -> None:
    """Batches are placed, filled in the order of their requests, and updated in any order."""
    chance = np.random.default_rng(seed)
    for call in range(calls):
        choice = chance.random()
        if choice < 0.4 and len(twins.in_use) < 4:
            twins.place(keys_of(chance))
        elif choice < 0.6 and twins.awaited:
            twins.fill(0, seed + call)
        elif choice < 0.9 and twins.in_use:
            twins.update(int(chance.integers(len(twins.in_use))), seed + call, int(chance.integers(0, 13)))
        elif choice < 0.95:
            twins.flush()
        else:
            twins.erase(keys_of(chance)[:2])
    twins.check()


@pytest.mark.parametrize("policy", ["lru", "lfu", "light_lfu", "ahead"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_on_a_device_are_those_in_native_memory(optimizer: str, policy: str) -> None:
    for seed in range(6):
        chance = np.random.default_rng(seed)
        staleness, workers = int(chance.choice([0, 1, 4])), int(chance.integers(1, 4))
        run(Twins(optimizer, int(chance.integers(1, 10)), policy, staleness, workers), seed, calls=30)


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad with swap"])
def test_a_long_run_that_erases_and_evicts_keeps_every_row_at_a_slot_of_its_own(optimizer: str) -> None:
    twins = Twins(optimizer, capacity=5, workers=2)
    run(twins, seed=1, calls=400)
    assert twins.here.columns.rows < 5 + 4 * 7 + 7, "slots are used again"


def test_many_rows_in_several_partitions_have_slots_of_their_own() -> None:
    count = 4096
    cache = hr.Cache(capacity=count)
    table = hr.Table(dim=DIM, optimizer=OPTIMIZERS["sgd"], clock=True, capacity=count)
    tier = DeviceRows(table, cache, 2, DEVICE)
    assert tier.index.partitions == 4
    keys = np.random.default_rng(3).permutation(count).astype(np.uint64)
    plan = tier.plan_distinct(keys)
    found = tier.place(plan)
    values = np.random.default_rng(4).standard_normal((count, DIM)).astype(np.float32)
    tier.fill(
        plan, found.uniques, Rows(keys, values, np.empty((count, 0), np.float32), {"clock": np.ones(count, np.uint32)})
    )
    assert len(set(tier.index.slots(plan).slots.tolist())) == count
    np.testing.assert_array_equal(tier.values(plan, 0.0).cpu().numpy(), values)
    assert tier.columns.rows < 1.2 * count


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_capacity_in_bytes_counts_everything_on_the_device(optimizer: str) -> None:
    table = hr.Table(dim=DIM, optimizer=OPTIMIZERS[optimizer], clock=True, capacity="10KB")
    columns = DeviceRows(table, hr.Cache(capacity="10KB"), 1, DEVICE).columns
    assert 10_000 - columns.bytes // columns.rows < columns.bytes <= 10_000
    assert columns.rows == 10_000 // (columns.bytes // columns.rows)
    with pytest.raises(ConfigError, match=r"Cache\.capacity='20B': not one row of \d+ bytes: give more"):
        DeviceRows(table.model_copy(update={"capacity": "20B"}), hr.Cache(capacity="20B"), 1, DEVICE)


def test_only_missing_rows_and_changes_travel() -> None:
    twins = Twins("adagrad", capacity=8, staleness=100)
    keys = np.arange(8, dtype=np.uint64)
    twins.place(keys)
    twins.fill(0, seed=1)
    copies, plan = twins.here.columns.copies, twins.in_use[0][0]
    up, down = copies.bytes_up, copies.bytes_down
    twins.here.values(plan, 0.0)
    assert (copies.bytes_up - up, copies.bytes_down - down) == (8 * 8, 0)  # slots
    twins.update(0, seed=1, gap=1)
    assert copies.bytes_down - down == 8  # whether each row was updated
    twins.place(keys)
    assert copies.bytes_down - down == 8
    twins.flush()
    changed = 8 * 2 * DIM * 4
    assert copies.bytes_down - down <= 8 + changed
