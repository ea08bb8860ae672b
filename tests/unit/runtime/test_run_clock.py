"""The run's clock stands still while others have control, and whoever watches hears who has data."""

import pytest

import hotrow as hr
from hotrow.runtime.clock import Elapsed, RunClock
from hotrow.switching import Auto, Pilot
from hotrow.trainer import Progress, Trainer
from unit.trainer.conftest import Made, make_trainer


class Hand:
    """A clock that goes when somebody turns it."""

    now = 50.0

    def __call__(self) -> float:
        return self.now


def watched(hand: Hand) -> tuple[Trainer, Pilot]:
    """Two workers in Sync with a pilot that nobody asks."""
    trainer = make_trainer(workers=2, report_every_s=0)
    engine = trainer._loop
    engine.clock = RunClock(hand)
    pilot = Pilot.of(Auto(), engine.facts.parts)
    pilot.started(engine.clock(), "sync")
    engine.observe(pilot)
    return trainer, pilot


def test_it_goes_only_between_go_and_stop() -> None:
    hand = Hand()
    clock = RunClock(hand)
    seen = []
    for turn in (clock.pause, clock.resume, clock.resume, clock.pause, clock.pause, clock.resume):
        hand.now += 1
        turn()
        hand.now += 10
        seen.append(clock())
    assert seen == [0, 10, 21, 22, 22, 32]


def test_a_span_is_told_by_both_clocks() -> None:
    hand = Hand()
    clock = RunClock(hand)
    clock.resume()
    began = clock.moment()
    hand.now += 1
    clock.pause()
    hand.now += 5
    clock.resume()
    hand.now += 1
    assert clock.moment().since(began) == Elapsed(real_s=7.0, run_s=2.0)
    assert Elapsed(1.0, 0.5) + Elapsed(2.0, 0.25) == Elapsed(3.0, 0.75)


def test_what_the_caller_does_between_two_reports_is_no_cost_of_a_mode() -> None:
    hand = Hand()
    trainer, pilot = watched(hand)
    for _ in trainer.fit(Made(640), valid=Made(64), epochs=2):
        hand.now += 100
    assert len(pilot.controller.measured["sync"]) > 10
    assert set(pilot.controller.measured["sync"]) == {0.0}
    assert trainer._loop.clock() == 0.0
    trainer.close()


def test_what_the_engine_does_itself_is() -> None:
    hand = Hand()
    trainer, pilot = watched(hand)
    reports = trainer.fit(Made(640), progressive=True)
    foretell = None
    for report in reports:
        hand.now += 100
        if foretell is None and isinstance(report, Progress):
            assert trainer._loop._active is not None
            leases = trainer._loop._active.leases
            foretell = leases.before
            assert foretell is not None

            def slow(batch: hr.data.Batch) -> None:
                hand.now += 1.0

            leases.before = slow
    assert pilot.controller.measured["sync"][-3:] == pytest.approx([2.0] * 3), "two batches a step, a second for each"
    trainer.close()


def test_who_watches_hears_when_the_data_of_a_worker_end_and_come_again() -> None:
    trainer, pilot = watched(Hand())
    told: list[tuple[str, int]] = []
    joined, ended = pilot.joined, pilot.ended

    class Ears:
        finished, stepped, lost = pilot.finished, pilot.stepped, pilot.lost

        def joined(self, worker: int) -> None:
            told.append(("joined", worker))
            joined(worker)

        def ended(self, worker: int) -> None:
            told.append(("ended", worker))
            ended(worker)

    trainer._loop.observe(Ears())
    list(trainer.fit(Made(640), epochs=2))
    for worker in range(2):
        assert [what for what, who in told if who == worker] == ["joined", "ended", "joined", "ended"]
    assert pilot.controller.idle == {0, 1}
    assert all(len(own) == 20 for own in pilot.controller.batches.values()), "10 of each epoch"
    assert trainer._loop.workers == [0, 1], "for the next fit"
    trainer.close()
