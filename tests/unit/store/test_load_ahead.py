"""Rows of one batch are read from disk while those of the batch before are put into memory, and none is an old copy."""

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hotrow as hr
from hotrow.client.local import LocalTables
from hotrow.data import ArrowSource, Loader, Schema
from hotrow.data.loader import RowPut
from hotrow.server.rows_ahead import RowsAhead
from hotrow.store import RamTier, Rows
from hotrow.store.arrays import Flags, Keys
from hotrow.store.pending_load import PendingLoad
from hotrow.store.tiered import TieredTier
from unit.store.two_tiers import KEYS, KINDS, all_rows, opened, tables, train

WAIT_S = 60.0


def test_rows_erased_while_they_are_loaded_ahead_stay_erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiered = TieredTier(tables(tmp_path)[0])
    early = np.arange(40, dtype=np.uint64)
    with opened(tiered):
        for first in range(0, KEYS, 40):
            train(tiered, np.arange(first, first + 40, dtype=np.uint64), first, 0)
        read = tiered.disk.read

        def read_and_erase(keys: Keys, *, shadowed: bool = True) -> tuple[Rows, Flags]:
            found = read(keys, shadowed=shadowed)
            monkeypatch.undo()
            tiered.erase(early)
            return found

        monkeypatch.setattr(tiered.disk, "read", read_and_erase)
        assert tiered.load_ahead(early) == 0
        assert len(tiered) == KEYS - 40


def test_rows_are_read_ahead_at_once_and_put_into_memory_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup waits for one part at most; one that comes between two parts has its own changes."""
    of_tiers, of_memory = tables(tmp_path)
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    monkeypatch.setattr("hotrow.store.load_ahead.PUT_AT_ONCE", 10)
    early = np.arange(40, dtype=np.uint64)
    with opened(tiered, memory):
        for tier in (tiered, memory):
            for first in range(0, KEYS, 40):
                train(tier, np.arange(first, first + 40, dtype=np.uint64), first, 0)
        sizes: list[int] = []
        put = tiered._put_part

        def watched(load: PendingLoad, part: slice) -> int:
            sizes.append(len(load.rows.keys[part]))
            came = put(load, part)
            if len(sizes) == 2:
                for tier in (tiered, memory):
                    train(tier, early[25:35], 700, 1)
            return came

        monkeypatch.setattr(tiered, "_put_part", watched)
        reads = tiered.disk.stats().rows_read
        assert tiered.load_ahead(early) == 30
        assert sizes == [10, 10, 10, 10]
        assert tiered.disk.stats().rows_read - reads == 50  # and those that the lookup read
        assert all_rows(tiered) == all_rows(memory)


def test_a_load_that_fails_does_not_end_loading_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = TieredTier(hr.Table(dim=2, capacity=64, disk="16MB", path=tmp_path), partitions=1)
    for first in range(0, 500, 50):
        tier.find_or_init(np.arange(first, first + 50))
    ahead = RowsAhead({"default": tier})
    with monkeypatch.context() as broken:
        broken.setattr(tier, "load_ahead", lambda keys: (_ for _ in ()).throw(MemoryError()))
        ahead.add("default", np.arange(10, dtype=np.uint64))
        assert ahead.wait(60)
    ahead.add("default", np.arange(10, dtype=np.uint64))
    assert ahead.wait(60)
    assert tier.stats().moved_ahead == 10
    ahead.close()
    tier.close()


def filled(tmp_path: Path) -> tuple[TieredTier, RamTier]:
    """400 rows, the last 100 of them in memory."""
    of_tiers, of_memory = tables(tmp_path)
    both = TieredTier(of_tiers), RamTier(of_memory)
    for tier in both:
        for first in range(0, KEYS, 40):
            train(tier, np.arange(first, first + 40, dtype=np.uint64), first, 0)
    return both


def test_rows_that_left_memory_while_others_were_put_are_read_again(tmp_path: Path) -> None:
    tiered, memory = filled(tmp_path)
    with opened(tiered, memory):
        batch = np.concatenate([np.arange(380, 400, dtype=np.uint64), np.arange(20, dtype=np.uint64)])
        load = tiered.start_load(batch)  # 20 of its rows are in memory, and leave it now
        assert len(load.rows.keys) == 20
        for first in range(100, 260, 40):
            for tier in (tiered, memory):
                train(tier, np.arange(first, first + 40, dtype=np.uint64), first, 1)
        assert tiered.finish_load(load) == 40
        assert RamTier.read(tiered, batch, "version").all()
        assert all_rows(tiered) == all_rows(memory)
        assert tiered.stats().moved_ahead == 40


def test_rows_that_changed_since_they_were_read_are_taken_as_they_are_now(tmp_path: Path) -> None:
    tiered, memory = filled(tmp_path)
    early, others = np.arange(20, dtype=np.uint64), np.arange(100, 200, dtype=np.uint64)
    with opened(tiered, memory):
        load = tiered.start_load(early)
        for tier in (tiered, memory):
            train(tier, early, 900, 1)
            tier.erase(early[:5])
            train(tier, others[:50], 901, 1), train(tier, others[50:], 902, 1)  # changed rows are on disk again
        assert RamTier.read(tiered, early, "version").sum() == 0
        assert tiered.finish_load(load) == 15
        assert all_rows(tiered) == all_rows(memory)


def test_what_was_read_before_a_clear_stays_away(tmp_path: Path) -> None:
    tiered, memory = filled(tmp_path)
    with opened(tiered, memory):
        load = tiered.start_load(np.arange(20, dtype=np.uint64))
        assert len(load.rows.keys) == 20
        tiered.clear()
        assert tiered.finish_load(load) == 0
        assert len(tiered) == 0
        train(tiered, np.arange(5, dtype=np.uint64), 0, 0)
        assert len(tiered) == 5


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_two_loads_on_their_way_never_bring_an_old_row(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Reads begin in the order of the batches, and end in it, as those of a loader; other calls come between."""
    folder = tmp_path_factory.mktemp("loads")
    of_tiers, of_memory = tables(folder, **KINDS[data.draw(st.sampled_from(sorted(KINDS)))])
    tiered, memory = TieredTier(of_tiers), RamTier(of_memory)
    loads: list[PendingLoad] = []
    held: list[PendingLoad] = []  # their rows stay
    with opened(tiered, memory):
        for _ in range(data.draw(st.integers(10, 40))):
            seed = data.draw(st.integers(0, 1000))
            keys = np.random.default_rng(seed).integers(0, KEYS, 45).astype(np.uint64)
            match data.draw(st.sampled_from(("train", "train", "erase", "read", "put", "clear"))):
                case "train":
                    train(tiered, keys, seed, seed), train(memory, keys, seed, seed)
                case "erase":
                    assert tiered.erase(keys[:9]) == memory.erase(keys[:9])
                case "read" if len(loads) < 2:
                    loads.append(tiered.start_load(keys))
                case "put" if loads:
                    held = [*held[-1:], loads.pop(0)]
                    tiered.finish_load(held[-1])
                case "clear" if seed % 5 == 0:
                    tiered.clear()
                    memory.clear()
        for load in loads:
            tiered.finish_load(load)
        assert all_rows(tiered) == all_rows(memory)
        assert tiered.verify() == []


