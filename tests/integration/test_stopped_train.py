"""`hotrow train` that is stopped, in a process of its own: by Ctrl-C, by a second one, and by SIGKILL."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hotrow.checkpoint import SavedCheckpoint
from hotrow.run import Run, load_config
from small_run import CONFIG, write_data

PROGRAM = Path(__file__).with_name("stoppable_train.py")
EPOCHS = 20
ON_RAY = ["--engine", "ray", "--shards", "2"]
WAIT_S, SAVE_S = 200.0, 90.0
each_engine = pytest.mark.parametrize(
    "engine", [[], pytest.param(ON_RAY, marks=[pytest.mark.slow, pytest.mark.ray])], ids=["local", "ray"]
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    often = f"epochs = {EPOCHS}\ncheckpoint_every = 1000\ntorch_threads = 1\n"
    return write_data(tmp_path, CONFIG.replace("epochs = 2\n", often))


def start(config: Path, *more: str, save_s: float = 0.0) -> "subprocess.Popen[str]":
    command = [sys.executable, str(PROGRAM), str(save_s), "train", str(config), *more]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=config.parent, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def finish(config: Path, *changes: str, resume: bool = False) -> dict[str, object]:
    """Run to the end, in this process; gives the figures."""
    threads = torch.get_num_threads()
    try:
        with Run(load_config(config, (f"run.folder={config.parent / 'runs'}", *changes)), resume=resume) as run:
            list(run)
    finally:
        torch.set_num_threads(threads)
    return run.summary


def until(process: "subprocess.Popen[str]", done: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not done():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def events(folder: Path, kind: str) -> int:
    file = folder / "events.jsonl"
    return file.read_text().count(f'"{kind}"') if file.exists() else 0


def newest(folder: Path) -> SavedCheckpoint:
    found = SavedCheckpoint.open(folder / "checkpoint")
    found.verify()
    return found


@pytest.mark.slow  # test_stranger.py is the same in one process
@pytest.mark.ray
def test_ctrl_c_saves_what_is_trained_on_ray_and_a_resume_trains_the_rest(config: Path) -> None:
    folder = config.parent / "runs/small"
    process = start(config, *ON_RAY)
    until(process, lambda: events(folder, "progress") > 0)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, told
    assert told.splitlines()[-1] == f"resume with: hotrow train {config} {shlex.join(ON_RAY)} --resume"
    samples = newest(folder).manifest.counters["samples"]
    assert 0 < samples < EPOCHS * 3000
    assert finish(config, resume=True)["samples"] == EPOCHS * 3000


@each_engine
def test_a_second_ctrl_c_ends_the_run_at_once_and_the_checkpoint_before_serves(config: Path, engine: list[str]) -> None:
    """It comes while the last checkpoint is written, which would take minutes."""
    folder = config.parent / "runs/small"
    process = start(config, *engine, save_s=SAVE_S)
    until(process, lambda: events(folder, "checkpoint") > 0)
    before = newest(folder).manifest.counters["samples"]
    process.send_signal(signal.SIGINT)
    time.sleep(1)
    assert process.poll() is None, "the first one waits for the checkpoint"
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, told = process.communicate(timeout=WAIT_S)
    assert time.monotonic() - began < SAVE_S / 2
    assert process.returncode == 130, told
    last = told.splitlines()[-1]
    assert last.startswith("samples trained since the last checkpoint are lost, resume from it with: hotrow train "), (
        told
    )
    assert newest(folder).manifest.counters["samples"] == before
    assert finish(config, resume=True)["samples"] == EPOCHS * 3000


def test_a_run_that_was_killed_between_two_checkpoints_ends_with_the_bits_of_one_that_was_not(config: Path) -> None:
    """Sync in one process, one thread."""
    whole = finish(config, "run.name=whole")
    folder = config.parent / "runs/small"
    process = start(config)
    until(process, lambda: events(folder, "checkpoint") > 1)
    kept = events(folder, "progress")
    until(process, lambda: events(folder, "progress") > kept)
    process.kill()
    process.communicate()
    saved = newest(folder).manifest.counters["samples"]
    assert 0 < saved < EPOCHS * 3000
    again = finish(config, resume=True)
    assert again["test_logloss"] == whole["test_logloss"]
    assert again["test_auc"] == whole["test_auc"]
    ours, theirs = newest(folder), newest(config.parent / "runs/whole")
    assert ours.dense() == theirs.dense()
    rows = [sorted_rows(each) for each in (ours, theirs)]
    assert all(np.array_equal(*pair) for pair in zip(*rows, strict=True))


def sorted_rows(found: SavedCheckpoint) -> tuple[np.ndarray, np.ndarray]:
    chunks = list(found.rows("default"))
    keys = np.concatenate([chunk.keys for chunk in chunks])
    values = np.concatenate([np.hstack([chunk.values, chunk.state]) for chunk in chunks])
    order = np.argsort(keys)
    return keys[order], values[order]
