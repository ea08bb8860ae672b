"""Files that were cut off or damaged open: whole rows count, slots that are not whole are counted."""

import fcntl
import os
import random
import struct
import threading
from pathlib import Path

import pytest

from disk_rows import FIELDS, as_keys, contents, make_rows, open_tier
from hotrow import Table
from hotrow.errors import DiskError, LockedFileError

EXTENT, SLOT, HEAD, PAGE = 64 << 10, 864, 64, 4096
PAYLOAD = 860  # of a slot, behind it are zeros
SLOTS = (EXTENT - 2 * HEAD) // SLOT
ROWS = 4 * SLOTS  # four full extents


def made(path: Path) -> Path:
    """Keys 0 to ROWS - 1 in order, so that row i is slot i."""
    tier = open_tier(path)
    tier.write(make_rows(range(ROWS), 1))
    tier.close(remove=False)
    assert path.stat().st_size >= 5 * EXTENT
    return path


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def slot_at(number: int) -> int:
    return EXTENT * (1 + number // SLOTS) + HEAD + number % SLOTS * SLOT


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_bit_costs_one_row_at_most(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    path = made(tmp_path / "rows")
    number, byte = draw.randrange(ROWS), draw.randrange(SLOT)
    flip(path, slot_at(number) + byte, draw.randrange(8))
    tier = open_tier(path)
    assert tier.opened is not None
    assert (tier.opened.rows, tier.opened.torn) == (ROWS - 1, 1)
    assert contents(tier) == dict.fromkeys(set(range(ROWS)) - {number}, 1)
    tier.close(remove=True)


REGIONS = {
    "file header": 8,
    "file header, layout": 50,
    "copy of the file header": PAGE + 8,
    "behind the file header": 3 * PAGE,
    "extent header": EXTENT + 8,
    "extent header, order": 2 * EXTENT + 17,
    "copy of an extent header": 2 * EXTENT - 60,
    "gap before the copy": 2 * EXTENT - HEAD - 1,
}


@pytest.mark.parametrize("region", REGIONS)
def test_a_flipped_bit_outside_of_slots_costs_nothing(region: str, tmp_path: Path) -> None:
    path = made(tmp_path / "rows")
    flip(path, REGIONS[region], 3)
    tier = open_tier(path)
    assert tier.opened is not None
    assert (tier.opened.rows, tier.opened.torn) == (ROWS, 0)
    tier.close(remove=True)


def test_without_both_headers_an_extent_is_lost_and_counted(tmp_path: Path) -> None:
    path = made(tmp_path / "rows")
    flip(path, EXTENT + 8)
    flip(path, 2 * EXTENT - 60)
    tier = open_tier(path)
    assert tier.opened is not None
    assert (tier.opened.rows, tier.opened.torn) == (ROWS - SLOTS, SLOTS)
    tier.write(make_rows(range(ROWS), 2))
    assert contents(tier) == dict.fromkeys(range(ROWS), 2)
    tier.close(remove=True)


CUTS = [0, 10, 39, 100, PAGE, 2 * PAGE, EXTENT, EXTENT + 30, EXTENT + 500, 2 * EXTENT - 1, 2 * EXTENT]
CUTS += [slot_at(SLOTS + 7), slot_at(SLOTS + 7) + 20, 3 * EXTENT + PAGE]
CUTS += [slot_at(ROWS - 1) + PAYLOAD - 1, slot_at(ROWS - 1) + PAYLOAD]


@pytest.mark.parametrize("size", CUTS)
def test_a_truncated_file_has_the_rows_before_its_end(size: int, tmp_path: Path) -> None:
    path = made(tmp_path / "rows")
    path.write_bytes(path.read_bytes()[:size])
    tier = open_tier(path)
    whole = {number for number in range(ROWS) if slot_at(number) + PAYLOAD <= size}
    assert contents(tier) == dict.fromkeys(whole, 1)
    tier.write(make_rows(range(50), 2))
    assert tier.read(as_keys(range(50)))[1].all()
    tier.close(remove=True)


def test_of_two_copies_the_newer_counts_and_where_it_is_damaged_the_older(tmp_path: Path) -> None:
    path = made(tmp_path / "rows")
    tier = open_tier(path)
    tier.write(make_rows([5], 2))
    tier.flush()
    tier.close(remove=False)
    data = path.read_bytes()
    at = data.find(struct.pack("<Q", 5), 5 * EXTENT + HEAD)
    (tmp_path / "copy").write_bytes(data)  # an open tier compacts: the row would have moved
    tier = open_tier(tmp_path / "copy")
    assert contents(tier)[5] == 2
    tier.close(remove=True)
    flip(path, at + 100)
    tier = open_tier(path)
    assert contents(tier)[5] == 1
    tier.close(remove=True)


def test_a_row_that_is_damaged_under_an_open_tier_is_refused_by_name(tmp_path: Path) -> None:
    path = made(tmp_path / "rows")
    tier = open_tier(path, direct=False)
    with path.open("r+b") as file:
        file.seek(slot_at(7) + 300)
        file.write(b"\xff\xff")
    with pytest.raises(DiskError, match=r"the row of key 7 at byte \d+ is damaged: erase its key"):
        tier.read(as_keys([6, 7, 8]))
    assert tier.read(as_keys([6, 8]))[1].all()
    assert tier.stats().damaged == 1
    tier.close(remove=True)


def test_files_of_other_tables_are_refused_with_both_values(tmp_path: Path) -> None:
    path = made(tmp_path / "rows")
    with pytest.raises(DiskError, match="is of another table: dim=4 here and 200 in the file"):
        open_tier(path, dim=4)
    with pytest.raises(DiskError, match="table=other here and default in the file; give this table another path"):
        open_tier(path, Table(dim=200, name="other"))
    with pytest.raises(DiskError, match="type=float16 here and float32 in the file"):
        open_tier(path, Table(dim=200, type="float16"))
    with pytest.raises(DiskError, match="fields=version here and version,last_update in the file"):
        open_tier(path, fields=FIELDS[:1])
    (tmp_path / "text").write_text("nothing of ours " * 1000)
    with pytest.raises(DiskError, match="is not a disk file of Hotrow"):
        open_tier(tmp_path / "text")
    assert len(open_tier(path)) == ROWS, "refusals change nothing"


def test_a_file_has_one_tier_at_a_time(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows")
    with pytest.raises(LockedFileError, match="in use by another tier"):
        open_tier(tmp_path / "rows")
    tier.close(remove=False)
    open_tier(tmp_path / "rows").close(remove=True)


def test_a_file_is_opened_when_the_late_writes_of_its_process_have_ended(tmp_path: Path) -> None:
    """The kernel goes on with writes of io_uring after a kill. They hold the open file, as this test does."""
    path = made(tmp_path / "rows")
    late = os.open(path, os.O_RDWR)
    fcntl.fcntl(late, fcntl.F_OFD_SETLK, struct.pack("hh4xqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    ended = threading.Event()

    def end() -> None:
        ended.set()
        os.close(late)

    timer = threading.Timer(0.2, end)
    timer.start()
    tier = open_tier(path)
    assert ended.is_set(), "it was opened while writes were under way"
    assert len(tier) == ROWS
    tier.close(remove=True)
    timer.join()


def test_a_forked_child_that_lives_on_does_not_keep_the_file(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows")
    tier.write(make_rows(range(10), 1))
    reading, writing = os.pipe()
    started, starts = os.pipe()
    if (child := os.fork()) == 0:
        os.close(writing)
        os.write(starts, b"!")
        os.read(reading, 1)  # until the parent closes its end
        os._exit(0)
    os.read(started, 1)  # a child lets go of the file before its first line
    tier.close(remove=False)
    tier = open_tier(tmp_path / "rows")
    assert len(tier) == 10
    tier.close(remove=True)
    for end in (writing, reading, started, starts):
        os.close(end)
    assert os.waitpid(child, 0) == (child, 0)
