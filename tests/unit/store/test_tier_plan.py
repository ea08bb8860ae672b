"""How a table with a disk divides its memory, also one that is small beside what rows in shared memory need."""

import re
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import hotrow as hr
from hotrow.errors import ConfigError, InputError
from hotrow.sizes import parse_bytes
from hotrow.store.tier_plan import plan_tiers, slot_bytes
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


@pytest.mark.parametrize(
    ("rows", "buffer"),
    [
        (64, 4 << 20),
        (183_500, 4 << 20),  # seven times this in rows of 160 bytes, less a part of a row
        (183_501, 183_501 * 160 // 7),
        (1_000_000, 160_000_000 // 7),
        (2_936_012, 2_936_012 * 160 // 7),
        (2_936_013, 64 << 20),
        (100_000_000, 64 << 20),
    ],
)
def test_beside_a_capacity_in_rows_the_write_buffer_has_a_seventh_of_their_bytes(
    rows: int, buffer: int, tmp_path: Path
) -> None:
    assert slot_bytes(table := hr.Table(dim=16, capacity=rows, disk="10GB", path=tmp_path)) == 160
    assert plan_tiers(table).write_behind_bytes == buffer


def test_the_write_buffer_is_the_same_share_of_a_capacity_in_bytes(tmp_path: Path) -> None:
    in_rows = hr.Table(dim=16, capacity=1_000_000, disk="10MB", path=tmp_path)
    beside = plan_tiers(in_rows).write_behind_bytes
    in_bytes = in_rows.model_copy(update={"capacity": f"{160_000_000 + beside}B"})
    assert plan_tiers(in_bytes).write_behind_bytes == beside


def test_a_disk_that_is_too_small_for_a_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Table.disk='65535B': is less than 65,536 bytes, the least size of a file"):
        plan_tiers(hr.Table(dim=1, capacity=64, disk="65535B", path=tmp_path))
    assert plan_tiers(hr.Table(dim=1, capacity=64, disk="65536B", path=tmp_path)).disk_rows > 0


def test_batches_that_find_no_room_are_told_what_takes_the_capacity(tmp_path: Path) -> None:
    table = hr.Table(dim=16, capacity="7MB", disk="200MB", path=tmp_path)
    with closing(TieredTier(table)) as tier, pytest.raises(InputError) as refused:
        tier.find_or_init(np.arange(10_000))
    assert "raise capacity, give less than disk='200MB', whose index takes 3.8 MB of it" in str(refused.value)
