"""Which mode is at work, and that every change of it, and what is to be known of it, becomes a report."""

import threading
import time
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import hotrow as hr
from hotrow.modes import Mode
from hotrow.nn.inputs import Inputs
from hotrow.switching import Controller, Decision, ModeName, Observation
from hotrow.trainer import Progress, Remark, Report, Switched, Trainer, TrainingEnded
from hotrow.trainer import mode_selector as steering_module
from hotrow.trainer.mode_selector import DECIDE_EVERY_S, ModeSelector, initial_mode, parse_mode
from unit.trainer.conftest import Made, Net, make_trainer

EAGER = hr.Auto(minimum_stay=0, gain=0.05, window=5)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def sentences(reports: list[Report]) -> list[str]:
    return [report.sentence for report in reports if isinstance(report, Remark)]


def switches(reports: list[Report]) -> list[tuple[str, str]]:
    return [(report.before, report.mode) for report in reports if isinstance(report, Switched)]


CHOICES = {
    "nothing": (None, hr.Sync()),
    "a name": ("gba", hr.GBA()),
    "a dict": ({"name": "gba", "tolerance": 2}, hr.GBA(tolerance=2)),
    "a mode": (hr.Async(), hr.Async()),
    "auto": ("auto", hr.Auto()),
    "auto in a dict": ({"name": "auto", "advise": True}, hr.Auto(advise=True)),
    "an auto": (hr.Auto(gain=0.5), hr.Auto(gain=0.5)),
}


@pytest.mark.parametrize(("given", "found"), CHOICES.values(), ids=CHOICES)
def test_a_mode_goes_by_itself_its_name_or_a_dict(given: object, found: Mode | hr.Auto) -> None:
    assert parse_mode(given) == found  # type: ignore[arg-type]
    assert initial_mode(found) == (hr.Sync() if isinstance(found, hr.Auto) else found)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("gbba", "mode='gbba': there is none of this name; there are sync, .*k_step, auto"),
        ({"tolerance": 3}, "there is none of this name"),
        ({"name": ["gba"]}, "there is none of this name"),
        (7, r"mode is a int: give a mode as hotrow.GBA\(\), its name, or a dict"),
        ({"name": "auto", "gain": -1}, "Auto.gain=-1: "),
    ],
)
def test_a_choice_that_cannot_be_is_told(given: object, told: str) -> None:
    with pytest.raises(hr.ConfigError, match=told):
        parse_mode(given)  # type: ignore[arg-type]


def test_a_mode_says_once_what_it_does_to_the_global_batch() -> None:
    trainer = make_trainer(mode="async", workers=2)
    first, again = list(trainer.fit(Made(640))), list(trainer.fit(Made(640)))
    assert first[0] == Remark(0, 0, "async", hr.Async().remarks(trainer.facts)[0])
    assert "32 samples a step, the global batch is 64" in sentences(first)[0]
    assert sentences(again) == []
    assert sentences(list(make_trainer(workers=2).fit(Made(640)))) == []


def test_a_switch_between_two_reports_is_told_with_the_remarks_of_the_new_mode() -> None:
    trainer = make_trainer(workers=2, report_every_s=0)
    reports = []
    for report in trainer.fit(Made(1280)):
        reports.append(report)
        if isinstance(report, Progress) and report.step == 5:
            trainer.switch("async")
    place = next(place for place, report in enumerate(reports) if isinstance(report, Switched))
    told, remark = reports[place : place + 2]
    assert isinstance(told, Switched)
    assert isinstance(remark, Remark)
    assert (told.before, told.mode, told.sentence) == ("sync", "async", None)
    assert told.samples == 64 * told.step >= 64 * 5, "what was being computed was applied before"
    assert (remark.mode, remark.step) == ("async", told.step)
    assert trainer.mode == hr.Async()
    assert trainer.samples == 1280


def test_all_data_are_trained_over_many_switches_of_four_workers() -> None:
    trainer = make_trainer(workers=4, report_every_s=0)
    turns: list[Mode] = [hr.GBA(), hr.Hybrid(), hr.Async(), hr.BoundedStaleness(), hr.Sync()]
    done = 0
    for report in trainer.fit(Made(64 * 40), epochs=2):
        if isinstance(report, Progress) and report.step >= 8 * (done + 1) and done < 2 * len(turns):
            trainer.switch(turns[done % len(turns)])
            done += 1
    assert done == 2 * len(turns)
    assert trainer.samples == 2 * 64 * 40
    told = trainer.statistics
    assert told.granted == told.applied == 2 * 160


def test_a_switch_outside_of_a_fit_is_told_when_the_next_one_begins() -> None:
    trainer = make_trainer(workers=2)
    trainer.switch(hr.GBA())
    assert switches(list(trainer.fit(Made(640)))) == [("sync", "gba")]
    trainer.switch(hr.GBA())  # it is at work already
    assert switches(list(trainer.fit(Made(640)))) == []


