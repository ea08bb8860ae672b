"""A checkpoint that is written beside training takes little from it, and hurries once training waits for it."""

import os
import sys
import threading
from pathlib import Path

import pytest

import hotrow as hr
from hotrow.checkpoint import SavedCheckpoint
from hotrow.checkpoint.local_cut import LocalCut
from hotrow.trainer import write_pace
from hotrow.trainer.write_pace import SLOWDOWN_ON_OTHER_CORE, WritePace, nice_of
from unit.trainer.test_saving import fit, rows, trainer


def share_of_a_core(nice: int) -> float:
    """That a thread gets beside one of nice 0, by the weights of Linux."""
    weight = 1 / 1.25**nice
    return weight / (1 + weight)


@pytest.mark.parametrize("slowdown", [0.02, 0.05, 0.1, 0.3])
def test_the_priority_is_the_highest_that_keeps_the_share(slowdown: float) -> None:
    nice = nice_of(slowdown)
    assert share_of_a_core(nice) <= slowdown < share_of_a_core(nice - 1)


def test_there_is_a_lowest_priority_and_a_usual_one() -> None:
    assert [nice_of(each) for each in (0.001, 0.05, 0.49, 0.5, 1.0)] == [19, 14, 1, 0, 0]


@pytest.mark.parametrize("slowdown", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_that_cannot_be_is_refused_before_anything_is_written(slowdown: float, tmp_path: Path) -> None:
    made = trainer()
    with pytest.raises(hr.ConfigError, match=r"slowdown=.*: must be above 0 and at most 1"):
        made.save_in_background(tmp_path / "c", slowdown=slowdown)
    assert not (tmp_path / "c").exists()
    made.save(tmp_path / "c")  # no cut is left open
    made.close()


def test_a_thread_rests_until_it_has_worked_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    worked, now = [0.0], [0.0]
    rests: list[float] = []
    monkeypatch.setattr("hotrow.trainer.write_pace.time.thread_time", lambda: worked[0])
    monkeypatch.setattr("hotrow.trainer.write_pace.time.monotonic", lambda: now[0])
    pace = WritePace(SLOWDOWN_ON_OTHER_CORE / 4)
    monkeypatch.setattr(pace, "nice", 0)
    monkeypatch.setattr(pace._hurry, "wait", rests.append)
    pace.begin()
    for work, elapsed in ((0.001, 0.001), (0.009, 0.009), (0.010, 0.030), (0.010, 0.100)):
        worked[0] += work
        now[0] += elapsed
        pace.rest()
    # 1 ms is too little for a rest; 10 ms of work take 40; the rest of the third piece is what it waited by itself
    assert rests == pytest.approx([0.030, 0.010])


@pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads")
def test_only_a_save_beside_training_has_a_low_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, found = os.getpriority(os.PRIO_PROCESS, 0), []
    write = LocalCut.write

    def noted(*given: object) -> object:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return write(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalCut, "write", noted)
    made = trainer()
    fit(made, 2)
    made.save(tmp_path / "c")
    saving = made.save_in_background(tmp_path / "c")
    while not saving.done:
        fit(made, 1)
    assert found == [usual, min(19, usual + 14)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual
    made.close()


def test_a_save_that_training_waits_for_does_not_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_pace, "SLICE_S", 0.0)
    made = trainer()
    fit(made, 2)
    saving = made.save_in_background(tmp_path / "c", slowdown=1e-9)  # a rest of hours after the first piece
    fit(made, 1)
    assert not saving.done
    made.finish_saving()
    SavedCheckpoint.open(tmp_path / "c").verify()
    assert rows(made)
    made.close()
