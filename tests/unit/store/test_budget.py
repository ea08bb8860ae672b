"""A capacity holds: in rows over all partitions, and in bytes with everything that the table takes counted."""

from typing import Any

import numpy as np
import pytest

from hotrow import SGD, AtLeast, Chance, ConfigError, Table
from hotrow.store import RamTier
from oracles.life import partitions_for
from oracles.life_pair import Pair, as_keys, life_table


@pytest.mark.parametrize("eviction", ["lru", "lfu", "refuse"])
@pytest.mark.parametrize(
    ("capacity", "dim", "settings"),
    [
        ("100KB", 1, {}),
        ("1MB", 4, {}),
        ("3MiB", 16, {"type": "bfloat16"}),
        ("20MB", 16, {}),
        ("20MB", 1, {"optimizer": SGD()}),
        ("8MB", 257, {"expiry": 10**6}),
        ("12MB", 200, {"admission": AtLeast(count=2, filter="1MB")}),
        ("8MB", 3, {"admission": Chance(probability=0.9)}),
    ],
)
def test_a_table_never_takes_more_than_its_bytes_and_uses_most_of_them(
    capacity: str, dim: int, settings: dict[str, Any], eviction: str
) -> None:
    table = Table(dim=dim, capacity=capacity, eviction=eviction, **settings)
    size = table.capacity_bytes
    assert size is not None
    tier = RamTier(table, threads=2)
    generator = np.random.default_rng(3)
    fresh = 0
    while fresh < 3 * tier.capacity_rows or len(tier) < 0.96 * tier.capacity_rows:  # new keys, and old ones again
        keys = np.concatenate([np.arange(fresh, fresh + 20_000), generator.integers(0, fresh + 1, 5_000)])
        tier.find_or_init(keys.astype(np.uint64))
        fresh += 20_000
        assert tier.stats().bytes <= size
    stats = tier.stats()
    assert len(tier) <= tier.capacity_rows
    assert stats.admission_bytes <= (10**6 if table.admission is not None else 0)
    assert len(tier) > 0.95 * tier.capacity_rows
    assert stats.bytes > 0.5 * size or size < 10**7  # what a small table takes at least is a large part of it
    assert (stats.evicted > 0) == (eviction != "refuse")
    assert (stats.turned_away > 0) == (eviction == "refuse" or table.admission is not None)
    assert tier.verify() == []


@pytest.mark.parametrize("capacity", [1, 255, 256, 511, 512, 1023, 1024, 4096, 8191, 8192, 100_000])
def test_small_tables_have_fewer_partitions(capacity: int) -> None:
    tier = RamTier(life_table(capacity=capacity))
    assert tier.partitions == partitions_for(capacity)
    assert tier.stats().capacity_rows == capacity
    assert (tier.partitions == 1) == (capacity < 512)
    assert (tier.partitions == 32) == (capacity >= 8192)


@pytest.mark.parametrize("policy", ["lru", "lfu", "refuse"])
@pytest.mark.parametrize("capacity", [700, 1025])
def test_all_partitions_together_hold_the_capacity(capacity: int, policy: str) -> None:
    tier = RamTier(life_table(capacity=capacity, eviction=policy))
    for start in range(0, 8 * capacity, 500):
        tier.find_or_init(as_keys(range(start, start + 500)))
        assert len(tier) <= capacity
    assert len(tier) == capacity
    assert tier.verify() == []


@pytest.mark.parametrize(("capacity", "partitions"), [(3, 4), (1, 2)])
def test_each_partition_must_hold_a_row(capacity: int, partitions: int) -> None:
    with pytest.raises(ConfigError, match=rf"capacity={capacity}"):
        RamTier(life_table(capacity=capacity), partitions=partitions)
    pair = Pair(life_table(capacity=capacity + 1), partitions=partitions)
    pair.find_or_init(list(range(50)))
    pair.check(list(range(50)))
    assert len(pair.tier) == capacity + 1


@pytest.mark.parametrize("capacity", ["1B", "100B"])
def test_bytes_that_hold_no_row_are_told(capacity: str) -> None:
    with pytest.raises(ConfigError, match="capacity"):
        RamTier(life_table(capacity=capacity))


def test_no_partition_holds_more_than_its_share() -> None:
    tier = RamTier(Table(dim=1, capacity=1003), partitions=4)
    tier.find_or_init(np.arange(20_000, dtype=np.uint64))
    assert [len(tier.eviction_order(p)) for p in range(4)] == [251, 251, 251, 250]
