"""Workers as threads: Sync of many is one with the whole batch, and every mode trains every sample once."""

import numpy as np
import pytest
import torch
from torch import Tensor

import hotrow as hr
from hotrow.errors import ConfigError, InputError
from hotrow.modes import GBA, Async, BackupWorkers, Hybrid, KStep, Mode, Sync
from hotrow.nn.inputs import Inputs
from hotrow.trainer import EpochEnded, Evaluated, Trainer, TrainingEnded
from unit.runtime.local_server import server_of
from unit.runtime.small_training import every_mode, largest_difference, losses, threads_of_workers, trainer_of
from unit.trainer.conftest import Made, Net


@pytest.mark.parametrize(("optimizer", "near"), [("sgd", 1e-5), ("adagrad", 1e-5), ("adam", 1e-4)])
def test_sync_with_many_workers_is_one_with_the_whole_batch(optimizer: str, near: float) -> None:
    rows = 64 * 200 - 23  # 200 steps; the last is short, and its slices are uneven
    one, many = trainer_of(Sync(), 1, optimizer), trainer_of(Sync(), 4, optimizer)
    expected, found = losses(one.fit(Made(rows))), losses(many.fit(Made(rows)))
    assert len(expected) == len(found) == 200
    np.testing.assert_allclose(found, expected, atol=near)
    assert largest_difference(one, many) < 10 * near
    assert many.statistics.short_steps == one.statistics.short_steps == 1


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_sync_does_not_depend_on_the_number_of_workers(workers: int) -> None:
    one, other = trainer_of(Sync(), 1), trainer_of(Sync(), workers, local_batch=16)
    np.testing.assert_allclose(losses(other.fit(Made(1000))), losses(one.fit(Made(1000))), atol=1e-4)


def test_sync_with_threads_gives_the_same_bits_twice() -> None:
    first, second = trainer_of(Sync(), 4), trainer_of(Sync(), 4)
    assert losses(first.fit(Made(2000))) == losses(second.fit(Made(2000)))
    assert largest_difference(first, second) == 0


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_hybrid_with_one_worker_and_one_in_flight_is_sync(optimizer: str) -> None:
    sync, hybrid = trainer_of(Sync(), 1, optimizer), trainer_of(Hybrid(max_in_flight=1), 1, optimizer)
    rows = 64 * 50
    assert losses(sync.fit(Made(rows))) == losses(hybrid.fit(Made(rows)))
    assert largest_difference(sync, hybrid) == 0


def test_hybrid_ahead_is_not_sync_and_says_how_late_rows_are() -> None:
    sync, hybrid = trainer_of(Sync(), 1), trainer_of(Hybrid(max_in_flight=4), 1)
    assert losses(sync.fit(Made(64 * 50))) != losses(hybrid.fit(Made(64 * 50)))
    assert hybrid.statistics.gradient.largest == 0
    assert hybrid.statistics.rows.largest == 3


def test_async_with_one_worker_is_sync_of_local_batches() -> None:
    small, alone = trainer_of(Sync(), 1, global_batch=16), trainer_of(Async(), 1, local_batch=16)
    assert losses(small.fit(Made(640))) == losses(alone.fit(Made(640)))
    assert largest_difference(small, alone) == 0


@every_mode
def test_every_sample_is_trained_once_over_epochs_with_validation(mode: Mode) -> None:
    trainer = trainer_of(mode, 4, report_every_s=3600)
    reports = list(trainer.fit(Made(603), valid=Made(200, seed=1), epochs=3, shuffle=100))
    end = reports[-1]
    assert isinstance(end, TrainingEnded)
    position = trainer.position
    assert position is not None
    assert (position.epoch, position.marks, position.samples) == (3, (), 3 * 603)
    told = trainer.statistics
    dropped = told.samples_dropped.get("late", 0)
    assert (dropped == 0) or mode.name == "backup_workers"
    assert trainer.samples == end.samples == 3 * 603 - dropped
    assert told.samples_applied_rows == trainer.samples
    assert told.granted == told.applied_rows + told.dropped.get("late", 0) == 3 * 38
    assert sum(isinstance(report, EpochEnded) for report in reports) == 3
    valid = [report for report in reports if isinstance(report, Evaluated)]
    assert [report.rows for report in valid] == [200] * 3
    assert threads_of_workers() == []


