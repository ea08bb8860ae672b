"""A table in two tiers gives the results of one whose memory has no limit, whatever moves between the tiers."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hotrow as hr
from hotrow.errors import ConfigError, DiskError, DiskFullError, InputError, LockedFileError
from hotrow.server.rows_ahead import RowsAhead
from hotrow.sizes import parse_bytes
from hotrow.store import RamTier, Rows, find_or_first
from hotrow.store.arrays import Keys
from hotrow.store.tier_plan import plan_tiers, slots_path
from hotrow.store.tiered import TieredTier
from unit.store.two_tiers import KEYS, KINDS, all_rows, opened, tables, train


@pytest.mark.parametrize("kind", KINDS)
def test_training_in_two_tiers_equals_training_in_memory(kind: str, tmp_path: Path) -> None:
    of_tiers, of_memory = tables(tmp_path, **KINDS[kind])
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    draw = np.random.default_rng(0)
    with opened(tiered, memory):
        for step in range(60):
            keys = draw.integers(0, KEYS, 40).astype(np.uint64)
            found = train(tiered, keys, step, 40 * step, ahead=step % 3 == 0)
            assert np.array_equal(found, train(memory, keys, step, 40 * step))
        assert len(tiered) == len(memory)
        assert tiered.stats().disk_rows > 200
        assert all_rows(tiered) == all_rows(memory)
        assert tiered.verify() == []


def test_rows_on_disk_are_found_without_moving(tmp_path: Path) -> None:
    of_tiers, of_memory = tables(tmp_path)
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    with opened(tiered, memory):
        for first in range(0, KEYS, 40):
            keys = np.arange(first, first + 40, dtype=np.uint64)
            train(tiered, keys, first, 0), train(memory, keys, first, 0)
        keys = np.array([3, 3, 390, 7, 5000, 3], np.uint64)
        up = tiered.moved_up
        for per in ("key", "unique"):
            ours, theirs = np.empty((6, 3), np.float32), np.empty((6, 3), np.float32)
            rows = 6 if per == "key" else 4
            plan = tiered.find(keys, ours[:rows], per=per)
            memory.find(keys, theirs[:rows], per=per)
            assert plan.absent == 1
            assert np.array_equal(np.sort(ours[:rows], 0), np.sort(theirs[:rows], 0), equal_nan=True)
            assert plan.absent_mask().tolist() == [False, False, False, False, True, False]
            find_or_first(tiered, keys, ours[:rows], per=per)
            assert np.isfinite(ours[:rows]).all()
        assert tiered.moved_up == up
        assert np.array_equal(tiered.versions(keys), memory.versions(keys))
        whole, expected = tiered.whole_rows(keys[2:5]), memory.whole_rows(keys[2:5])
        assert np.array_equal(whole.values, expected.values)
        assert np.array_equal(whole.state, expected.state)


def test_an_update_reaches_rows_that_have_left_memory_since_their_lookup(tmp_path: Path) -> None:
    of_tiers, of_memory = tables(tmp_path)
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    early, ones = np.arange(10, dtype=np.uint64), np.ones((10, 3), np.float32)
    with opened(tiered, memory):
        for tier in (tiered, memory):
            tier.find_or_init(early)  # its plan is dropped: nothing pins the rows
            for first in range(100, 400, 50):
                tier.find_or_init(np.arange(first, first + 50, dtype=np.uint64))
            assert tier.apply(early, ones).absent == 0
        assert all_rows(tiered) == all_rows(memory)


def test_rows_of_plans_in_use_stay_in_memory(tmp_path: Path) -> None:
    tiered = TieredTier(tables(tmp_path)[0], partitions=1)
    with opened(tiered):
        held = tiered.find_or_init(np.arange(60, dtype=np.uint64))
        tiered.find_or_init(np.arange(100, 140, dtype=np.uint64))
        tiered.find_or_init(np.arange(200, 240, dtype=np.uint64))
        assert RamTier.read(tiered, held, "version").all()
        with pytest.raises(InputError, match=r"holds 100 rows in memory.*raise capacity"):
            tiered.find_or_init(np.arange(1000, 1050, dtype=np.uint64))
        tiered.put(np.arange(2000, 2200, dtype=np.uint64), np.zeros((200, 3), np.float32))  # in parts that fit
        assert RamTier.read(tiered, held, "version").all()
        del held
        tiered.find_or_init(np.arange(300, 390, dtype=np.uint64))
        assert tiered.stats().disk_rows > 0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_histories_equal_those_of_memory_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("tiers")
    of_tiers, of_memory = tables(folder, **KINDS[data.draw(st.sampled_from(sorted(KINDS)))])
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    calls: dict[str, Callable[[RamTier, np.ndarray, int], object]] = {
        "train": lambda tier, keys, seed: train(tier, keys, seed, seed, ahead=seed % 2 == 0),
        "apply": lambda tier, keys, seed: tier.apply(keys, np.full((len(keys), 3), seed % 7, np.float32), samples=seed),
        "erase": lambda tier, keys, seed: tier.erase(keys),
        "put": lambda tier, keys, seed: tier.put(np.unique(keys), np.full((len(np.unique(keys)), 3), seed, np.float32)),
        "add": lambda tier, keys, seed: (
            tier.add(keys, np.full((len(keys), 3), seed % 5, np.float32), samples=seed).rows
        ),
        "versions": lambda tier, keys, seed: tier.versions(keys).tolist(),
        "length": lambda tier, keys, seed: len(tier),
        "rows": lambda tier, keys, seed: all_rows(tier),
    }
    with opened(tiered, memory):
        for _ in range(data.draw(st.integers(5, 40))):
            name = data.draw(st.sampled_from(sorted(calls)))
            seed = data.draw(st.integers(0, 1000))
            keys = np.random.default_rng(seed).integers(0, KEYS, 45).astype(np.uint64)
            ours, theirs = calls[name](tiered, keys, seed), calls[name](memory, keys, seed)
            if name not in ("train", "apply", "put"):
                assert ours == theirs, name
        assert all_rows(tiered) == all_rows(memory)
        assert tiered.verify() == []


def test_a_cut_has_the_rows_of_one_moment_while_rows_move(tmp_path: Path) -> None:
    of_tiers, of_memory = tables(tmp_path)
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    draw = np.random.default_rng(1)
    with opened(tiered, memory):
        for tier in (tiered, memory):
            tier.track_changes()
        saved: dict[int, tuple[bytes, bytes, int]] = {}
        for round in range(6):
            for step in range(12):
                keys = draw.integers(0, KEYS, 40).astype(np.uint64)
                train(tiered, keys, step, 0), train(memory, keys, step, 0)
            gone = draw.integers(0, KEYS, 5).astype(np.uint64)
            tiered.erase(gone), memory.erase(gone)
            expected = all_rows(memory)
            later = [draw.integers(0, KEYS, 40).astype(np.uint64) for _ in range(12)]
            with tiered.begin_cut(changed_only=round > 0) as cut:
                for keys in later:  # after the moment
                    train(tiered, keys, 99, 0)
                for key in cut.removed.tolist():
                    saved.pop(key, None)
                saved |= rows_of(cut.chunks(97))
                cut.close(saved=True)
            assert saved == expected
            for keys in later:
                train(memory, keys, 99, 0)


def test_after_a_clear_the_next_cut_is_of_all_rows(tmp_path: Path) -> None:
    tiered = TieredTier(tables(tmp_path)[0])
    with opened(tiered):
        tiered.track_changes()
        with tiered.begin_cut() as cut:
            cut.close(saved=True)
        tiered.clear()
        with pytest.raises(InputError, match="take a cut of all rows"):
            tiered.begin_cut(changed_only=True)


def rows_of(chunks: Iterator[Rows]) -> dict[int, tuple[bytes, bytes, int]]:
    return {
        key: (chunk.values[at].tobytes(), chunk.state[at].tobytes(), int(chunk.fields["version"][at]))
        for chunk in chunks
        for at, key in enumerate(chunk.keys.tolist())
    }


def test_expired_rows_on_disk_are_absent_and_removed(tmp_path: Path) -> None:
    of_tiers, of_memory = tables(tmp_path, expiry=1000)
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    with opened(tiered, memory):
        for tier in (tiered, memory):
            for number, first in enumerate(range(0, KEYS, 40)):
                keys = np.arange(first, first + 40, dtype=np.uint64)
                train(tier, keys, first, 200 * number)
            found = tier.find(np.arange(KEYS, dtype=np.uint64))
            assert found.absent == 160  # last seen at 0, 200, 400 and 600 samples, and it is 1,800
            tier.expire(1800)
            assert len(tier) == 240
            assert tier.expire(1800) == 0


def test_a_file_without_a_segment_ends_with_its_table(tmp_path: Path) -> None:
    table = tables(tmp_path)[0]
    for leave in (False, True):
        tier = TieredTier(table)
        train(tier, np.arange(90, dtype=np.uint64), 0, 0)
        assert len(tier) == 90
        with pytest.raises(LockedFileError, match="in use by another table of this process"):
            TieredTier(table)
        assert slots_path(table).exists()
        tier.close(leave=leave)
        assert not slots_path(table).exists()


def test_a_plan_that_found_rows_on_disk_may_be_used_again(tmp_path: Path) -> None:
    of_tiers, of_memory = tables(tmp_path)
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    with opened(tiered, memory):
        for tier in (tiered, memory):
            for first in range(0, KEYS, 40):
                train(tier, np.arange(first, first + 40, dtype=np.uint64), first, 0)
            plan = tier.batch(np.arange(30, dtype=np.uint64))
            tier.find(plan)
            assert tier.versions(plan).all()
            assert tier.apply(plan, np.ones((30, 3), np.float32)).rows == 30
            tier.find(plan)
            tier.find_or_init(plan)
        assert all_rows(tiered) == all_rows(memory)


def test_a_call_whose_rows_the_file_refuses_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_tiers, of_memory = tables(tmp_path)
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    with opened(tiered, memory):
        for tier in (tiered, memory):
            train(tier, np.arange(90, dtype=np.uint64), 0, 0)

        def full(rows: Rows) -> None:
            raise DiskFullError("the disk is full")

        monkeypatch.setattr(tiered.disk, "write", full)
        for _ in range(3):
            with pytest.raises(DiskFullError):
                tiered.find_or_init(np.arange(200, 250, dtype=np.uint64))
            assert all_rows(tiered) == all_rows(memory)
        monkeypatch.undo()
        for tier in (tiered, memory):
            tier.find_or_init(np.arange(200, 250, dtype=np.uint64))
        assert all_rows(tiered) == all_rows(memory)


@pytest.mark.parametrize("overwrites", [False, True])
def test_rows_in_the_order_of_another_table_s_partitions_are_put(overwrites: bool, tmp_path: Path) -> None:
    """All rows of a call may belong to one partition, which has no room for them at once."""
    table = hr.Table(dim=16, optimizer=hr.Adagrad(lr=0.05))
    small = table.model_copy(update={"capacity": 20_000, "disk": "100MB", "path": tmp_path})
    source, target = RamTier(table, threads=2), TieredTier(small, threads=2)
    with opened(source, target):
        keys = np.random.default_rng(0).integers(0, 2**63, 60_000).astype(np.uint64)
        source.find_or_init(keys)
        if overwrites:  # copies of all rows are on disk, older than those that come
            for first in range(0, len(keys), 3_000):
                target.find_or_init(keys[first : first + 3_000])
            source.apply(keys, np.ones((len(keys), 16), np.float32))
        for chunk in source.export():
            plan = target.put(chunk.keys, chunk.values, chunk.state, chunk.fields)
            assert plan.turned_away == 0
        assert all_rows(target) == all_rows(source)
        assert target.verify() == []


def test_a_put_in_parts_is_checked_as_a_whole(tmp_path: Path) -> None:
    tiered = TieredTier(tables(tmp_path)[0])
    keys, values = np.arange(90, dtype=np.uint64), np.zeros((90, 3), np.float32)
    values[-1] = np.nan
    with opened(tiered):
        with pytest.raises(InputError, match="NaN"):
            tiered.put(keys, values)
        with pytest.raises(InputError, match="values"):
            tiered.put(keys, np.zeros((180, 3), np.float32))
        assert len(tiered) == 0


def test_with_admission_too_little_memory_is_an_error_and_no_key_is_turned_away_for_it(tmp_path: Path) -> None:
    tiered = TieredTier(tables(tmp_path, admission=hr.AtLeast(count=2))[0], partitions=1)
    keys = np.arange(300, dtype=np.uint64)
    with opened(tiered):
        assert tiered.find_or_init(keys).turned_away == 300
        with pytest.raises(InputError, match="raise capacity"):
            tiered.find_or_init(keys)


ADMISSIONS = {
    "exact": hr.AtLeast(count=3),
    "filter": hr.AtLeast(count=3, filter="64B"),  # full of keys that share counters: some get a row for others
    "chance": hr.Chance(probability=0.3),
}


@pytest.mark.parametrize("kind", ADMISSIONS)
@pytest.mark.parametrize("expiry", [None, 700])
def test_with_admission_only_rows_that_a_lookup_really_evicts_are_written(
    kind: str, expiry: int | None, tmp_path: Path
) -> None:
    table, _ = tables(tmp_path, admission=ADMISSIONS[kind], expiry=expiry)
    tier, draw = TieredTier(table, partitions=2), np.random.default_rng(1)
    with opened(tier):
        for step in range(120):
            keys = draw.integers(0, KEYS, 30).astype(np.uint64)
            tier.find_or_init(keys, samples=30 * step, seen=step % 7 != 3)
            if step % 10 == 9:
                tier.put(np.unique(keys)[:3], np.ones((3, 3), np.float32))
        written, moved = tier.disk.stats().rows_written, tier.stats().moved_down
        assert moved > 100
        assert written == moved if expiry is None else written >= moved, "rows that expire meanwhile are not evicted"
        assert tier.verify() == []


def test_a_full_file_refuses_ids_that_get_a_row_and_not_ids_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = TieredTier(tables(tmp_path, admission=hr.AtLeast(count=2))[0], partitions=1)
    with opened(tier):
        tier.put(np.arange(100, dtype=np.uint64), np.zeros((100, 3), np.float32))

        def full(rows: Rows) -> None:
            raise DiskFullError("the disk is full")

        monkeypatch.setattr(tier.disk, "write", full)
        waiting = np.arange(200, 240, dtype=np.uint64)
        assert tier.find_or_init(waiting).turned_away == 40
        assert tier.find_or_init(waiting, seen=False).turned_away == 40
        with pytest.raises(DiskFullError):
            tier.find_or_init(waiting)
        monkeypatch.undo()
        assert tier.find_or_init(waiting).turned_away == 0, "the refused lookup has not counted them"
        assert (len(tier), tier.stats().moved_down) == (140, 40)


def test_a_directory_that_is_missing_and_a_small_file_have_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Table\.path=.*make it, or name another"):
        TieredTier(tables(tmp_path / "no" / "such")[0])
    with pytest.raises(ConfigError, match=r"Table\.disk='70KB'"):
        TieredTier(hr.Table(dim=64, capacity=100, disk="70KB", path=tmp_path))


def test_a_segment_and_the_file_are_taken_over_together(tmp_path: Path) -> None:
    segment = hr.Segment(run=f"tiered-{tmp_path.name}", directory=tmp_path)
    of_tiers, of_memory = tables(tmp_path, segment=segment)
    of_memory = of_memory.model_copy(update={"segment": None})
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    for step in range(30):
        keys = np.random.default_rng(step).integers(0, KEYS, 40).astype(np.uint64)
        train(tiered, keys, step, 0), train(memory, keys, step, 0)
    tiered.close(leave=True)
    again = TieredTier(of_tiers)
    with opened(again, memory):
        assert all_rows(again) == all_rows(memory)


@pytest.mark.parametrize(
    ("capacity", "disk", "fits"), [("4MB", "200MB", False), ("4MB", "1MB", True), (10_000, "10GB", True)]
)
def test_the_index_of_the_disk_is_part_of_the_capacity(
    capacity: str | int, disk: str, fits: bool, tmp_path: Path
) -> None:
    table = hr.Table(dim=16, capacity=capacity, disk=disk, path=tmp_path)
    if fits:
        plan = plan_tiers(table)
        assert plan.disk_rows * plan.slot_bytes <= plan.disk_bytes
    else:
        with pytest.raises(ConfigError, match=r"whose index takes .* of capacity='4MB': raise capacity to"):
            plan_tiers(table)


@pytest.mark.parametrize(("disk_index", "disk"), [("auto", "200MB"), ("auto", "40GB"), ("memory", "200MB")])
def test_the_capacity_that_a_refusal_names_is_enough_and_less_is_not(
    disk_index: str, disk: str, tmp_path: Path
) -> None:
    def of(capacity: str) -> hr.Table:
        return hr.Table(dim=16, capacity=capacity, disk=disk, path=tmp_path, disk_index=disk_index)

    with pytest.raises(ConfigError) as refused:
        plan_tiers(of("4MB"))
    named = re.search(r"raise capacity to ([0-9.]+ [A-Z]+)", str(refused.value))
    assert named is not None
    assert plan_tiers(of(named[1])).index == ("memory" if disk_index == "memory" else "disk")
    with pytest.raises(ConfigError, match="raise capacity to"):
        plan_tiers(of(f"{parse_bytes(named[1]) * 97 // 100}B"))
    if disk == "200MB":
        tier = TieredTier(of(named[1]))
        with opened(tier):
            for first in range(0, 20_000, 500):
                tier.find_or_init(np.arange(first, first + 500, dtype=np.uint64))
            assert len(tier) == 20_000
            assert tier.stats().disk_rows > 0


def test_the_index_goes_to_disk_where_memory_has_no_room_for_it(tmp_path: Path) -> None:
    plans = [
        plan_tiers(hr.Table(dim=16, capacity=capacity, disk="200MB", path=tmp_path))
        for capacity in ("26.6MB", "26.7MB")
    ]
    assert [each.index for each in plans] == ["disk", "memory"]
    for plan in plans:
        beside = plan.index_bytes + plan.index_cache_bytes + plan.write_behind_bytes
        assert beside + (plan.in_memory.capacity_bytes or 0) in (26_600_000, 26_700_000)
    assert plans[0].index_cache_bytes >= 1 << 20
    assert plans[1].index_cache_bytes == 0


@pytest.mark.parametrize("kind", ["adagrad", "lfu", "admission", "expiry"])
def test_what_a_call_evicts_is_on_disk_before(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly that, but for keys that are not admitted and rows that expire: their places are not needed."""
    more: dict[str, object] = {"admission": hr.AtLeast(count=2)} if kind == "admission" else {}
    more |= {"expiry": 150} if kind == "expiry" else {}
    tiered = TieredTier(tables(tmp_path, **KINDS.get(kind, {}), **more)[0])
    draw = np.random.default_rng(3)
    written: list[Keys] = []
    write = tiered.disk.write

    def watched(rows: Rows) -> None:
        assert (RamTier.read(tiered, rows.keys, "version") == rows.fields["version"]).all()
        written.append(rows.keys)
        write(rows)

    with opened(tiered):
        monkeypatch.setattr(tiered.disk, "write", watched)
        for number in range(60):
            keys = np.unique(draw.integers(0, KEYS, 40)).astype(np.uint64)
            before = RamTier.stats(tiered).evicted
            train(tiered, keys, number, 10 * number)
            evicted = RamTier.stats(tiered).evicted - before
            sent = np.concatenate([*written, np.empty(0, np.uint64)])
            written.clear()
            assert evicted <= len(sent) if more else evicted == len(sent)
            here = RamTier.read(tiered, sent, "version") > 0
            if kind == "admission":
                assert here.sum() == len(sent) - evicted
            elif not more:
                assert not here.any()
            assert not tiered.disk.contains(sent[here], shadowed=False).any()
            assert tiered.verify() == []
        assert tiered.stats().moved_down > 0


