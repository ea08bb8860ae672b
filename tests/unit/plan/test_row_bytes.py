"""Bytes of rows are those of the store: exactly for a row, within 10 % for all memory that a table uses."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hotrow as hr
from hotrow.errors import ConfigError
from hotrow.plan.row_bytes import AHEAD_BYTES, FILE_SLOTS_MOST, RowLayout, bytes_per_row, table_bytes
from hotrow.plan.tables import PlannedTable
from hotrow.store import RamTier
from hotrow.store.tier_plan import slot_bytes
from hotrow.store.tiered import TieredTier

KINDS: dict[str, dict[str, Any]] = {
    "adagrad": {},
    "sgd": {"optimizer": hr.SGD(lr=0.1)},
    "row-wise, odd dim": {"optimizer": hr.RowwiseAdagrad(), "dim": 13},
    "adam": {"optimizer": hr.Adam()},
    "adam, global": {"optimizer": hr.Adam(correction="global")},
    "ftrl": {"optimizer": hr.FTRL()},
    "swap": {"optimizer": hr.Adagrad(swap=hr.Swap(period=1000, decay=0.5))},
    "16 bits": {"type": "float16"},
    "lru": {"capacity": 1_000_000},
    "lfu": {"capacity": 1_000_000, "eviction": "lfu"},
    "refuse": {"capacity": 1_000_000, "eviction": "refuse"},
    "expiry": {"expiry": 10_000_000},
    "clock": {"clock": True, "last_seen": True},
    "wide": {"dim": 128},
}


def filled(table: hr.Table, rows: int) -> RamTier:
    tier = RamTier(table)
    tier.find_or_init(np.random.default_rng(1).permutation(10 * rows)[:rows].astype(np.int64))
    return tier


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_row_has_the_bytes_of_the_store(kind: dict[str, Any]) -> None:
    table = hr.Table(**{"dim": 16, **kind})
    stats = filled(table, 1000).stats()
    assert RowLayout.of(table).ram_bytes * stats.rows == stats.slab_bytes
    layout = RowLayout.of(table)
    assert (layout.value_bytes * stats.rows, layout.state_bytes * stats.rows) == (stats.value_bytes, stats.state_bytes)


@pytest.mark.parametrize("rows", [500, 5_000, 60_000, 300_000])
@pytest.mark.parametrize("dim", [4, 32])
def test_memory_in_use_is_within_a_tenth_and_little_more_is_allocated(rows: int, dim: int) -> None:
    table = hr.Table(dim=dim)
    stats = filled(table, rows).stats()
    found = table_bytes(RowLayout.of(table), rows)
    assert found == pytest.approx(stats.slab_bytes + stats.index_bytes, rel=0.1)
    assert stats.bytes <= 1.1 * found + AHEAD_BYTES


def test_a_large_table_takes_a_row_and_its_share_of_the_index() -> None:
    layout = RowLayout.of(hr.Table(dim=16))
    assert table_bytes(layout, 10**9) / 10**9 == pytest.approx(bytes_per_row(layout), rel=0.02)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_slot_on_disk_has_the_bytes_of_the_store(kind: dict[str, Any]) -> None:
    table = hr.Table(**{"dim": 16, "capacity": 1_000_000, **kind})
    assert RowLayout.of(table).disk_bytes == slot_bytes(table)


def test_the_limits_of_a_file_are_those_of_the_store(tmp_path: Path) -> None:
    table = hr.Table(dim=16, capacity=1000, disk="64MB", path=tmp_path)
    with closing(TieredTier(table)) as tier:
        planned = PlannedTable.of(table, 1000, "fp32").file_rows_most
        assert 0.8 * planned < tier.disk.room <= planned, "extents that are kept for compaction are not planned"
    too_many = hr.Table(dim=16, capacity=1000, disk=f"{FILE_SLOTS_MOST * 160 * 1.01:.0f}B", path=tmp_path)
    with pytest.raises(ConfigError, match=r"2\^32 rows in a file"):
        TieredTier(too_many)


def test_a_slot_on_disk_has_a_header_the_fields_value_and_state_and_no_links() -> None:
    assert RowLayout.of(hr.Table(dim=16)).disk_bytes == 160, "20 + 4 * 2 + 128 = 156, rounded up to 8"
    evicting = RowLayout.of(hr.Table(dim=16, capacity=10))  # last_seen, and two links of the order in RAM
    assert evicting.disk_bytes == 160, "20 + 4 * 3 + 128"
    assert evicting.ram_bytes == 160, "8 + 4 * 5 + 128 = 156, rounded up to 8"
