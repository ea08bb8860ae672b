"""Half a step is never saved: a fault in it is told, and only a checkpoint brings a consistent state back."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hotrow.errors import InputError
from hotrow.modes import Async, Hybrid, KStep, Mode, Sync
from hotrow.runtime.interrupts import defer_every_sigint, defer_sigint
from hotrow.trainer import Trainer
from unit.runtime.local_server import server_of
from unit.runtime.small_training import trainer_of
from unit.trainer.conftest import Made, make_trainer

HALF = "a step was applied in part"


def failing_at(call: int, act: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with a fault in one of its calls."""
    calls = []

    def failing(*given: Any, **settings: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise RuntimeError("out of memory")
        return act(*given, **settings)

    return failing


def fail_in_dense_step(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trainer.optimizer is not None
    monkeypatch.setattr(trainer.optimizer, "step", failing_at(3, trainer.optimizer.step))


def test_a_step_whose_dense_half_failed_is_neither_saved_nor_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer()
    fail_in_dense_step(trainer, monkeypatch)
    with pytest.raises(RuntimeError, match="out of memory"):
        list(trainer.fit(Made(1000)))
    with pytest.raises(InputError, match=f"{HALF}.*: load the last checkpoint"):
        trainer.save(tmp_path / "half")
    with pytest.raises(InputError, match=HALF):
        list(trainer.fit(Made(1000)))
    assert not (tmp_path / "half").exists()
    assert (trainer.samples, trainer.step) == (128, 2)  # of whole steps
    trainer.close()


def test_a_checkpoint_brings_a_consistent_state_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer()
    trainer.save(tmp_path / "before")
    with monkeypatch.context() as patched:
        fail_in_dense_step(trainer, patched)
        with pytest.raises(RuntimeError, match="out of memory"):
            list(trainer.fit(Made(1000)))
    trainer.load(tmp_path / "before")
    list(trainer.fit(Made(1000)))
    trainer.save(tmp_path / "after")
    assert trainer.samples == 1000
    trainer.close()


@pytest.mark.parametrize("mode", [Hybrid(max_in_flight=2), KStep(k=3, warmup=0)], ids=lambda mode: str(mode.name))
def test_rows_that_are_ahead_of_dense_parameters_are_not_saved(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(mode, workers=2, local_batch=16)
    monkeypatch.setattr(torch.nn.functional, "relu", failing_at(7, torch.nn.functional.relu))  # in the second step
    with pytest.raises(RuntimeError, match="out of memory"):
        list(trainer.fit(Made(1000)))
    with pytest.raises(InputError, match=HALF):
        trainer.save(tmp_path / "half")
    trainer.close()


@pytest.mark.parametrize("mode", [Sync(), Async()], ids=lambda mode: str(mode.name))
def test_a_fault_of_a_worker_between_whole_steps_loses_nothing(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trainer_of(mode, workers=2)
    monkeypatch.setattr(torch.nn.functional, "relu", failing_at(5, torch.nn.functional.relu))
    with pytest.raises(RuntimeError, match="out of memory"):
        list(trainer.fit(Made(1000)))
    position = trainer.position
    assert position is not None
    assert trainer.samples == position.samples
    trainer.save(tmp_path / "whole")
    trainer.close()


def test_a_second_interrupt_waits_for_the_end_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make_trainer()
    server = server_of(trainer)
    dense_step = server.dense_step

    def interrupted(*given: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return dense_step(*given)

    monkeypatch.setattr(server, "dense_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(trainer.fit(Made(1000)))
    position = trainer.position
    assert position is not None
    assert trainer.samples == position.samples == 64
    trainer.save(tmp_path / "whole")
    trainer.close()


def test_a_second_interrupt_comes_at_the_end_of_the_block_that_holds_all() -> None:
    done = []

    def work() -> None:
        with defer_sigint():
            with defer_every_sigint():
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
                done.append("whole")
            done.append("too late")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["whole"]


def test_a_first_interrupt_in_the_block_that_holds_all_waits_for_the_outer_one() -> None:
    done = []

    def work() -> None:
        with defer_sigint():
            with defer_every_sigint():
                signal.raise_signal(signal.SIGINT)
            done.append("after the inner one")
        done.append("too late")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["after the inner one"]
