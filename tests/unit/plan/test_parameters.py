"""The plan of a model by its number of parameters is the product of its lines."""

from pathlib import Path

import pytest

import hotrow as hr
from hotrow.errors import ConfigError
from hotrow.plan.hosts import HostCluster
from hotrow.plan.parameters import parse_count, plan_parameters
from hotrow.plan.row_bytes import RowLayout, bytes_per_row
from hotrow.store.tier_plan import plan_tiers

TABLE = hr.Table(dim=128)


@pytest.mark.parametrize(
    ("text", "number"),
    [("100T", 10**14), ("6.25t", 6_250_000_000_000), ("12M", 12 * 10**6), ("7", 7), ("2B", 2 * 10**9)],
)
def test_numbers_are_read_with_their_unit(text: str, number: int) -> None:
    assert parse_count(text) == number


@pytest.mark.parametrize("text", ["", "0", "many", "-3T", "100X", "1e9"])
def test_what_is_no_number_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(ConfigError, match="as 100T"):
        parse_count(text)


def test_the_largest_model_of_the_paper() -> None:
    found = plan_parameters(100 * 10**12, TABLE)
    layout = RowLayout.of(TABLE)
    assert found.rows == 781_250_000_000
    assert layout.ram_bytes == 8 + 2 * 4 + 512 + 512
    assert found.ram_only_bytes == round(found.rows * bytes_per_row(layout))
    assert found.ram_only_hosts == 86, "819.6 TB on hosts with 9.6 TB for tables"
    assert found.tiered_disk_bytes == 2 * found.rows * 1056, "with room for copies of rows in RAM and superseded ones"
    rows_and_index = found.rows / 10 * bytes_per_row(layout) + 16 * 2 * found.rows
    assert 0 < found.tiered_ram_bytes - rows_and_index < 364 * (65 << 20), "and a write buffer for each shard"
    assert found.tiered_hosts == 55, "1,650 TB on hosts with 30 TB of disk"
    lines = {each.name: each.value for each in found.lines}
    assert (lines["shards at least, RAM alone"], lines["shards at least, RAM and disk"]) == ("16", "364")
    assert any("PERSIA's own test used 30 hosts" in each for each in found.assumptions)
    smallest = found.variants[-1]
    assert (smallest.type, smallest.optimizer) == ("float16", "sgd")
    assert 200e12 < smallest.ram_bytes < 230e12, "the paper: at least 200 TB in fp16"


@pytest.mark.parametrize(("rows", "shards"), [(2**31 - 1, "1"), (2**31, "2")])
def test_a_file_has_fewer_than_four_gibi_slots_two_for_each_row(rows: int, shards: str) -> None:
    found = plan_parameters(rows * 128, TABLE)
    assert found.rows == rows
    assert [each.value for each in found.lines if each.name == "shards at least, RAM and disk"] == [shards]


def test_given_hosts_replace_those_of_the_paper_and_are_no_assumption() -> None:
    given = HostCluster(ram="1TB", disk="100TB", disk_read="20GB", network_gbps=400)
    found = plan_parameters(10**12, TABLE, given)
    assert found.ram_only_hosts == -(-found.ram_only_bytes // (8 * 10**11))
    assert not any(each.startswith(("ram", "disk", "network")) for each in found.assumptions)


def test_less_than_a_row_is_refused() -> None:
    assert plan_parameters(128, TABLE).rows == 1
    with pytest.raises(ConfigError, match="is less than one row"):
        plan_parameters(127, TABLE)


def test_the_index_is_where_a_table_with_that_memory_has_it(tmp_path: Path) -> None:
    for dim, place, memory in ((128, "memory", 16), (4, "disk", 3)):
        table = hr.Table(dim=dim, optimizer=hr.SGD())
        found = plan_parameters(10**9 * dim, table)
        line = next(line for line in found.lines if line.name == "RAM of the two tiers")
        assert f"{memory} bytes of index x 2,000,000,000 slots of files" in line.how
        given = {"capacity": f"{found.tiered_ram_bytes}B", "disk": f"{found.tiered_disk_bytes}B", "path": tmp_path}
        taken = plan_tiers(table.model_copy(update=given))
        hot = 10**8 * bytes_per_row(RowLayout.of(table))
        assert taken.index == place
        assert hot <= (taken.in_memory.capacity_bytes or 0) < 1.001 * hot + 1000
        less = table.model_copy(update=given | {"capacity": f"{found.tiered_ram_bytes * 999 // 1000}B"})
        assert (plan_tiers(less).in_memory.capacity_bytes or 0) < hot
