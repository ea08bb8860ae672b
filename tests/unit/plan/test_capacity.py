"""A plan's tiers, faults and bounds, from both sides. Pure: the sample is made up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hotrow as hr
from hotrow.errors import ConfigError
from hotrow.plan.capacity import RAM_SHARE, CapacityPlan, RunShape, plan_capacity
from hotrow.plan.growth import FeatureGrowth
from hotrow.plan.hosts import KnownHosts
from hotrow.plan.measuring import capacity_rows_of
from hotrow.plan.row_bytes import RowLayout, table_bytes
from hotrow.plan.sample import DataSample, TableSample
from hotrow.plan.tables import PlannedTable
from hotrow.store.shards import share_of
from hotrow.store.tiered import TieredTier

ROWS = 1_000_000  # distinct ids, all counted
EVEN = tuple((part + 1) / 64 for part in range(64))  # every id is as frequent as the others
SAMPLE = DataSample(
    10**7, True, 1000, {"default": TableSample({"user": FeatureGrowth(10**7, ROWS, 0.0)}, ROWS, 1.0, 1.0, 900.0, EVEN)}
)
HOSTS = KnownHosts(4, 64 << 30, 10**12, 2 * 10**9, 32, 0, 1.25e9)
SHAPE = RunShape(4, 4, 1000, 4000, 10**6, True)
LAYOUT = RowLayout.of(hr.Table(dim=16))
TABLE = PlannedTable("default", 16, LAYOUT)


def plan(table: PlannedTable = TABLE, hosts: KnownHosts = HOSTS, **shape: Any) -> CapacityPlan:
    return plan_capacity([table], SAMPLE, SAMPLE.rows, replace(SHAPE, **shape), hosts, 10_000.0)


def test_a_table_without_a_capacity_is_in_ram() -> None:
    found = plan()
    (table,) = found.tables
    assert (table.ram_rows, table.disk_rows, table.lost_rows) == (ROWS, 0, 0)
    assert found.ram_bytes == 4 * table_bytes(LAYOUT, ROWS / 4)
    assert found.disk_bytes == 0
    assert found.faults == ()


def test_rows_beyond_the_capacity_are_on_disk_with_an_index_in_ram() -> None:
    (table,) = plan(replace(TABLE, capacity_rows=250_000, disk_bytes=10**12)).tables
    assert (table.ram_rows, table.disk_rows, table.lost_rows) == (250_000, 750_000, 0)
    assert table.file_rows == ROWS, "rows in RAM keep copies on disk"
    assert table.disk_bytes == 2 * ROWS * LAYOUT.disk_bytes
    assert table.ram_bytes == 4 * table_bytes(LAYOUT, 62_500) + 16 * ROWS
    assert table.missed_per_batch == pytest.approx(675), "three quarters of 900 equally frequent ids"
    assert table.disk_read_bytes == pytest.approx(675 * 4096), "a direct read has a page at least"


@pytest.mark.parametrize(("slots", "fits"), [(1_111_112, True), (1_111_110, False)])
def test_a_file_that_runs_full_ends_the_run_and_the_plan_says_so(slots: int, fits: bool) -> None:
    found = plan(replace(TABLE, capacity_rows=250_000, disk_bytes=slots * LAYOUT.disk_bytes))
    assert found.tables[0].lost_rows == 0, "nothing is evicted for good"
    if fits:
        assert found.faults == ()
        return
    assert found.faults == (
        "table 'default': 1,000,000 rows, copies of those in RAM included, do not fit in its disk of 177.8 MB, which "
        "holds 999,999: the run ends when the file is full; give it 320.0 MB",
    )


def test_a_table_whose_ids_fit_in_ram_needs_no_disk() -> None:
    found = plan(replace(TABLE, capacity_rows=ROWS, disk_bytes=1000))
    assert (found.tables[0].file_rows, found.disk_bytes, found.faults) == (0, 0, ())


@pytest.mark.parametrize("shards", [1, 2])
def test_rows_in_ram_are_those_that_the_store_keeps_beside_the_index_of_its_file(shards: int, tmp_path: Path) -> None:
    table = hr.Table(dim=16, capacity="40MB", disk="200MB", path=tmp_path)
    parts = [share_of(table, number, shards) for number in range(shards)]
    tiers = [TieredTier(part.model_copy(update={"name": f"part{number}"})) for number, part in enumerate(parts)]
    assert capacity_rows_of(table, shards) == sum(tier.ram_rows_max for tier in tiers)
    for tier in tiers:
        tier.close()
    in_ram_alone = capacity_rows_of(hr.Table(dim=16, capacity="40MB"), shards)
    assert (capacity_rows_of(table, shards) or 0) < 0.7 * (in_ram_alone or 0)


def test_a_capacity_without_a_disk_evicts_for_good_and_says_so() -> None:
    found = plan(replace(TABLE, capacity_rows=250_000))
    assert found.faults == (
        "75 % of the ids of table 'default' find no room in its capacity: rows are evicted for good; give it more, "
        "or a disk",
    )


@pytest.mark.parametrize(("more", "fits"), [(1.001, True), (0.999, False)])
def test_ram_fits_up_to_the_share_of_tables(more: float, fits: bool) -> None:
    need = plan().ram_bytes / 4 / RAM_SHARE
    found = plan(hosts=replace(HOSTS, ram_bytes=int(need * more)))
    assert (found.faults == ()) is fits
    if not fits:
        assert "5 such hosts hold it" in found.faults[0]


@pytest.mark.parametrize(("cores", "fits"), [(2, True), (1, False)])
def test_every_role_needs_a_core(cores: int, fits: bool) -> None:
    assert (plan(hosts=replace(HOSTS, cores=cores)).faults == ()) is fits


def test_one_process_uses_one_host_and_no_network() -> None:
    found = plan(several_hosts=False, trainers=1, shards=1, local_batch=4000)
    assert found.used_hosts == 1
    assert (found.seconds.rows, found.seconds.dense) == (0, 0)


def test_seconds_of_a_batch_come_from_the_rates_of_a_host() -> None:
    found = plan(replace(TABLE, capacity_rows=250_000, disk_bytes=10**12))
    row_bytes = 900 * (8 + 64 + 72)
    assert found.traffic.rows == row_bytes
    assert found.seconds.rows == pytest.approx(row_bytes * 3 / 4 / 1.25e9), "a quarter stays on its host"
    assert found.seconds.disk == pytest.approx(675 * 4096 / 2e9)
    assert found.seconds.compute == pytest.approx(0.1)
    assert found.step_bytes == pytest.approx(4 * (row_bytes + 2 * 6e6))


def test_admission_and_expiry_make_an_upper_bound() -> None:
    table = hr.Table(dim=16, admission=hr.AtLeast(count=3), expiry=1000)
    found = plan(PlannedTable.of(table, None, "fp32"))
    assert any("admission and expiry can only make it smaller" in each for each in found.assumptions)


def test_a_tiered_table_is_read_from_its_settings() -> None:
    table = hr.Table(dim=16, capacity="8GB", disk="200GB", path="rows")
    assert PlannedTable.of(table, 10, "fp32").disk_bytes == 200 * 10**9
    found = PlannedTable.of(table, 10, "fp32")
    assert (found.index, found.index_cache_bytes) == ("disk", 64 << 20), "16 bytes a row would be 20 GB"


def test_a_table_without_ids_in_the_sample_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tables\.other: no feature of the sample has ids for this table"):
        plan(replace(TABLE, name="other"))
