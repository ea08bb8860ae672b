"""Checkpoints of a run while it trains: beside early stopping, as deltas, and where one cannot be written."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from hotrow import checkpoint
from hotrow.checkpoint import SavedCheckpoint, local_cut
from hotrow.checkpoint.rows import write_rows
from hotrow.obs.events import read_events
from hotrow.run import Run, load_config
from hotrow.trainer import Remark
from small_run import CONFIG, write_data

OFTEN = "checkpoint_every = 1\ncheckpoint_keep = 99\ncheckpoint_full_every = 4\n"
STOPS = "early_stopping = { patience = 1, least = 0.5 }\n"


def run_of(folder: Path, more: str) -> Run:
    text = CONFIG.replace('test = "test.csv"', 'test = "test.csv"\nvalid = "test.csv"').replace(
        "epochs = 2", "epochs = 4"
    )
    run = Run(load_config(write_data(folder, text + more), [f"run.folder={folder / 'runs'}"]))
    run.trainer._report_every_s = 0
    return run


def test_early_stopping_and_checkpoints_on_the_way(tmp_path: Path) -> None:
    run = run_of(tmp_path, OFTEN + STOPS)
    with run:
        list(run)
    assert run.summary["stopped"] == "early stopping"
    events = [event for event in read_events(run.folder / "events.jsonl").events if event["kind"] == "checkpoint"]
    saved = {each.name: SavedCheckpoint.open(each) for each in (run.folder / "checkpoint").iterdir()}
    assert len(events) == len(saved) > 2
    for event in events:
        found = saved[f"{event['number']:06d}"].manifest
        assert (event["content"], event["samples"]) == (found.kind, found.counters["samples"])
    newest = SavedCheckpoint.open(run.folder / "checkpoint")
    newest.verify()
    assert newest.manifest.counters["samples"] == run.summary["samples"]


def test_deltas_stand_between_full_ones_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    run = run_of(tmp_path, OFTEN)
    with run:
        for _ in run:
            run._recorder._take_saved(wait=True)
    events = [event for event in read_events(run.folder / "events.jsonl").events if event["kind"] == "checkpoint"]
    kinds = "".join(event["content"][0] for event in events)
    assert "fdddf" in kinds
    assert "dddd" not in kinds
    again = load_config(run.folder / "config.toml", ["run.epochs=5", f"run.folder={tmp_path / 'runs'}"])
    with Run(again, resume=True) as resumed:
        list(resumed)
    assert resumed.summary["samples"] == run.summary["samples"] * 5 // 4


@pytest.mark.parametrize("more", ["", STOPS])
def test_a_checkpoint_that_fails_on_the_way_is_a_warning(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, OFTEN + more)
    failed: list[bool] = []

    def refused(*given: object, **named: object) -> object:
        if "/small/checkpoint" in str(given[0].name) and len(failed) < 2:  # type: ignore[attr-defined]
            failed.append(True)
            raise OSError(28, "No space left on device")
        return write_rows(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(local_cut, "write_rows", refused)
    with run:
        remarks = [report.sentence for report in run if isinstance(report, Remark)]
    assert len([each for each in remarks if "the next attempt is 1 samples later" in each]) == 2
    assert SavedCheckpoint.open(run.folder / "checkpoint").manifest.counters["samples"] == run.summary["samples"]


def test_a_slow_disk_is_told_once_and_checkpoints_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, whole = run_of(tmp_path, OFTEN), checkpoint.write_checkpoint
    begun, told, written = [], [], threading.Event()

    def slow(*given: Any, **named: Any) -> Any:
        begun.append(run.trainer.samples)
        written.wait(60)
        return whole(*given, **named)

    monkeypatch.setattr(checkpoint, "write_checkpoint", slow)
    with run:
        for number, report in enumerate(run):
            if isinstance(report, Remark):
                told.append(report.sentence)
            if number == 20:
                assert len(begun) == 1
                written.set()
                run.trainer.finish_saving()  # on a busy machine the run would end before it
    assert len(begun) > 2
    (line,) = (each for each in told if "is due" in each)
    size = r"[\d.]+ k?B of about [\d.]+ kB in [\d.]+ s"
    assert re.search(rf"checkpoint: the next checkpoint is due, and the one before is being written \({size}\)", line)
    assert line.endswith("begins when it is done, raise run.checkpoint_every=1, or save to a faster disk")