def test_a_call_that_fails_leaves_each_row_in_one_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_tiers, of_memory = tables(tmp_path)
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    with opened(tiered, memory):
        for tier in (tiered, memory):
            train(tier, np.arange(90, dtype=np.uint64), 0, 0)

        def failing(*_: object, **__: object) -> None:
            raise InputError("no memory is left")

        monkeypatch.setattr(RamTier, "find_or_init", failing)
        with pytest.raises(InputError, match="no memory is left"):
            tiered.find_or_init(np.arange(200, 250, dtype=np.uint64))
        monkeypatch.undo()
        assert tiered.stats().disk_rows == 0  # what was written is shadowed
        assert all_rows(tiered) == all_rows(memory)
        for tier in (tiered, memory):
            train(tier, np.arange(60, 260, dtype=np.uint64)[:100], 1, 1)
        assert all_rows(tiered) == all_rows(memory)


def test_a_table_whose_disk_failed_while_rows_moved_takes_no_more_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiered, _ = tables(tmp_path)
    tier = TieredTier(tiered)
    with opened(tier):
        for first in range(0, 300, 50):
            tier.find_or_init(np.arange(first, first + 50))

        def fails(keys: object) -> None:
            raise DiskError("disk file rows.index: cannot be read at byte 4096, Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(tier.disk, "shadow", fails)
            with pytest.raises(DiskError, match=r"takes no more calls: .* \(disk file rows.index: cannot be read"):
                tier.find_or_init(np.arange(20))
        for call in (lambda: tier.find(np.arange(5)), tier.stats, tier.begin_cut, lambda: tier.erase(np.arange(5))):
            with pytest.raises(DiskError, match="continue from the last checkpoint"):
                call()
        tier.clear()  # which a load of a checkpoint begins with
        tier.find_or_init(np.arange(20))
        assert len(tier) == 20


def test_an_erasure_that_the_disk_refuses_brings_no_old_copy_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = hr.Segment(run="refused", directory=tmp_path)
    table = hr.Table(dim=2, capacity=64, disk="16MB", path=tmp_path, segment=segment, optimizer=hr.SGD(lr=1.0))
    tier, key = TieredTier(table), np.array([5], np.uint64)
    tier.put(key, np.full((1, 2), 1, np.float32), None)
    for first in range(1000, 2000, 50):
        tier.find_or_init(np.arange(first, first + 50))
    assert tier.disk.contains(key).all()
    tier.apply(tier.find_or_init(key), np.full((1, 2), -41, np.float32), step=0, samples=1)

    def fails(keys: object) -> None:
        raise DiskError("disk file rows: cannot be written at byte 4096, Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(tier.disk, "erase", fails)
        with pytest.raises(DiskError, match="cannot be written"):
            tier.erase(key)
    assert tier.whole_rows(key).values.tolist() == [[42, 42]]
    tier.close(leave=True)
    tier = TieredTier(table)
    with opened(tier):
        assert tier.whole_rows(key).values.tolist() == [[42, 42]]
        assert tier.erase(key) == 1
        assert not tier.read(key, "version").any()
        assert not tier.disk.contains(key).any()


def test_pages_of_an_export_are_the_rows_of_the_first_page(tmp_path: Path) -> None:
    tier = TieredTier(hr.Table(dim=2, capacity=64, disk="16MB", path=tmp_path), partitions=1)
    for first in range(0, 1000, 50):
        tier.find_or_init(np.arange(first, first + 50))
    ahead = RowsAhead({"default": tier})
    found: list[int] = []
    rows, cursor = tier.export_from(0, 32)
    while cursor:
        found += rows.keys.tolist()
        if len(found) == 32:  # rows move up, and others down for them
            ahead.add("default", np.arange(60, dtype=np.uint64))
            assert ahead.wait(60)
        rows, cursor = tier.export_from(cursor, 32)
    assert sorted(found) == list(range(1000))
    tier.export_from(0, 32)  # pages that are never fetched
    with tier.begin_cut() as cut:
        assert sum(len(chunk.keys) for chunk in cut.chunks(100)) == 1000
    with pytest.raises(InputError, match="begin again with cursor 0"):
        tier.export_from(1, 32)
    ahead.close()
    tier.close()


@pytest.mark.parametrize("expiry", [None, 100])
def test_a_plan_whose_rows_are_gone_evicts_no_row_that_is_not_on_disk(expiry: int | None, tmp_path: Path) -> None:
    tier = TieredTier(hr.Table(dim=2, capacity=4, disk="16MB", path=tmp_path, expiry=expiry), partitions=1)
    plan, others = tier.find_or_init(np.array([1, 2]), samples=0), np.array([3, 4, 5, 6])
    if expiry is None:
        tier.erase(np.array([1, 2]))
    else:
        tier.expire(1000)
    values, after = np.empty((4, 2), np.float32), np.empty((4, 2), np.float32)
    tier.find_or_init(others, values, samples=1000)
    tier.find_or_init(plan, samples=1001)
    tier.find(others, after)
    assert (after == values).all()
    tier.close()


@pytest.mark.parametrize("ahead", [False, True])
def test_a_row_that_became_infinite_comes_back_from_the_disk_as_it_is(ahead: bool, tmp_path: Path) -> None:
    of_tiers, of_memory = tables(tmp_path, optimizer=hr.SGD(lr=1e19))
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    early = np.arange(20, dtype=np.uint64)
    with opened(tiered, memory):
        for tier in (tiered, memory):
            for step in range(5):
                tier.apply(tier.find_or_init(early, samples=step), np.full((20, 3), 1e19, np.float32), step=step)
            for first in range(100, 300, 50):
                train(tier, np.arange(first, first + 50, dtype=np.uint64), first, first)
            train(tier, early, 400, 400, ahead=ahead)
        assert tiered.moved_up == 20
        assert not np.isfinite(tiered.whole_rows(early).values).any()
        assert all_rows(tiered) == all_rows(memory)
