"""What a load that is on its way notes, and how long it is known."""

import gc
import threading
from collections.abc import Callable

import numpy as np
import pytest

import hotrow as hr
from hotrow.store import RamTier
from hotrow.store.pending_load import PendingLoad, PendingLoads, ReadGate

WAIT_S = 60.0


@pytest.fixture
def tier() -> RamTier:
    return RamTier(hr.Table(dim=2))


def load_of(tier: RamTier, keys: list[int]) -> PendingLoad:
    return PendingLoad(tier.batch(np.array(keys, np.uint64)), tier._empty_rows(0))


def uint64(*keys: int) -> np.ndarray:
    return np.array(keys, np.uint64)


def test_keys_that_moved_are_noted_and_others_are_not(tier: RamTier) -> None:
    load = load_of(tier, [9, 3, 2**64 - 1, 5])
    load.note_moved(uint64(5, 4, 2**64 - 1, 10))
    assert load.moved(uint64(9, 3, 2**64 - 1, 5)).tolist() == [False, False, True, True]
    load.note_moved(uint64(3))
    assert load.moved(uint64(3, 9)).tolist() == [True, False]


def test_a_restart_gives_what_moved_and_forgets_it(tier: RamTier) -> None:
    load = load_of(tier, [9, 3, 5])
    load.note_moved(uint64(5, 7))
    assert load.restart().tolist() == [5]
    assert load.restart().tolist() == []
    load.note_moved(uint64(9))
    assert load.moved(uint64(3, 5, 9)).tolist() == [False, False, True]


def test_nothing_of_a_table_that_was_cleared_is_as_it_was_read(tier: RamTier) -> None:
    load = load_of(tier, [9, 3])
    load.drop()
    assert load.moved(uint64(3, 9)).all()


def test_a_batch_without_keys_takes_notes(tier: RamTier) -> None:
    load = load_of(tier, [])
    load.note_moved(uint64(1))
    load.drop()
    assert load.moved(uint64()).tolist() == []
    assert load._noted == []
    assert load.restart().tolist() == []


def test_notes_of_a_load_that_waits_for_long_take_no_more_room_than_its_keys(tier: RamTier) -> None:
    loads, load = PendingLoads(), load_of(tier, list(range(100)))
    loads.begin(load)
    for first in range(0, 10_000, 50):
        loads.note_moved(np.arange(first, first + 50, dtype=np.uint64))
        assert sum(len(keys) for keys in load._noted) <= 100
    assert load.moved(np.arange(100, dtype=np.uint64)).all()


def test_a_finished_load_has_neither_rows_nor_notes_and_is_forgotten_with_its_last_reference(tier: RamTier) -> None:
    loads, load = PendingLoads(), load_of(tier, [1, 2])
    loads.begin(load)
    assert (loads.announced, loads.waiting()) == (2, [])
    load.rows = tier._empty_rows(2)
    loads.finish(load)
    loads.note_moved(uint64(1))
    assert (len(load.rows.keys), load._noted) == (0, [])
    assert loads.waiting() == [load.plan]
    del load
    gc.collect()
    assert loads.waiting() == []


def test_rows_of_the_batches_that_come_next_stay_and_not_those_of_all_that_wait(tier: RamTier) -> None:
    loads, held = PendingLoads(), [load_of(tier, [key]) for key in range(5)]
    for load in held:
        loads.begin(load)
        loads.finish(load)
    assert loads.waiting() == [load.plan for load in held[:3]]
    del held[0], load
    gc.collect()
    assert loads.waiting() == [load.plan for load in held[:3]]


def test_a_gate_waits_for_reads_and_lets_none_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, inside, shutting, go = ReadGate(), threading.Event(), threading.Event(), threading.Event()
    seen: list[str] = []
    wait_for = gate._changed.wait_for

    def read() -> None:
        with gate.reading() as may_read:
            assert may_read
            inside.set()
            assert go.wait(WAIT_S)
            seen.append("read")

    def shut() -> None:
        with gate.shut():
            seen.append("shut")
            with gate.reading() as may_read:
                assert not may_read

    def told(condition: Callable[[], bool]) -> bool:
        shutting.set()
        return wait_for(condition)

    monkeypatch.setattr(gate._changed, "wait_for", told)
    threads = threading.Thread(target=read), threading.Thread(target=shut)
    threads[0].start()
    assert inside.wait(WAIT_S)
    threads[1].start()
    assert shutting.wait(WAIT_S)
    assert seen == []
    go.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert seen == ["read", "shut"]
    with gate.reading() as may_read:
        assert may_read


def test_a_gate_that_is_interrupted_while_it_waits_lets_reads_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = ReadGate()

    def interrupted(condition: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as ctrl_c:
        ctrl_c.setattr(gate._changed, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), gate.shut():
            pass
    with gate.reading() as may_read:
        assert may_read
