"""The index of a disk tier in a file: memory for each row, its bound, what filters save, many pages against a set."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from disk_rows import as_keys, make_rows, open_tier
from hotrow.errors import ConfigError, DiskFullError
from hotrow.store import Rows
from hotrow.store.ssd import SsdTier

CACHE = 1 << 20
NARROW: dict[str, Any] = {"dim": 1, "state_dim": 0, "fields": (), "capacity_bytes": 128 << 20}


def narrow_rows(keys: np.ndarray) -> Rows:
    values = (keys % 1000).astype(np.float32)[:, None]
    return Rows(keys.astype(np.uint64), values, np.empty((len(keys), 0), np.float32), {})


def narrow_tier(path: Path, **settings: Any) -> SsdTier:
    return open_tier(path, **(NARROW | {"index": "disk", "index_cache": CACHE} | settings))


def test_memory_stays_at_3_bytes_a_row_and_the_pages_at_their_bound(tmp_path: Path) -> None:
    tier = narrow_tier(tmp_path / "rows")
    most, size = 0.0, 60_000
    while size < 310_000:
        tier.write(narrow_rows(np.arange(len(tier), size)))
        found = tier.stats()
        most = max(most, found.bytes_per_row)
        assert found.index_cache_bytes <= CACHE
        assert found.index_filter_bytes < found.index_bytes
        size += size // 3
    for kept in (240_000, 150_000):  # and on the way back
        tier.erase(np.arange(kept, len(tier), dtype=np.uint64))
        found = tier.stats()
        most = max(most, found.index_bytes / found.rows)
    assert 1 < most <= 3
    assert tier.verify() == []
    tier.close(remove=True)


def test_filters_answer_for_absent_keys_without_a_read(tmp_path: Path) -> None:
    tier = narrow_tier(tmp_path / "rows")
    tier.write(narrow_rows(np.arange(200_000)))
    before = tier.stats().index_reads
    assert not tier.contains(np.arange(1_000_000, 1_050_000, dtype=np.uint64)).any()
    absent = tier.stats().index_reads - before
    assert 0 < absent < 1_500, "1 in 100 is expected, but for pages in memory"
    assert tier.contains(np.arange(0, 200_000, 4, dtype=np.uint64)).all()
    assert tier.stats().index_reads - before - absent > 10_000, "rows that are there need their pages"
    tier.close(remove=True)


def test_many_pages_hold_what_a_set_holds_over_a_reopening(tmp_path: Path) -> None:
    tier = narrow_tier(tmp_path / "rows", index_cache=16 * 4096)
    draw = np.random.default_rng(3)
    there = np.zeros(20_000, np.bool_)
    for _ in range(6):
        new = np.unique(draw.integers(0, 20_000, 5_000))
        gone = np.unique(draw.integers(0, 20_000, 3_000))
        tier.write(narrow_rows(new))
        there[new] = True
        assert tier.erase(gone.astype(np.uint64)) == there[gone].sum()
        there[gone] = False
        assert (tier.contains(np.arange(20_000, dtype=np.uint64)) == there).all()
    assert tier.verify() == []
    tier.close(remove=False)
    tier = narrow_tier(tmp_path / "rows", index_cache=16 * 4096)
    assert tier.opened is not None
    assert (tier.opened.rows, tier.opened.torn) == (there.sum(), 0)
    rows, found = tier.read(np.arange(20_000, dtype=np.uint64))
    assert (found == there).all()
    assert (rows.values[:, 0] == rows.keys % 1000).all()
    assert tier.verify() == []
    tier.close(remove=True)


def test_opening_writes_each_page_once_and_reads_none(tmp_path: Path) -> None:
    tier = narrow_tier(tmp_path / "rows", index="memory")
    tier.write(narrow_rows(np.arange(150_000)))
    tier.write(narrow_rows(np.arange(0, 150_000, 3)))
    gone = np.arange(1, 150_000, 10, dtype=np.uint64)
    tier.erase(gone)
    tier.close(remove=False)
    there = np.ones(150_000, np.bool_)
    there[gone] = False
    for index, cache in (("memory", CACHE), ("disk", 16 * 4096), ("disk", 4096)):
        tier = narrow_tier(tmp_path / "rows", index=index, index_cache=cache)
        assert tier.opened is not None
        found = tier.stats()
        assert (tier.opened.rows, tier.opened.torn) == (there.sum(), 0)
        assert tier.opened.superseded > 50_000
        if cache > 4096 and index == "disk":
            pages = found.index_file_bytes // 4096
            assert 500 < found.index_writes <= pages
            assert found.index_reads < 50
        assert (tier.contains(np.arange(150_000, dtype=np.uint64)) == there).all()
        assert tier.verify() == []
        assert [each.name for each in tmp_path.iterdir()] == ["rows"]
        tier.close(remove=False)


@pytest.mark.parametrize(("written", "left"), [(12_000, 500), (30_000, 3_000)])
def test_a_file_whose_rows_were_erased_and_written_again_opens(written: int, left: int, tmp_path: Path) -> None:
    tier = narrow_tier(tmp_path / "rows", index="memory")
    tier.write(narrow_rows(np.arange(written)))
    tier.erase(np.arange(written, dtype=np.uint64))
    kept = np.sort(np.random.default_rng(0).permutation(written)[:left])
    tier.write(narrow_rows(kept))
    tier.close(remove=False)
    for pages in (1, 2, 4, 8, 16):  # fewer than the index has: buddies of pages that erasures empty are not in memory
        for _ in range(3):  # each with a hash of its own
            tier = narrow_tier(tmp_path / "rows", index_cache=4096 * pages)
            assert np.flatnonzero(tier.contains(np.arange(written, dtype=np.uint64))).tolist() == kept.tolist()
            assert tier.verify() == []
            tier.close(remove=False)


def test_lookups_beside_writes_and_compaction_find_every_row(tmp_path: Path) -> None:
    tier = narrow_tier(tmp_path / "rows", index_cache=8 * 4096)
    tier.write(narrow_rows(np.arange(20_000)))
    ended, faults = threading.Event(), []

    def look(seed: int) -> None:
        draw = np.random.default_rng(seed)
        while not ended.is_set():
            keys = np.unique(draw.integers(0, 20_000, 300)).astype(np.uint64)
            rows, found = tier.read(keys)
            if not found.all() or (rows.values[:, 0] != keys % 1000).any():
                faults.append(keys)

    threads = [threading.Thread(target=look, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    draw = np.random.default_rng(9)
    for turn in range(8):
        tier.write(narrow_rows(np.unique(draw.integers(0, 20_000, 3_000))))
        tier.write(narrow_rows(np.arange(30_000 + 3_000 * turn, 33_000 + 3_000 * turn)))
        tier.compact()
    ended.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert tier.verify() == []
    tier.close(remove=True)


def test_the_file_of_the_index_is_never_seen(tmp_path: Path) -> None:
    tier = narrow_tier(tmp_path / "rows")
    tier.write(narrow_rows(np.arange(10_000)))
    assert [each.name for each in tmp_path.iterdir()] == ["rows"]
    tier.close(remove=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("index", ["memory", "disk"])
def test_a_tier_that_is_refused_leaves_no_file(index: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"capacity_bytes=65536: must be at least"):
        open_tier(tmp_path / "rows", capacity_bytes=64 << 10, index=index)
    assert list(tmp_path.iterdir()) == []


def test_a_full_file_refuses_and_changes_nothing(tmp_path: Path) -> None:
    tier = open_tier(tmp_path / "rows", index="disk", index_cache=4096)
    room = tier.stats().capacity_rows
    tier.write(make_rows(range(room), 1))
    with pytest.raises(DiskFullError, match=rf"{room + 1} rows of 864 bytes do not fit"):
        tier.write(make_rows(range(room - 5, room + 1), 2))
    assert (tier.read(as_keys(range(room)))[0].fields["version"] == 1).all()
    tier.write(make_rows(range(300), 2))  # rows that are there already always find room
    assert tier.verify() == []
    tier.close(remove=True)


@pytest.mark.parametrize(("option", "value"), [("index", "paper"), ("index_cache", 95)])
def test_bad_options_are_refused_with_their_value(option: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{option}=.*{value}.*: must be"):
        open_tier(tmp_path / "rows", **{option: value})
    assert list(tmp_path.iterdir()) == []
