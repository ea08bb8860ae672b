"""Switching, saving and breaking off in a running fit: nothing is trained twice, nothing is left out or reset."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import Tensor

from hotrow.errors import ConfigError
from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.nn.inputs import Inputs
from hotrow.trainer import Progress, Report, Trainer
from unit.runtime.local_server import server_of
from unit.runtime.small_training import (
    EVERY,
    every_mode,
    largest_difference,
    losses,
    threads_of_workers,
    trainer_of,
    weights,
)
from unit.trainer.conftest import Made, Net

CHAIN = [
    GBA(),
    Async(),
    Sync(),
    KStep(k=2, warmup=0),
    Hybrid(),
    BulkSync(bulk=3),
    BoundedStaleness(),
    BackupWorkers(),
    Sync(),
]


def check_all_trained(trainer: Trainer, samples: int) -> None:
    assert trainer.position is not None
    assert trainer.position.samples == samples
    dropped = trainer.statistics.samples_dropped.get("late", 0)
    assert trainer.samples == trainer.statistics.samples_applied_rows == samples - dropped
    assert threads_of_workers() == []


def state_of(trainer: Trainer) -> str:
    """Everything that a switch must leave alone, as text."""
    assert trainer.optimizer is not None
    assert trainer.position is not None
    told = (trainer.step, trainer.samples, trainer.lr_scale, trainer.global_batch, trainer.position.document())
    rows = [each.tobytes() for each in weights(trainer)]
    return f"{told} {rows} {trainer.optimizer.state_dict()}"


def test_a_run_goes_on_through_all_modes() -> None:
    trainer = trainer_of(KStep(k=3, warmup=0), 4)  # its optimizer serves every mode
    ahead, progress = iter(CHAIN), 0
    for number, report in enumerate(trainer.fit(Made(64 * 40 + 7))):
        progress += isinstance(report, Progress)
        if number % 5 == 4 and (mode := next(ahead, None)) is not None:
            trainer._loop.rest()  # so that the switch itself has nothing to apply
            before, granted = state_of(trainer), trainer.statistics.granted
            trainer.switch(mode)
            assert trainer.mode == mode
            assert state_of(trainer) == before
            assert trainer.statistics.granted == granted
            at_work = trainer._loop._active
            assert at_work is not None
            assert (at_work.loop.facts.step, at_work.loop.facts.grants) == (trainer.step, granted)
    assert next(ahead, None) is None
    check_all_trained(trainer, 64 * 40 + 7)
    assert progress == trainer.step  # every step was told, once
    assert trainer._loop._grants == trainer.statistics.granted


def test_after_the_way_back_steps_hold_the_global_batch_again() -> None:
    trainer = trainer_of(Sync(), 4)
    sizes: list[tuple[str, int]] = []
    last = 0
    for report in trainer.fit(Made(64 * 30)):
        if isinstance(report, Progress):
            sizes.append((trainer.mode.name, report.samples - last))
            last = report.samples
            if len(sizes) in (5, 12):
                trainer.switch(Async() if trainer.mode == Sync() else Sync())
    assert {size for name, size in sizes[:5]} == {64}
    assert {size for name, size in sizes[-5:-1]} == {64}  # the last is what is left
    assert ("async", 16) in sizes


@pytest.mark.parametrize("seed", range(4))
def test_switches_and_checkpoints_at_any_report(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    workers = chance.choice([1, 2, 3, 4])
    trainer = trainer_of(KStep(k=2, warmup=0), workers, global_batch=128, local_batch=32)
    modes: list[Mode] = [mode for mode in EVERY if workers > 1 or mode.name != "backup_workers"]
    for _ in trainer.fit(Made(777), valid=Made(100, seed=1), epochs=2):
        if chance.random() < 0.1:
            trainer.save(tmp_path / "any")
        if chance.random() < 0.4:
            trainer.switch(chance.choice(modes))
        if chance.random() < 0.1:
            trainer.switch(chance.choice(modes))
    check_all_trained(trainer, 2 * 777)
    assert trainer.position is not None
    assert (trainer.position.epoch, trainer.position.marks) == (2, ())


def test_a_switch_to_fewer_in_flight_leaves_nothing_reserved() -> None:
    trainer = trainer_of(Hybrid(max_in_flight=5), 2, global_batch=48, local_batch=8)
    for number, _ in enumerate(trainer.fit(Made(1000))):
        trainer.switch(Sync() if number % 2 else Hybrid(max_in_flight=5))
    check_all_trained(trainer, 1000)


def test_a_switch_before_and_between_fits() -> None:
    trainer = trainer_of(Sync(), 2)
    trainer.switch("gba")
    list(trainer.fit(Made(200)))
    trainer.switch(Async())
    assert trainer.mode == Async()
    list(trainer.fit(Made(200)))
    assert trainer.samples == 400


def test_a_mode_that_cannot_be_is_refused_and_the_one_at_work_stays() -> None:
    trainer = trainer_of(GBA(), 2)
    for number, _ in enumerate(trainer.fit(Made(640))):
        if number == 2:
            before = state_of(trainer)
            with pytest.raises(ConfigError, match="KStepAdam"):
                trainer.switch(KStep())
            with pytest.raises(ConfigError, match="backups=2"):
                trainer.switch(BackupWorkers(backups=2))
            assert state_of(trainer) == before
            assert trainer.mode == GBA()
    check_all_trained(trainer, 640)


def until_saved(trainer: Trainer, data: Made, folder: Path, **fit: int) -> Iterator[Report]:
    """A fit that saves after its fourth step, and then goes on."""
    steps = 0
    for report in trainer.fit(data, **fit):  # type: ignore[arg-type]
        steps += isinstance(report, Progress)
        if steps == 4 and not folder.exists():
            trainer.save(folder)
            yield report


@every_mode
def test_a_checkpoint_in_the_middle_and_a_resume_train_every_sample_once(mode: Mode, tmp_path: Path) -> None:
    first = trainer_of(mode, 4)
    reading = until_saved(first, Made(603), tmp_path / "middle", epochs=2, shuffle=100)
    next(reading)
    saved = first.position
    assert saved is not None
    assert 0 < saved.samples < 603
    next(reading, None)  # it goes on to the end
    check_all_trained(first, 2 * 603)

    second = trainer_of(mode, 4, report_every_s=3600)
    position = second.load(tmp_path / "middle")
    assert position is not None
    assert position.document() == saved.document()
    trained, step = second.samples, second.step
    list(second.fit(Made(603), epochs=2, shuffle=100, position=position))
    assert second.position is not None
    assert second.position.samples == 2 * 603
    dropped = second.statistics.samples_dropped.get("late", 0)
    assert second.samples == trained + 2 * 603 - saved.samples - dropped
    assert second.step > step


def test_sync_resumed_is_sync_uninterrupted(tmp_path: Path) -> None:
    whole, first, second = (trainer_of(Sync(), 4) for _ in range(3))
    expected = losses(whole.fit(Made(1280)))
    next(until_saved(first, Made(1280), tmp_path / "middle"))
    position = second.load(tmp_path / "middle")
    assert losses(second.fit(Made(1280), position=position)) == expected[4:]
    assert largest_difference(whole, second) == 0


@every_mode
def test_a_fit_that_is_broken_off_applies_what_was_being_computed(mode: Mode) -> None:
    trainer = trainer_of(mode, 4)
    list(trainer.fit(Made(2000), most_samples=300))
    position = trainer.position
    assert position is not None
    assert 300 <= position.samples < 1000
    assert server_of(trainer).parked == 0
    assert threads_of_workers() == []
    rest = [report for report in trainer.fit(Made(2000), position=position) if isinstance(report, Progress)]
    assert trainer.position is not None
    assert trainer.position.samples == 2000
    told = sum(report.samples for report in rest[-1:])
    assert told == trainer.samples


def test_what_a_broken_off_fit_applied_last_is_not_told_by_the_next() -> None:
    trainer = trainer_of(GBA(), 4, local_batch=8)  # eight places, four workers: some are always half way
    reports = trainer.fit(Made(2000))
    for _ in range(5):
        next(reports)
    reports.close()  # type: ignore[attr-defined]
    before = trainer.step
    later = [report for report in trainer.fit(Made(640)) if isinstance(report, Progress)]
    assert [report.step for report in later] == list(range(before + 1, before + 11))


@pytest.mark.parametrize("workers", [1, 4])
def test_an_interrupt_ends_the_fit_at_rest(workers: int) -> None:
    trainer = trainer_of(GBA(), workers, local_batch=16)
    reports = trainer.fit(Made(20_000))
    next(reports)
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(reports)
    timer.join()
    position = trainer.position
    assert position is not None
    assert 0 < position.samples == trainer.samples < 20_000
    assert threads_of_workers() == []


class Cut(Net):
    """The fifth forward is cut off by an interrupt that nothing holds back, as a second Ctrl-C is."""

    calls = 0

    def forward(self, x: Inputs) -> Tensor:
        output = super().forward(x)
        Cut.calls += self.training
        if Cut.calls == 5:
            raise KeyboardInterrupt
        return output


def test_a_batch_that_is_cut_off_is_computed_again_before_the_rest() -> None:
    Cut.calls = 0
    cut, whole = trainer_of(Sync(), 1, model=Cut), trainer_of(Sync(), 1)
    with pytest.raises(KeyboardInterrupt):
        list(cut.fit(Made(640)))
    assert cut.samples == 5 * 64
    list(whole.fit(Made(640), most_samples=5 * 64))
    assert largest_difference(cut, whole) == 0