@every_mode
def test_a_second_fit_goes_on_with_steps_and_counts(mode: Mode) -> None:
    trainer = trainer_of(mode, 2, report_every_s=3600)
    for times in (1, 2):
        list(trainer.fit(Made(333)))
        position = trainer.position
        assert position is not None
        assert position.samples == 333
        assert trainer.statistics.granted == 11 * times
        assert trainer._loop._grants == 11 * times  # no number twice
    if mode.name not in ("k_step", "backup_workers"):
        assert trainer.statistics.steps == trainer.step
        assert trainer.samples == 666


class Faulty(Net):
    """Fails when it sees the number that stands for a broken sample."""

    cured = False

    def forward(self, x: Inputs) -> Tensor:
        if not Faulty.cured and bool((x.numbers > 90).any()):
            raise ZeroDivisionError("spilt milk")
        return super().forward(x)


class Broken(Made):
    """One number is out of all bounds."""

    def __init__(self, rows: int, at: int) -> None:
        super().__init__(rows)
        numbers = self.table["n"].to_numpy().copy()
        numbers[at] = 99.0
        self.table = self.table.set_column(1, "n", [numbers])


@every_mode
def test_a_fault_comes_out_as_it_is_and_the_position_holds_what_was_applied(mode: Mode) -> None:
    Faulty.cured = False
    trainer = trainer_of(mode, 4, model=Faulty, report_every_s=3600)
    data = Broken(1000, at=500)
    with pytest.raises(ZeroDivisionError, match="spilt milk"):
        list(trainer.fit(data))
    assert threads_of_workers() == []
    position = trainer.position
    assert position is not None
    assert not position.is_done(0, 500 // 16)
    dropped = trainer.statistics.samples_dropped.get("late", 0)
    ahead = position.samples != trainer.samples + dropped
    assert not ahead or mode.name == "hybrid"  # whose rows may be ahead of its dense steps
    assert server_of(trainer).parked == 0
    Faulty.cured = True
    if ahead or mode.name == "k_step":  # whose copies were not merged
        with pytest.raises(InputError, match="a step was applied in part"):
            list(trainer.fit(data, position=position))
    else:
        list(trainer.fit(data, position=position))
        assert trainer.position is not None
        assert trainer.position.samples == 1000
    trainer.close()


def test_a_fault_in_the_optimizer_comes_out_and_everybody_goes_home() -> None:
    class Stubborn(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            raise FloatingPointError("no")

    trainer = trainer_of(GBA(), 4)
    model = trainer.model
    server_of(trainer).optimizer = Stubborn(model.parameters(), lr=0.1)
    with pytest.raises(FloatingPointError, match="no"):
        list(trainer.fit(Made(1000)))
    assert threads_of_workers() == []
    trainer.close()


class Counting(Net):
    """Counts its batches, and holds a mask that never changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("batches", torch.tensor(0.0))
        self.register_buffer("mask", torch.tensor([True, False]))

    def forward(self, x: Inputs) -> Tensor:
        if self.training:
            self.get_buffer("batches").add_(1)
        return super().forward(x)


@pytest.mark.parametrize("workers", [1, 4])
def test_figures_that_the_model_gathers_go_on_whatever_their_type(workers: int) -> None:
    trainer = trainer_of(Sync(), workers, model=Counting)
    list(trainer.fit(Made(640)))
    assert float(trainer.model.get_buffer("batches")) == 10  # by the mean of the workers, step by step
    assert trainer.model.get_buffer("mask").tolist() == [True, False]


def test_more_gradients_than_places_are_late_and_counted() -> None:
    trainer = trainer_of(GBA(tolerance=0), 8, global_batch=32, local_batch=16, report_every_s=3600)
    list(trainer.fit(Made(4000)))
    told = trainer.statistics
    assert (told.gradient.largest or 0) > 0
    assert told.zero_weight == told.decayed
    assert told.steps == trainer.step == 125
    assert told.ids.total > 0


def test_a_mode_that_cannot_be_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match="take 16 or 32"):
        trainer_of(GBA(), 2, local_batch=24)
    with pytest.raises(ConfigError, match="KStepAdam, not with Adam"):
        Trainer(Net(), hr.Table(dim=4), mode=KStep(), workers=2, global_batch=64)
    with pytest.raises(ConfigError, match="backups=2"):
        trainer_of(BackupWorkers(backups=2), 2)
