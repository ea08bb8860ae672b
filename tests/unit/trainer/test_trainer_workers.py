"""A trainer with several workers: nothing hangs, nothing is trained in a larger batch than promised."""

import threading
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest
import torch

import hotrow as hr
from hotrow.data.batch import Batch
from hotrow.data.loader import Loader
from hotrow.modes import KStep
from hotrow.staleness import Cutoff, Staleness
from hotrow.trainer import Report
from unit.trainer.conftest import Made, make_trainer


def batches(rows: int, size: int) -> list[Batch]:
    return [batch for _, batch in Loader(Made(rows), size)]


def test_given_batches_that_would_make_the_global_batch_larger_are_refused() -> None:
    trainer = make_trainer(workers=4)
    with pytest.raises(hr.InputError, match="batch 0 has 64 samples, and one worker's share is 16"):
        list(trainer.fit(batches(640, 64)))
    assert trainer.samples == 0
    list(trainer.fit(batches(640, 16)))
    assert (trainer.samples, trainer.step) == (640, 10)
    trainer.close()


def test_a_loader_of_another_size_is_refused() -> None:
    trainer = make_trainer(workers=4)
    with pytest.raises(hr.ConfigError, match="make it with batch=16"):
        list(trainer.fit(Loader(Made(640), 64)))
    list(trainer.fit(Loader(Made(640), 16)))
    assert trainer.step == 10
    trainer.close()


def test_a_loader_holds_as_much_as_before_when_the_fit_is_over() -> None:
    trainer = make_trainer(workers=4)
    loader = Loader(Made(640), 16)
    before = loader.held
    list(trainer.fit(loader))
    assert loader.held == before
    trainer.close()


def test_after_a_fault_on_the_way_to_rest_the_next_fit_trains() -> None:
    trainer = make_trainer(mode="async", workers=2, report_every_s=0)
    fit = cast(Generator[Report, None, None], trainer.fit(Made(640)))
    while (active := trainer._loop._active) is None:
        next(fit)
    taken = active.executor.next_result

    def faulty() -> object:
        taken()
        raise RuntimeError("of the model")

    active.executor.next_result = faulty  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError, match="of the model"):
        fit.close()
    assert not trainer._loop.busy
    before = trainer.samples
    list(trainer.fit(Made(640)))
    assert trainer.samples == before + 640
    trainer.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("worker-")]


def test_a_state_is_not_loaded_into_a_running_fit(tmp_path: Path) -> None:
    trainer = make_trainer(workers=2, report_every_s=0)
    trainer.save(tmp_path / "before")
    fit = cast(Generator[Report, None, None], trainer.fit(Made(640)))
    next(fit)
    with pytest.raises(hr.InputError, match="a fit is under way"):
        trainer.load(tmp_path / "before")
    fit.close()
    trainer.load(tmp_path / "before")
    assert trainer.samples == 0
    trainer.close()


def test_what_a_stop_finds_under_way_is_in_the_speed_too() -> None:
    trainer = make_trainer(mode="async", workers=4)
    *_, ended = trainer.fit(Made(640), most_samples=64)
    assert isinstance(ended, hr.trainer.TrainingEnded)
    assert ended.samples == trainer.samples
    assert ended.samples_per_s * ended.seconds == pytest.approx(trainer.samples)
    trainer.close()


def test_clipping_reaches_the_workers_of_k_step() -> None:
    moved = []
    for clip in (None, 1e-6):
        trainer = make_trainer(
            mode=KStep(k=2, warmup=0), workers=2, clip=clip, optimizer=lambda p: hr.KStepAdam(p, lr=0.01, eps=1.0)
        )
        before = torch.nn.utils.parameters_to_vector(trainer.model.parameters()).detach()
        list(trainer.fit(Made(640)))
        after = torch.nn.utils.parameters_to_vector(trainer.model.parameters()).detach()
        moved.append(float((after - before).abs().sum()))
        trainer.close()
    assert moved[1] < moved[0] / 100


def test_workers_without_a_batch_do_not_hold_merges_back() -> None:
    moved = []
    for workers in (2, 8):
        trainer = make_trainer(
            mode=KStep(k=1), workers=workers, local_batch=32, optimizer=lambda p: hr.KStepAdam(p, lr=0.01)
        )
        before = torch.nn.utils.parameters_to_vector(trainer.model.parameters()).detach()
        list(trainer.fit(Made(640)))
        after = torch.nn.utils.parameters_to_vector(trainer.model.parameters()).detach()
        moved.append(float((after - before).norm()))
        trainer.close()
    assert moved[1] == pytest.approx(moved[0], rel=0.2)  # with their copies in the mean: less than half


@pytest.mark.parametrize("late", [Staleness(decay=Cutoff(), groups="dense"), Staleness(decay=Cutoff(), movement=1.0)])
def test_hybrid_refuses_a_policy_that_would_do_nothing(late: Staleness) -> None:
    with pytest.raises(hr.ConfigError, match="dense gradients are never late"):
        hr.Hybrid(staleness=late)


def test_running_figures_go_forward_in_async_whatever_copy_they_were_gathered_on() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(9, 1)
            self.seen: torch.Tensor
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: hr.Inputs) -> torch.Tensor:
            if self.training:
                self.seen += len(x.numbers)
            odds: torch.Tensor = self.layer(torch.cat([x.flat, x.numbers], 1)).squeeze(1)
            return odds

    model = Counting()
    trainer = hr.Trainer(model, hr.Table(dim=4), mode="async", workers=4, global_batch=64, threads=1)
    list(trainer.fit(Made(640)))
    assert float(model.seen) == 640
    trainer.close()
