"""Space of a disk tier: memory for each row, the size of the file, what is full, what compaction may not touch."""

import resource
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from disk_rows import CAPACITY, EXTENT, SLOTS, as_keys, contents, make_rows, open_tier, stamps
from hotrow.errors import ConfigError, DiskError, DiskFullError, InputError
from hotrow.store import Rows


def narrow_rows(first: int, count: int) -> Rows:
    keys = np.arange(first, first + count, dtype=np.uint64)
    return Rows(keys, np.ones((count, 1), np.float32), np.empty((count, 0), np.float32), {})


def test_memory_stays_at_16_bytes_a_row_at_every_size(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows", dim=1, state_dim=0, fields=(), capacity_bytes=256 << 20)
    most, size = 0.0, 20_000
    while size < 700_000:
        tier.write(narrow_rows(len(tier), size - len(tier)))
        most = max(most, tier.stats().bytes_per_row)
        size += size // 13
    while len(tier) > 20_000:  # and on the way back
        tier.erase(np.arange(len(tier) - len(tier) // 9, len(tier), dtype=np.uint64))
        found = tier.stats()
        most = max(most, found.index_bytes / found.rows)
    assert most <= 16
    tier.close(remove=True)


def test_the_file_stays_small_over_many_generations(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows", capacity_bytes=8 << 20)
    draw = np.random.default_rng(3)
    for stamp in range(1, 120):
        tier.write(make_rows(draw.choice(1500, 900, replace=False).tolist(), stamp))
        tier.erase(draw.choice(1500, 100, replace=False).astype(np.uint64))
    found = tier.stats()
    assert found.rows_written * found.slot_bytes > 10 * found.file_bytes, "the log was used many times over"
    assert found.file_bytes <= 3 * (found.rows + found.tombstones) * found.slot_bytes + 17 * found.extent_bytes
    tier.compact()
    assert tier.verify() == []
    found = tier.stats()
    used = found.extents - found.free_extents
    assert used * found.slots_per_extent <= 2 * (found.rows + found.tombstones) + 4 * found.slots_per_extent
    tier.close(remove=True)


def test_erased_rows_leave_nothing_behind(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows")
    for stamp in range(1, 200):  # with 40 generations, a full file that the cleaner was emptying refused 1 run in 38
        tier.write(make_rows(range(stamp * 1000, stamp * 1000 + 900), stamp))
        assert tier.erase(as_keys(range(stamp * 1000, stamp * 1000 + 900))) == 900
    tier.compact()
    assert len(tier) == 0
    assert tier.stats().tombstones < 3 * tier.stats().slots_per_extent
    tier.close(remove=False)
    tier = open_tier(tmp_path / "rows")
    assert contents(tier) == {}
    tier.close(remove=True)


def test_a_full_file_refuses_and_changes_nothing(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows")
    room = tier.stats().capacity_rows
    tier.write(make_rows(range(room), 1))
    before = contents(tier)
    with pytest.raises(DiskFullError, match=rf"{room + 1} rows of 864 bytes do not fit, capacity_bytes={CAPACITY}"):
        tier.write(make_rows(range(room - 5, room + 1), 2))
    assert contents(tier) == before
    for stamp in range(2, 12):  # rows that are there already always find room
        tier.write(make_rows(range(stamp * 50, stamp * 50 + 300), stamp))
    tier.erase(as_keys([0]))
    tier.write(make_rows([room], 3))
    assert tier.verify() == []
    tier.close(remove=True)


def test_a_full_file_is_erased_in_one_call_and_filled_again(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows")
    room = tier.stats().capacity_rows
    order = np.random.default_rng(5).permutation(room).astype(np.uint64)
    for stamp in range(1, 6):
        tier.write(make_rows(range(room), stamp))
        assert contents(tier) == dict.fromkeys(range(room), stamp)
        assert tier.erase(order) == room, "in an order that empties no extent before the last rows"
        assert contents(tier) == {}
    assert tier.verify() == []
    tier.close(remove=True)


def test_a_full_file_system_refuses_and_loses_nothing(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows", capacity_bytes=64 << 20)
    tier.write(make_rows(range(200), 1))
    tier.flush()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (tier.stats().file_bytes, hard))  # the system answers EFBIG
    try:
        with pytest.raises(DiskFullError, match=r"cannot grow from .* make room on its file system"):
            tier.write(make_rows(range(20_000), 2))
        assert contents(tier) == dict.fromkeys(range(200), 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    tier.write(make_rows(range(20_000), 3))
    assert len(tier) == 20_000
    tier.close(remove=True)


def test_a_cut_keeps_its_rows_while_all_of_them_are_superseded(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows")
    tier.write(make_rows(range(600), 1))
    tier.flush()
    cut = tier.begin_cut()
    for stamp in range(2, 100):
        try:
            tier.write(make_rows(range(600), stamp))
        except DiskFullError as full:
            assert "end the cut" in str(full)  # noqa: PT017
            break
        tier.compact()
    found: dict[int, int] = {}
    while (rows := cut.rows(100)) is not None:
        found |= stamps(rows)
    assert found == dict.fromkeys(range(600), 1)
    cut.end(saved=True)
    tier.write(make_rows(range(600), 100))
    with pytest.raises(InputError, match=r"since=7: changes are known since cut 1 only"):
        tier.begin_cut(since=7)
    with pytest.raises(InputError, match="has ended"):
        cut.rows()
    tier.close(remove=True)


def test_rows_are_read_from_memory_until_their_buffer_is_needed(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows", write_behind=4 * EXTENT)

    def reads(keys: range) -> tuple[int, int]:
        before = tier.stats()
        rows, _ = tier.read(as_keys(keys))
        assert stamps(rows) == dict.fromkeys(keys, 1)
        after = tier.stats()
        return after.reads - before.reads, after.rows_read_buffered - before.rows_read_buffered

    old, new = range(SLOTS), range(SLOTS, 4 * SLOTS)
    tier.write(make_rows(old, 1))
    tier.write(make_rows(new, 1))
    tier.flush()
    assert reads(range(4 * SLOTS)) == (0, 4 * SLOTS)
    tier.write(make_rows(range(1000, 1001), 1))  # a fifth extent: the buffer of the first goes to it
    tier.flush()
    assert reads(new) == (0, 3 * SLOTS)
    assert reads(old) == (1, 0)
    assert tier.verify() == []
    tier.close(remove=True)


@pytest.mark.parametrize("extents", [2, 40])
def test_reads_and_cuts_beside_writes_and_compaction_give_whole_rows(extents: int, tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows", capacity_bytes=8 << 20, write_behind=extents * EXTENT)
    tier.write(make_rows(range(1000), 1))
    stop, faults = threading.Event(), []

    def reader(seed: int) -> None:
        draw, low = np.random.default_rng(seed), np.zeros(1000, np.int64)
        try:
            while not stop.is_set():
                keys = draw.choice(1000, 200, replace=False)
                rows, found = tier.read(keys.astype(np.uint64))
                assert found.all()
                stamp = np.array(list(stamps(rows).values()))
                assert (stamp >= low[keys]).all(), "a row went back to an older copy"
                low[keys] = stamp
                assert len(contents(tier)) == 1000
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=reader, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    draw = np.random.default_rng(9)
    for stamp in range(2, 150):
        tier.write(make_rows(draw.choice(1000, 400, replace=False).tolist(), stamp))
    stop.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert tier.stats().compacted_extents > 0
    tier.close(remove=True)


def test_bad_arguments_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match=r"capacity_bytes=100000: must be at least \d+ for rows of 864 bytes"):
        open_tier(tmp_path / "rows", capacity_bytes=100_000)
    with pytest.raises(ConfigError, match="io='aio': must be one of auto, uring, threads"):
        open_tier(tmp_path / "rows", io="aio")
    tier = open_tier(tmp_path / "rows")
    with pytest.raises(InputError, match="1 of them occur twice"):
        tier.write(make_rows([1, 2, 1], 1))
    with pytest.raises(InputError, match="fields are version: rows of"):
        tier.write(replace(make_rows([1], 1), fields={"version": np.ones(1, np.uint32)}))
    assert len(tier) == 0
    tier.close(remove=True)
    with pytest.raises(InputError, match="is closed"):
        len(tier)