def test_a_loader_reads_rows_of_a_batch_while_those_of_the_batch_before_are_put() -> None:
    pa = pytest.importorskip("pyarrow")
    schema = Schema(label="clicked", ids=["user"])
    source = ArrowSource(pa.table({"clicked": [1, 0, 1, 0], "user": ["a", "b", "c", "d"]}), schema)
    loader = Loader(source, batch=1)
    order: list[str] = []
    second_read = threading.Event()

    def load_rows(batch: hr.data.Batch) -> RowPut:
        number = sum(each.startswith("read") for each in order)
        order.append(f"read {number}")
        if number == 1:
            second_read.set()

        def put() -> None:
            if number == 0:
                assert second_read.wait(WAIT_S), "the second batch is not read while the first one is put"
            order.append(f"put {number}")

        return put

    loader.load_rows = load_rows
    assert len(list(loader)) == 4
    assert [each for each in order if each.startswith("put")] == [f"put {number}" for number in range(4)]
    assert order.index("read 1") < order.index("put 0")
    assert all(order.index(f"read {number}") < order.index(f"put {number}") for number in range(4))


def test_tables_read_all_rows_of_a_batch_and_put_them_by_the_call_that_comes_back(tmp_path: Path) -> None:
    table = hr.Table(dim=2, capacity=64, disk="16MB", path=tmp_path)
    client = LocalTables({"default": table}, threads=1)
    tier = client.tiers["default"]
    assert isinstance(tier, TieredTier)
    with opened(tier):
        for first in range(0, 500, 50):
            tier.find_or_init(np.arange(first, first + 50))
        ids = hr.data.FeatureBlock("default", "one", ("user",), np.arange(20))
        put = client.start_load(hr.data.Batch((ids,), np.zeros((20, 0), np.float32), np.zeros((20, 1), np.float32)))
        assert tier.moved_ahead == 0
        put()
        assert tier.moved_ahead == 20


