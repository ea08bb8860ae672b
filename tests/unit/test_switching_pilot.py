"""One pilot for every engine: it asks in time, waits for a switch to be made, and knows who has data."""

from collections.abc import Sequence

import pytest
from pydantic import TypeAdapter

from hotrow.errors import InputError
from hotrow.modes import GBA, Sync
from hotrow.switching import Auto, Costs, Observation, Pilot

COSTS = Costs(sync_step_s=0.1, gba_batch_s=0.25)
HASTY = Auto(minimum_stay=0)


def shown(pilot: Pilot, time_s: float, busy_s: Sequence[float]) -> float:
    """One step in which each worker has a batch; when it was closed."""
    time_s += max(busy_s)
    for worker, each in enumerate(busy_s):
        pilot.finished(Observation(worker, time_s, each, samples=10))
    time_s += 0.1
    pilot.stepped(time_s)
    return time_s


def pilot_of(busy_s: Sequence[float], *, steps: int, every_s: float = 0.0, rule: Auto = HASTY) -> tuple[Pilot, float]:
    pilot = Pilot.of(rule, len(busy_s), COSTS, every_s=every_s)
    pilot.started(0.0, "sync")
    time_s = 0.0
    for worker in range(len(busy_s)):
        pilot.joined(worker)
    for _ in range(steps):
        time_s = shown(pilot, time_s, busy_s)
    return pilot, time_s


def test_the_controller_is_asked_after_a_while_and_not_before() -> None:
    pilot, time_s = pilot_of([1.0] * 4, steps=10, every_s=5.0)
    assert pilot.decide(time_s) is None
    for late_s, asked in ((4.9, 1), (5.0, 2), (9.9, 2), (10.0, 3)):
        assert pilot.decide(time_s + late_s) is None
        assert pilot.stays == asked


def test_a_decision_to_stay_is_counted_and_one_to_go_is_given_once() -> None:
    pilot, time_s = pilot_of([1.0, 1.0, 1.0, 4.0], steps=20)
    decision = None
    while decision is None:
        time_s = shown(pilot, time_s, [1.0, 1.0, 1.0, 4.0])
        decision = pilot.decide(time_s)
    assert (decision.mode, decision.switch) == ("gba", True)
    stays = pilot.stays
    for _ in range(20):  # steps that close while the switch drains
        time_s = shown(pilot, time_s, [1.0, 1.0, 1.0, 4.0])
        assert pilot.decide(time_s) is None
    assert pilot.stays == stays
    pilot.started(time_s, "gba")
    assert pilot.decide(time_s) is None
    assert pilot.stays == stays + 1


def test_advice_waits_for_no_switch() -> None:
    pilot, time_s = pilot_of([1.0, 1.0, 1.0, 4.0], steps=20, rule=Auto(minimum_stay=0, advise=True))
    given = 0
    for _ in range(60):
        time_s = shown(pilot, time_s, [1.0, 1.0, 1.0, 4.0])
        decision = pilot.decide(time_s)
        given += decision is not None and not decision.switch and decision.mode == "gba"
    assert given > 1
    assert not pilot.changing


def test_who_has_no_more_data_holds_nobody_back_and_is_known_when_it_comes_again() -> None:
    pilot, time_s = pilot_of([1.0, 1.0, 4.0], steps=20)
    controller = pilot.controller
    pilot.ended(2)
    sentence = controller.decide(time_s, "sync").sentence
    assert sentence.startswith("stay in Sync: ")
    assert "GBA" in sentence
    prediction = controller.decide(time_s, "sync").prediction
    assert prediction is not None
    assert prediction.spread == pytest.approx(1.0)
    pilot.joined(2)
    again = controller.decide(time_s, "sync").prediction
    assert again is not None, "its speed need not be found out anew"
    assert again.spread == pytest.approx(4.0)
    pilot.lost(2)
    pilot.joined(2)
    assert controller.decide(time_s, "sync").prediction is None, "who was lost may come back on another machine"


def test_a_worker_that_never_finished_a_batch_and_has_no_data_is_not_waited_for() -> None:
    pilot, time_s = pilot_of([1.0] * 4, steps=20)
    pilot.joined(4)
    pilot.controller.parts = 5
    assert "worker 4 has finished 0" in pilot.controller.decide(time_s, "sync").sentence
    pilot.ended(4)
    assert pilot.controller.decide(time_s, "sync").prediction is not None


def test_without_data_there_is_no_time_between_two_batches() -> None:
    pilot = Pilot.of(HASTY, 2, COSTS)
    pilot.started(0.0, "gba")
    for worker in range(2):
        pilot.joined(worker)
        pilot.finished(Observation(worker, 1.0, 1.0, samples=10))
    pilot.ended(0)
    pilot.joined(0)
    pilot.finished(Observation(0, 1000.0, 1.0, samples=10))
    pilot.finished(Observation(1, 2.5, 1.0, samples=10))
    pilot.stepped(1000.0)
    assert pilot.controller.measured["gba"] == [pytest.approx(0.5)]


def test_costs_that_nobody_knows_beforehand_are_those_of_the_mode_that_works() -> None:
    pilot = Pilot.of(HASTY, 2)
    pilot.started(0.0, "sync")
    assert pilot.controller.present_costs == Costs(sync_step_s=0.0, gba_batch_s=0.0)
    for worker in range(2):
        pilot.joined(worker)
    time_s = 0.0
    for _ in range(3):
        time_s = shown(pilot, time_s, [1.0, 1.0])
    costs = pilot.controller.present_costs
    assert costs.gba_batch_s == costs.sync_step_s == pytest.approx(0.1)
    pilot.controller.costs = COSTS
    assert pilot.controller.present_costs.gba_batch_s == 0.25


def test_work_that_the_clock_did_not_see_is_no_part_of_a_cost() -> None:
    """A worker computes 5 s, of which the clock stood still for 4: a step that took 1.5 s of it cost 0.5 s."""
    pilot = Pilot.of(HASTY, 2, COSTS)
    pilot.started(0.0, "sync")
    for worker in range(2):
        pilot.joined(worker)
    pilot.stepped(0.0)
    pilot.finished(Observation(0, 1.0, 5.0, samples=10, passed_s=1.0))
    pilot.finished(Observation(1, 1.0, 0.5, samples=10))
    pilot.stepped(1.5)
    assert pilot.controller.measured["sync"] == [pytest.approx(0.5)]
    assert pilot.controller.batches[0][0].busy_s == 5.0, "how long it works is predicted from all of it"
    for passed_s in (-0.1, 5.1):
        with pytest.raises(InputError, match=r"passed_s=.*: must be from 0 to busy_s=5.0"):
            Observation(0, 1.0, 5.0, samples=10, passed_s=passed_s)


def test_a_rule_makes_the_modes_it_names() -> None:
    assert Auto(tolerance=9).mode("gba") == GBA(tolerance=9)
    assert Auto().mode("sync") == Sync()


def test_the_state_can_be_saved_and_restored() -> None:
    pilot, time_s = pilot_of([1.0, 1.0, 4.0], steps=7, every_s=2.0)
    pilot.ended(1)
    pilot.decide(time_s)
    whole = TypeAdapter(Pilot)
    assert whole.validate_json(whole.dump_json(pilot)) == pilot
