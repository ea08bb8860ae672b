"""A capacity in bytes holds: every byte the table takes is counted, whatever comes."""

from typing import Any

import numpy as np
import pytest

from hotrow import SGD, Adagrad, AtLeast, ConfigError, Table
from hotrow.store import RamTier


@pytest.mark.parametrize("eviction", ["lru", "lfu", "refuse"])
@pytest.mark.parametrize(
    ("capacity", "dim", "settings"),
    [
        ("100KB", 1, {}),
        ("1MB", 4, {}),
        ("3MiB", 16, {"type": "bfloat16"}),
        ("20MB", 16, {}),
        ("20MB", 1, {"optimizer": SGD()}),
        ("12MB", 200, {"admission": AtLeast(count=2, filter="1MB")}),
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
    assert len(tier) > 0.95 * tier.capacity_rows
    assert stats.bytes > 0.5 * size or size < 10**7  # what a small table takes at least is a large part of it
    assert (stats.evicted > 0) == (eviction != "refuse")
    assert (stats.turned_away > 0) == (eviction == "refuse" or table.admission is not None)
    assert tier.verify() == []


def test_capacities_too_small_are_told() -> None:
    with pytest.raises(ConfigError, match="capacity='10KB'"):
        RamTier(Table(dim=16, capacity="10KB"))
    with pytest.raises(ConfigError, match="capacity=7"):
        RamTier(Table(dim=16, capacity=7), partitions=8)
    assert RamTier(Table(dim=16, capacity=8), partitions=8).capacity_rows == 8
    assert RamTier(Table(dim=16, capacity=1, optimizer=Adagrad())).partitions == 1


def test_no_partition_holds_more_than_its_share() -> None:
    tier = RamTier(Table(dim=1, capacity=1003), partitions=4)
    tier.find_or_init(np.arange(20_000, dtype=np.uint64))
    assert [len(tier.eviction_order(p)) for p in range(4)] == [251, 251, 251, 250]