def test_rows_erased_while_a_load_begins_stay_erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The erasure has decided on its keys, and the disk still has them."""
    tiered, memory = filled(tmp_path)
    early = np.arange(20, dtype=np.uint64)
    begun: list[PendingLoad] = []
    with opened(tiered, memory):
        erase = tiered.disk.erase

        def begin_and_erase(keys: Keys) -> int:
            reader = threading.Thread(target=lambda: begun.append(tiered.start_load(early)))
            reader.start()
            reader.join(WAIT_S)
            return erase(keys)

        with monkeypatch.context() as late:
            late.setattr(tiered.disk, "erase", begin_and_erase)
            assert tiered.erase(early) == 20
        assert len(begun[0].rows.keys) == 20
        assert tiered.finish_load(begun[0]) == 0
        assert len(tiered) == KEYS - 20


def test_a_call_that_waits_for_the_lock_gets_it_after_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiered, memory = filled(tmp_path)
    monkeypatch.setattr("hotrow.store.load_ahead.PUT_AT_ONCE", 10)
    parts: list[int] = []
    parts_before: list[int] = []

    def look() -> None:
        tiered.stats()
        parts_before.append(len(parts))

    with opened(tiered, memory):
        put, waiting = tiered._put_part, threading.Thread(target=look)
        monkeypatch.setattr("hotrow.store.load_ahead.time.sleep", lambda seconds: waiting.join(WAIT_S))

        def counted(load: PendingLoad, part: slice) -> int:
            with tiered._lock:
                if not parts:
                    waiting.start()
                parts.append(part.start)
                return put(load, part)

        monkeypatch.setattr(tiered, "_put_part", counted)
        tiered.load_ahead(np.arange(40, dtype=np.uint64))
        waiting.join(WAIT_S)
    assert len(parts) == 4
    assert parts_before == [1]


def test_a_load_asks_the_disk_once_for_new_ids_and_for_rows_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiered, memory = filled(tmp_path)
    asked: list[int] = []
    with opened(tiered, memory):
        read = tiered.disk.read

        def counted(keys: Keys, *, shadowed: bool = True) -> tuple[Rows, Flags]:
            asked.append(len(keys))
            return read(keys, shadowed=shadowed)

        monkeypatch.setattr(tiered.disk, "read", counted)
        assert tiered.load_ahead(np.arange(1000, 1050, dtype=np.uint64)) == 0
        assert tiered.load_ahead(np.arange(150, dtype=np.uint64)) == tiered.ram_rows_max
    assert asked == [50, 150]


def test_rows_of_a_batch_stay_while_its_load_is_held(tmp_path: Path) -> None:
    batch = np.concatenate([np.arange(305, 315, dtype=np.uint64), np.arange(10, dtype=np.uint64)])

    def rows_left(hold: bool, folder: Path) -> int:
        folder.mkdir()
        tiered, memory = filled(folder)
        with opened(tiered, memory):
            held = [tiered.start_load(batch)]  # the first ten have been in memory for longer than all others
            assert tiered.finish_load(held[0]) == 10
            if not hold:
                held.clear()
            for first in range(100, 160, 20):
                tiered.load_ahead(np.arange(first, first + 20, dtype=np.uint64))
            return int((RamTier.read(tiered, batch, "version") > 0).sum())

    assert rows_left(True, tmp_path / "held") == 20
    assert rows_left(False, tmp_path / "let go") < 20


def test_rows_that_stay_do_not_keep_out_those_of_a_lookup(tmp_path: Path) -> None:
    tiered, memory = filled(tmp_path)
    with opened(tiered, memory):
        held = [tiered.start_load(np.arange(first, first + 50, dtype=np.uint64)) for first in (0, 50)]
        assert sum(tiered.finish_load(load) for load in held) == tiered.ram_rows_max
        assert tiered.load_ahead(np.arange(100, 150, dtype=np.uint64)) == 0
        assert tiered.find_or_init(np.arange(100, 180, dtype=np.uint64)).absent == 0


def test_a_table_that_is_being_closed_takes_no_rows_that_were_read(tmp_path: Path) -> None:
    tiered, memory = filled(tmp_path)
    with opened(tiered, memory):
        load = tiered.start_load(np.arange(20, dtype=np.uint64))
        with tiered._reads.shut():
            assert tiered.finish_load(load) == 0
            assert len(tiered.start_load(np.arange(20, 40, dtype=np.uint64)).rows.keys) == 0