def test_a_switch_that_cannot_be_changes_nothing() -> None:
    trainer = make_trainer(workers=2, report_every_s=0)
    reports = []
    for report in trainer.fit(Made(640)):
        reports.append(report)
        if isinstance(report, Progress) and report.step == 5:
            for mode, told in ((hr.KStep(), "KStepAdam, not with Adam"), (hr.BackupWorkers(backups=2), "backups=2")):
                with pytest.raises(hr.ConfigError, match=told):
                    trainer.switch(mode)
    assert trainer.mode == hr.Sync()
    assert (trainer.samples, switches(reports)) == (640, [])


def test_callbacks_hear_of_it_first() -> None:
    heard: list[Report] = []
    trainer = make_trainer(mode="async", workers=2, callbacks=[lambda _, report: heard.append(report)])
    assert list(trainer.fit(Made(640))) == heard
    assert isinstance(heard[0], Remark)


def test_only_several_workers_have_a_staleness() -> None:
    for workers, known in ((1, False), (2, True)):
        trainer = make_trainer(workers=workers, report_every_s=0)
        found = [report.staleness for report in trainer.fit(Made(640)) if isinstance(report, Progress)]
        assert found == [0.0 if known else None] * len(found)


def test_the_end_counts_what_one_large_batch_would_not_have_done_once_for_each_fit() -> None:
    trainer = make_trainer(workers=2)
    for rows, short in ((640, None), (650, 1), (640, None), (70, 1)):
        *_, end = trainer.fit(Made(rows))
        assert isinstance(end, TrainingEnded)
        assert end.counts.get("short_steps") == short
    assert trainer.statistics.short_steps == 2
    late = make_trainer(workers=4, local_batch=16, mode=hr.BackupWorkers(backups=1))
    *_, end = late.fit(Made(1280))
    assert isinstance(end, TrainingEnded)
    dropped = late.statistics.dropped.get("late", 0)
    assert end.counts.get("late_batches_dropped", 0) == dropped
    assert end.counts.get("late_samples_dropped", 0) == 16 * dropped
    assert late.statistics.samples_applied + 16 * dropped == 1280


# Auto: first with a clock of its own and made-up batches, then with a worker that is really slow.


@pytest.fixture
def engine_of_four() -> Iterator[Trainer]:
    trainer = make_trainer(workers=4)
    yield trainer
    trainer.close()


def shown(mode_selector: ModeSelector, clock: Clock, slow_s: float, steps: int, cost_s: float = 0.1) -> list[Report]:
    """Steps of four workers that work 1 s each, but for the last, and then lose some time."""
    pilot = mode_selector._pilot
    assert pilot is not None
    for _ in range(steps):
        clock.now += slow_s
        for worker, busy_s in enumerate((1.0, 1.0, 1.0, slow_s)):
            pilot.finished(Observation(worker, clock.now, busy_s, samples=16))
        clock.now += cost_s
        pilot.stepped(clock.now)
        mode_selector.stepped()
    return list(mode_selector.take_reports())


def test_auto_goes_to_gba_when_a_worker_is_slow_and_says_why(engine_of_four: Trainer) -> None:
    clock, engine = Clock(), engine_of_four._loop
    engine.state.samples, engine.state.step = 7, 3
    mode_selector = ModeSelector(engine, EAGER, clock)
    assert shown(mode_selector, clock, slow_s=1.0, steps=20) == []
    assert engine.mode.name == "sync"
    (told,) = shown(mode_selector, clock, slow_s=3.0, steps=20)
    assert isinstance(told, Switched)
    assert (told.samples, told.step, told.before, told.mode) == (7, 3, "sync", "gba")
    assert told.sentence is not None
    assert told.sentence.startswith("to GBA: ")
    assert "the slowest worker takes" in told.sentence
    assert engine.mode == hr.GBA(tolerance=4)


def test_auto_goes_back_when_gba_turns_out_to_be_the_slower_one(engine_of_four: Trainer) -> None:
    clock, engine = Clock(), engine_of_four._loop
    mode_selector = ModeSelector(engine, EAGER, clock)
    assert switches(shown(mode_selector, clock, slow_s=3.0, steps=20)) == [("sync", "gba")]
    while engine.mode.name == "gba":
        back = shown(mode_selector, clock, slow_s=1.0, steps=1, cost_s=2.0)
        assert clock.now < 1000, "twenty steps of 3 s are more than it remembers"
    assert switches(back) == [("gba", "sync")]


