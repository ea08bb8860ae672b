"""Paddle's parameter server as a peer: it gets the file's rows, and what goes wrong in its environment is told."""

import os
import sys
from pathlib import Path

import numpy as np
import paddle_peer
import pytest
from paddle_peer import PaddlePeer, write_arrays

from hotrow.bench.peers import load_adapters
from hotrow.bench.rounds import SilentProgress
from hotrow.bench.train import write_file
from hotrow.bench.train_plan import TrainPlan
from hotrow.data.loader import Loader
from hotrow.errors import ConfigError, HotrowError

PLAN = TrainPlan(rows=2000, rounds=1, steps=3, samples=64, features=3, numbers=2)
PADDLE = os.environ.get("HOTROW_PADDLE_PYTHON")  # of an environment that has it


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f.parquet"
    write_file(PLAN, path, SilentProgress())
    return path


def test_arrays_hold_the_rows_of_the_file_in_their_order(file: Path, tmp_path: Path) -> None:
    source = write_file(PLAN, file, SilentProgress())
    ((_, whole),) = Loader(source, 10_000)
    assert write_arrays(file, tmp_path / "rows.npz") == len(whole)
    with np.load(tmp_path / "rows.npz") as found:
        np.testing.assert_array_equal(found["ids"].reshape(-1), whole.parts[0].keys)
        np.testing.assert_array_equal(found["numbers"], whole.numbers)
        assert whole.labels is not None
        np.testing.assert_array_equal(found["labels"], whole.labels.reshape(-1))


def test_an_environment_without_paddle_is_told_of(file: Path) -> None:
    with pytest.raises(
        HotrowError, match=r"(?s)ended with status 1: (TRAINER|PSERVER)-0 ended .*No module named 'paddle'"
    ):
        PaddlePeer(Path(sys.executable), PLAN, 4, (8,), file)


def test_a_python_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOTROW_PADDLE_PYTHON", str(tmp_path / "python"))
    with pytest.raises(ConfigError, match="python: is not there: make an environment with Paddle and name its Python"):
        load_adapters([Path(paddle_peer.__file__)], "cluster")


@pytest.mark.skipif(PADDLE is None, reason="HOTROW_PADDLE_PYTHON names no Python with paddlepaddle 2.6.2")
def test_it_learns_round_by_round(file: Path) -> None:
    with PaddlePeer(Path(PADDLE or ""), PLAN, 4, (8,), file) as peer:
        losses = []
        for turn in range(4):
            assert peer.segment(turn) > 0
            losses.append(peer.loss)
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
