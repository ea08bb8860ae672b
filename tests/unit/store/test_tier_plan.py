"""How a table with a disk divides a capacity that is small beside what rows in shared memory need."""

import re
from contextlib import closing
from pathlib import Path

import pytest

import hotrow as hr
from hotrow.errors import ConfigError
from hotrow.sizes import parse_bytes
from hotrow.store.tier_plan import plan_tiers
from hotrow.store.tiered import TieredTier


@pytest.mark.parametrize(("disk_index", "disk"), [("auto", "100MB"), ("auto", "4GB"), ("memory", "100MB")])
@pytest.mark.parametrize("capacity", ["50KB", "4MB", "20MB"])
def test_in_shared_memory_the_capacity_that_a_refusal_names_is_enough_for_rows_too(
    capacity: str, disk_index: str, disk: str, tmp_path: Path
) -> None:
    def of(capacity: str) -> hr.Table:
        segment = hr.Segment(run="refused", directory=tmp_path)
        return hr.Table(dim=16, capacity=capacity, disk=disk, path=tmp_path, disk_index=disk_index, segment=segment)

    with pytest.raises(ConfigError, match=f"capacity='{capacity}'") as refused:
        plan_tiers(of(capacity))
    named = re.search(r"raise capacity to ([0-9.]+ [A-Z]+)", str(refused.value))
    assert named is not None
    with closing(TieredTier(of(named[1]))) as tier:
        assert tier.ram_rows_max > 0
    with pytest.raises(ConfigError, match="raise capacity to"):
        plan_tiers(of(f"{parse_bytes(named[1]) * 97 // 100}B"))


def test_the_index_goes_to_disk_where_rows_in_shared_memory_need_its_room(tmp_path: Path) -> None:
    table = hr.Table(dim=16, capacity="32MB", disk="100MB", path=tmp_path)
    assert plan_tiers(table).index == "memory"
    assert plan_tiers(table.model_copy(update={"segment": hr.Segment(run="r", directory=tmp_path)})).index == "disk"