def test_auto_stays_where_sync_cannot_be_says_so_and_goes_on_to_watch(
    engine_of_four: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster trainers that joined may be too many for equal shares; a run does not end of that."""
    clock, engine = Clock(), engine_of_four._loop
    mode_selector = ModeSelector(engine, EAGER, clock)
    shown(mode_selector, clock, slow_s=3.0, steps=20)

    def refuse(mode: Mode, facts: object) -> None:
        raise hr.ConfigError(f"trainers=5: not in {mode.name}")

    with monkeypatch.context() as patched:
        patched.setattr(engine.backend, "check_mode", refuse)
        told = sentences(shown(mode_selector, clock, slow_s=1.0, steps=60, cost_s=2.0))
    assert len(told) > 1
    assert set(told) == {"auto stays in gba: trainers=5: not in sync"}
    assert engine.mode.name == "gba"
    assert switches(shown(mode_selector, clock, slow_s=1.0, steps=60, cost_s=2.0))[0] == ("gba", "sync")


def test_the_gba_of_auto_has_the_tolerance_that_was_asked_for(engine_of_four: Trainer) -> None:
    clock = Clock()
    mode_selector = ModeSelector(engine_of_four._loop, EAGER.model_copy(update={"tolerance": 9}), clock)
    shown(mode_selector, clock, slow_s=3.0, steps=20)
    assert engine_of_four.mode == hr.GBA(tolerance=9)


def test_advice_changes_nothing_but_is_told(engine_of_four: Trainer) -> None:
    clock = Clock()
    mode_selector = ModeSelector(engine_of_four._loop, EAGER.model_copy(update={"advise": True}), clock)
    told = shown(mode_selector, clock, slow_s=3.0, steps=20)
    assert told
    assert all(isinstance(report, Remark) and report.sentence.startswith("advice: to GBA") for report in told)
    assert engine_of_four.mode == hr.Sync()


def test_it_is_asked_once_a_second_and_not_more_often(engine_of_four: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    decide = Controller.decide

    def counted(controller: Controller, time_s: float, current: ModeName) -> Decision:
        asked.append(time_s)
        return decide(controller, time_s, current)

    monkeypatch.setattr(Controller, "decide", counted)
    clock = Clock()
    mode_selector = ModeSelector(engine_of_four._loop, EAGER, clock)
    start = clock.now
    for _ in range(40):
        clock.now += 0.25
        mode_selector.stepped()
    assert asked == [start + DECIDE_EVERY_S * second for second in range(1, 11)]


def test_until_gba_works_it_is_taken_to_cost_what_sync_does(engine_of_four: Trainer) -> None:
    clock = Clock()
    mode_selector = ModeSelector(engine_of_four._loop, EAGER, clock)
    shown(mode_selector, clock, slow_s=1.0, steps=20)
    assert mode_selector._pilot is not None
    costs = mode_selector._pilot.controller.present_costs
    assert costs.gba_batch_s == costs.sync_step_s == pytest.approx(0.1)


def test_who_switches_by_hand_takes_over(engine_of_four: Trainer) -> None:
    engine_of_four.switch("auto")
    assert engine_of_four._loop.observer is not None
    engine_of_four.switch(hr.GBA())
    assert engine_of_four._loop.observer is None
    engine_of_four.switch(EAGER)
    assert engine_of_four.mode == hr.Sync()
    assert engine_of_four._loop.observer is not None


@pytest.mark.parametrize(
    ("workers", "local_batch", "told"),
    [
        (1, 64, ["auto stays in sync: the modes differ only with two workers or more"]),
        (4, 32, ["auto stays in sync: 2 of 4 workers get no batch there, so their speed is unknown"]),
        (2, 32, []),
        (2, 16, []),
    ],
)
def test_auto_says_where_it_can_choose_nothing(workers: int, local_batch: int, told: list[str]) -> None:
    trainer = make_trainer(workers=workers, local_batch=local_batch, mode="auto")
    assert sentences(list(trainer.fit(Made(640)))) == told
    assert sentences(list(trainer.fit(Made(640)))) == []


class Slow(Net):
    """One of its threads takes its time."""

    def forward(self, x: Inputs) -> Tensor:
        time.sleep(0.06 if threading.current_thread().name == "worker-1" else 0.005)
        return super().forward(x)


def test_a_worker_that_is_really_slow_is_not_waited_for_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering_module, "DECIDE_EVERY_S", 0.0)
    torch.manual_seed(0)
    table = hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.2))
    trainer = hr.Trainer(Slow(), table, mode=EAGER, workers=3, local_batch=16, global_batch=48, threads=1)
    reports: list[Report] = []
    for report in trainer.fit(Made(48 * 60)):
        reports.append(report)
        if isinstance(report, Switched):
            break
    trainer.close()
    assert switches(reports) == [("sync", "gba")]
