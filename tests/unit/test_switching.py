"""The controller between Sync and GBA: both sides of every bound, what it measures, what it says, and whole days."""

import copy
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import pairwise

import pytest
from pydantic import TypeAdapter

from hotrow.errors import ConfigError, InputError
from hotrow.switching import Auto, Controller, Costs, Decision, ModeName, Observation
from oracles.switching import Cluster

COSTS = Costs(sync_step_s=0.1, gba_batch_s=0.25)
NO_STAY = Auto(minimum_stay=0)


def watching(
    busy_s: Sequence[float], rule: Auto = NO_STAY, costs: Costs = COSTS, mode: ModeName = "sync", batches: int = 20
) -> Controller:
    """A controller that has seen workers with steady busy times, at time 0."""
    controller = Controller(rule, costs, parts=len(busy_s))
    controller.started(0.0, mode)
    for worker, each in enumerate(busy_s):
        controller.joined(worker)
        for _ in range(batches):
            controller.observe(Observation(worker, 0.0, each, samples=100))
    controller.started(0.0, mode)
    return controller


def first_switch(controller: Controller, until_s: float, every_s: float = 1.0) -> tuple[float, Decision] | None:
    """When a controller that is asked regularly wants to leave the mode it is in."""
    for asked in range(1, int(until_s / every_s) + 1):
        decision = controller.decide(asked * every_s, controller.mode)
        if decision.switch:
            return asked * every_s, decision
    return None


@pytest.mark.parametrize("mode", ["sync", "gba"])
def test_even_workers_are_for_sync(mode: ModeName) -> None:
    found = first_switch(watching([1.0] * 8, mode=mode), 1000)
    assert (None if found is None else found[1].mode) == (None if mode == "sync" else "sync")


@pytest.mark.parametrize("mode", ["sync", "gba"])
def test_a_straggler_is_for_gba(mode: ModeName) -> None:
    found = first_switch(watching([1.0] * 7 + [3.0], mode=mode), 1000)
    assert (None if found is None else found[1].mode) == (None if mode == "gba" else "gba")


def test_noise_alone_is_for_gba_where_it_is_large() -> None:
    chance = random.Random(3)
    for sigma, wanted in ((0.02, "sync"), (0.6, "gba")):
        controller = watching([1.0] * 8)
        for _ in range(20):
            for worker in range(8):
                controller.observe(Observation(worker, 0.0, chance.lognormvariate(0, sigma), 100))
        found = first_switch(controller, 1000)
        assert ("sync" if found is None else found[1].mode) == wanted


def gaining(gain: float, rule: Auto, mode: ModeName = "sync") -> Controller:
    """Even workers of 1 s, and the other mode ahead by `gain`."""
    slow, quick = {"sync": ("sync_step_s", "gba_batch_s"), "gba": ("gba_batch_s", "sync_step_s")}[mode]
    return watching([1.0] * 4, rule, Costs(**{slow: gain, quick: 0.0}), mode)


@pytest.mark.parametrize("mode", ["sync", "gba"])
def test_a_switch_needs_more_than_the_gain(mode: ModeName) -> None:
    rule = Auto(minimum_stay=0, gain=0.25)
    assert first_switch(gaining(0.25, rule, mode), 2000) is None
    assert first_switch(gaining(0.26, rule, mode), 2000) is not None


def test_without_a_gain_asked_for_modes_that_are_equal_are_left_alone() -> None:
    assert first_switch(gaining(0.0, Auto(minimum_stay=0, gain=0)), 1000) is None


def test_a_gain_has_to_last_until_a_quarter_of_the_memory_is_missed() -> None:
    """20 batches of 1 s are remembered: 5 s have to be missed."""
    rule = Auto(minimum_stay=0, gain=0.25)
    found = first_switch(gaining(0.75, rule), 100)
    assert found is not None
    assert found[0] == 10  # 0.5 s are missed in every second
    found = first_switch(gaining(1.25, rule), 100)
    assert found is not None
    assert found[0] == 5


def test_a_gain_that_comes_and_goes_does_not_last() -> None:
    controller = gaining(0.75, Auto(minimum_stay=0, gain=0.25))
    for asked in range(1, 200):
        controller.costs = Costs(sync_step_s=0.75 if asked % 2 else 0.0, gba_batch_s=0.0 if asked % 2 else 1.0)
        assert not controller.decide(float(asked), "sync").switch


def test_a_gain_that_fell_to_the_bound_before_the_stay_was_over_is_none() -> None:
    for cost_s, switch in ((0.25, False), (0.26, True)):
        controller = gaining(3.0, Auto(minimum_stay=60, gain=0.25))
        controller.decide(59.0, "sync")
        controller.costs = Costs(sync_step_s=cost_s, gba_batch_s=0.0)
        assert controller.decide(60.0, "sync").switch is switch


def test_no_more_is_missed_than_is_remembered() -> None:
    controller = gaining(0.45, Auto(minimum_stay=0, gain=0.25))
    assert not controller.decide(1e6, "sync").switch
    assert controller.missed_s == pytest.approx(0.2 * 20)
    assert controller.decide(2e6, "sync").switch


@pytest.mark.parametrize("mode", ["sync", "gba"])
def test_the_minimum_stay_is_over_at_its_end(mode: ModeName) -> None:
    for time_s, over in ((59.9, False), (60.0, True)):
        controller = gaining(3.0, Auto(minimum_stay=60), mode)
        for early_s in range(0, 59, 5):
            assert not controller.decide(early_s, mode).switch
        assert controller.decide(time_s, mode).switch is over


def test_the_stay_counts_from_the_start_of_the_mode() -> None:
    controller = gaining(3.0, Auto(minimum_stay=60))
    controller.started(100.0, "sync")
    assert not controller.decide(159.0, "sync").switch
    assert controller.decide(160.0, "sync").switch


def test_a_switch_that_takes_its_time_is_not_decided_twice() -> None:
    controller = gaining(3.0, Auto(minimum_stay=60))
    assert controller.decide(60.0, "sync").switch
    assert not controller.decide(61.0, "sync").switch


def test_advice_never_switches_and_is_given_once_a_stay() -> None:
    controller = gaining(3.0, Auto(minimum_stay=60, advise=True))
    decisions = [controller.decide(float(second), "sync") for second in range(1, 200)]
    assert not any(decision.switch for decision in decisions)
    advice = [number for number, decision in enumerate(decisions, 1) if decision.mode == "gba"]
    assert advice == [60, 120, 180]
    assert decisions[59].sentence.startswith("advice: to GBA: 400 samples/s predicted, Sync 100 (+300 %): ")


def test_a_switch_says_why_with_its_numbers() -> None:
    found = first_switch(watching([1.0] * 7 + [2.4], costs=Costs(sync_step_s=0.1, gba_batch_s=0.0)), 100)
    assert found is not None
    assert found[1].sentence == (
        "to GBA: 742 samples/s predicted, Sync 320 (+132 %): the slowest worker takes 2.4 times the median, "
        "Sync leaves 51 % of the workers' time idle"
    )


def test_a_switch_back_says_why_with_its_numbers() -> None:
    found = first_switch(watching([1e-3] * 8, costs=Costs(sync_step_s=1e-4, gba_batch_s=3e-4), mode="gba"), 100)
    assert found is not None
    assert found[1].sentence == (
        "to Sync: 727,273 samples/s predicted, GBA 615,385 (+18 %): the slowest worker takes 1.0 times the median, "
        "Sync leaves 0 % of the workers' time idle"
    )


def test_batches_too_late_for_gba_are_part_of_the_reason() -> None:
    found = first_switch(watching([1.0] * 3 + [9.0], Auto(minimum_stay=0, tolerance=1)), 100)
    assert found is not None
    assert found[1].sentence.endswith("the workers' time idle, 4 % of the batches come too late for GBA")


STAYING = {
    "no gain": (0.0, 1.0, "400 samples/s predicted, GBA 400 (+0 %): a switch needs a gain of more than 5 %"),
    "too early": (1.0, 59.0, "200 samples/s predicted, GBA 400 (-50 %): only 59 of at least 60 s are over"),
    "not long": (
        0.1,
        61.0,
        "364 samples/s predicted, GBA 400 (-9 %): the gain has to last, 1 of 5 s are missed so far",
    ),
}


@pytest.mark.parametrize(("gain", "time_s", "told"), STAYING.values(), ids=STAYING)
def test_staying_says_why_too(gain: float, time_s: float, told: str) -> None:
    decision = gaining(gain, Auto()).decide(time_s, "sync")
    assert (decision.sentence, decision.mode, decision.switch) == (f"stay in Sync: {told}", "sync", False)
    assert decision.predicted.keys() == {"sync", "gba"}
    assert (decision.spread, decision.idle_share) == (1, 0)


def test_few_batches_decide_nothing() -> None:
    for batches, enough in ((4, False), (5, True)):
        controller = watching([1.0, 1.0, 5.0], batches=batches)
        decision = controller.decide(1e6, "sync")
        assert bool(decision.predicted) is enough
    decision = watching([1.0, 1.0], batches=4).decide(1e6, "sync")
    assert decision.sentence == "stay in Sync: worker 0 has finished 4 of the 5 batches that a prediction needs"
    assert (decision.predicted, decision.spread, decision.idle_share) == ({}, None, None)


def test_a_short_memory_needs_no_more_than_it_holds() -> None:
    controller = watching([1.0, 5.0], Auto(window=2, minimum_stay=0), batches=2)
    assert controller.decide(100.0, "sync").switch


def test_one_worker_decides_nothing() -> None:
    decision = watching([1.0]).decide(1e6, "sync")
    assert decision.sentence == "stay in Sync: the modes differ only with two workers or more"


def test_a_worker_that_finished_nothing_yet_holds_decisions_back() -> None:
    controller = watching([1.0, 5.0])
    controller.joined(2)
    controller.parts = 3
    assert "worker 2 has finished 0 of the 5" in controller.decide(100.0, "sync").sentence


def test_a_worker_beyond_the_parts_holds_nothing_back_in_sync() -> None:
    controller = watching([1.0, 5.0])
    controller.joined(2)
    assert controller.decide(100.0, "sync").switch


def test_joining_again_forgets_nothing() -> None:
    controller = watching([1.0, 5.0])
    controller.joined(1)
    assert len(controller.batches[1]) == 20


def test_a_worker_that_left_is_forgotten_and_its_late_batch_is_counted() -> None:
    controller = watching([1.0] * 7 + [5.0])
    controller.lost(7)
    controller.observe(Observation(7, 0.0, 5.0, 100))
    assert controller.strangers == 1
    assert controller.decide(100.0, "sync").spread == 1
    assert 7 not in controller.batches
    controller.joined(7)
    assert controller.batches[7] == []


def test_a_worker_that_left_does_not_stretch_the_running_step() -> None:
    controller = watching([1.0, 1.0])
    controller.stepped(0.0)
    controller.observe(Observation(0, 1.0, 1.0, 100))
    controller.observe(Observation(1, 1.0, 9.0, 100))
    controller.lost(1)
    controller.stepped(1.5)
    assert controller.measured == {"sync": [0.5]}


def test_only_the_window_is_remembered() -> None:
    controller = watching([5.0, 5.0], Auto(window=7, minimum_stay=0))
    for each in range(7):
        controller.observe(Observation(0, 0.0, 1.0 + each, 100))
    assert [batch.busy_s for batch in controller.batches[0]] == [1, 2, 3, 4, 5, 6, 7]
    assert len(controller.batches[1]) == 7


def test_the_cost_of_a_synchronous_step_is_what_lies_beyond_its_slowest_worker() -> None:
    controller = watching([1.0, 1.0])
    for step, slow_s in enumerate((2.0, 3.0, 4.0)):
        controller.observe(Observation(0, 10.0 * step, 1.0, 100))
        controller.observe(Observation(1, 10.0 * step, slow_s, 100))
        controller.stepped(10.0 * step)
    assert controller.measured == {"sync": [7.0, 6.0]}  # the first one began before the mode
    assert controller.present_costs == Costs(sync_step_s=6.5, gba_batch_s=COSTS.gba_batch_s)


def test_a_worker_with_two_parts_of_a_step_worked_for_both() -> None:
    controller = watching([1.0, 1.0])
    controller.stepped(0.0)
    for worker, busy_s in ((0, 1.0), (1, 1.5), (0, 1.0)):
        controller.observe(Observation(worker, 0.0, busy_s, 100))
    controller.stepped(2.25)
    assert controller.measured == {"sync": [0.25]}


def test_the_cost_of_a_batch_in_gba_is_what_lies_between_its_work_and_the_one_before() -> None:
    controller = watching([1.0, 1.0], mode="gba")
    for time_s, worker, busy_s in ((1.0, 0, 1.0), (2.0, 1, 2.0), (2.5, 0, 1.0), (5.5, 1, 2.5), (3.75, 0, 1.0)):
        controller.observe(Observation(worker, time_s, busy_s, 100))
    controller.stepped(6.0)
    assert controller.measured == {"gba": [pytest.approx((0.5 + 1.0 + 0.25) / 3)]}
    assert controller.present_costs.sync_step_s == COSTS.sync_step_s


def test_a_pause_of_one_step_is_forgotten() -> None:
    controller = watching([1.0, 1.0])
    time_s = 0.0
    for step in range(9):
        controller.observe(Observation(0, time_s, 1.0, 100))
        time_s += 1000.0 if step == 4 else 1.25
        controller.stepped(time_s)
    assert controller.present_costs.sync_step_s == 0.25


def test_what_a_switch_takes_is_no_cost() -> None:
    controller = watching([1.0, 1.0], mode="gba")
    controller.observe(Observation(0, 1.0, 1.0, 100))
    controller.stepped(1.0)
    controller.started(50.0, "sync")
    controller.observe(Observation(0, 51.0, 1.0, 100))
    controller.stepped(52.0)
    controller.started(99.0, "gba")
    controller.observe(Observation(0, 100.5, 1.0, 100))
    controller.stepped(101.0)
    assert controller.measured == {}


def test_busy_times_that_overlap_are_counted_and_cost_nothing() -> None:
    controller = watching([1.0, 1.0])
    controller.stepped(0.0)
    controller.observe(Observation(0, 1.0, 1.5, 100))
    controller.stepped(1.0)
    assert (controller.overlaps, controller.measured) == (1, {"sync": [0.0]})


def test_costs_measured_in_one_mode_are_still_known_in_the_other() -> None:
    controller = watching([1.0, 1.0])
    controller.stepped(0.0)
    controller.observe(Observation(0, 1.0, 1.0, 100))
    controller.stepped(1.75)
    controller.started(2.0, "gba")
    assert controller.present_costs == Costs(sync_step_s=0.75, gba_batch_s=COSTS.gba_batch_s)


FAULTS: dict[str, tuple[Callable[[], object], str]] = {
    "another mode": (lambda: watching([1.0, 1.0]).decide(1.0, "gba"), r"current='gba': 'sync' was started last"),
    "a decision in the past": (
        lambda: [watched.decide(at_s, "sync") for watched in [watching([1.0, 1.0])] for at_s in (2.0, 1.0)],
        r"time_s=1.0: the last decision was made, or the mode started, at 2.0; give times of one clock",
    ),
    "a step in the past": (
        lambda: list(map(watching([1.0, 1.0]).stepped, (2.0, 1.0))),
        r"time_s=1.0: the step before closed at 2.0; give times of one clock",
    ),
    "no busy time": (lambda: Observation(0, 0.0, 0.0, 1), r"busy_s=0.0: must be above 0"),
    "endless busy time": (lambda: Observation(0, 0.0, math.inf, 1), r"busy_s=inf: must be"),
    "busy time that is none": (lambda: Observation(0, 0.0, math.nan, 1), r"busy_s=nan: must be"),
    "no samples": (lambda: Observation(0, 0.0, 1.0, 0), r"samples=0, staleness=0: a batch has 1 sample or more"),
    "staleness": (lambda: Observation(0, 0.0, 1.0, 1, -1), r"staleness=-1: .*its staleness is 0 or more"),
    "parts": (lambda: Controller(NO_STAY, COSTS, parts=0), r"parts=0: a global batch has 1 local batch or more"),
}


@pytest.mark.parametrize(("fault", "told"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_is_told_with_value_and_remedy(fault: Callable[[], object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        fault()


def test_a_refused_decision_leaves_the_controller_as_it_was() -> None:
    controller = gaining(3.0, Auto())
    before = copy.deepcopy(controller)
    with pytest.raises(InputError):
        controller.decide(-1.0, "sync")
    assert controller == before


@pytest.mark.parametrize(
    "settings", [{"tolerance": -1}, {"gain": -0.1}, {"minimum_stay": -1}, {"window": 0}, {"window": 2.5}, {"name": "a"}]
)
def test_a_bad_setting_is_told(settings: dict[str, object]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=f"Auto.{name}="):
        Auto(**settings)


def test_the_state_can_be_saved_compared_and_restored_in_mid_run() -> None:
    chance = random.Random(5)
    cluster = Cluster(4, 4, COSTS, lambda worker, at_s: chance.lognormvariate(0, 0.3))
    controller = Controller(NO_STAY, COSTS, parts=4)
    cluster.run("sync", 30.0, controller, auto=True)
    whole = TypeAdapter(Controller)
    again = whole.validate_json(whole.dump_json(controller))
    assert again == controller
    assert Controller(**{each.name: getattr(controller, each.name) for each in fields(controller)}) == controller
    later_s = cluster.now_s + 5
    assert again.decide(later_s, again.mode) == controller.decide(later_s, controller.mode)
    again.observe(Observation(0, later_s, 1.0, 100))
    assert again != controller


DAY_S = 3600.0


def afternoon(chance: random.Random, noise: float) -> Callable[[int, float], float]:
    """A quiet cluster, but from 8 to 20 o'clock a quarter of its workers is slow; all get slower towards noon."""

    def busy(worker: int, at_s: float) -> float:
        hour = 24 * at_s / DAY_S
        crowded = 1.5 if 8 <= hour < 20 and worker % 4 == 0 else 0.0
        load = 1.0 + 0.5 * math.sin(math.pi * min(hour, 24) / 24) + crowded
        return load * chance.lognormvariate(-(noise**2) / 2, noise)

    return busy


@pytest.mark.parametrize(("workers", "noise"), [(8, 0.1), (4, 0.25)])
@pytest.mark.parametrize("seed", range(2))
def test_a_noisy_day_with_two_crossings_has_two_switches(workers: int, noise: float, seed: int) -> None:
    costs = Costs(sync_step_s=0.1, gba_batch_s=0.6)
    cluster = Cluster(workers, workers, costs, afternoon(random.Random(seed), noise), switch_s=2.0)
    cluster.run("sync", DAY_S, Controller(Auto(), costs, workers), auto=True)
    hours = [24 * time_s / DAY_S for time_s, _ in cluster.log]
    assert [decision.mode for _, decision in cluster.log] == ["gba", "sync"]
    assert 8 < hours[0] < 9
    assert 20 < hours[1] < 22


def test_a_day_comes_near_to_who_knew_the_hours_before() -> None:
    costs = Costs(sync_step_s=0.1, gba_batch_s=0.6)
    trained = {}
    for plan in ("auto", "known"):
        cluster = Cluster(8, 8, costs, afternoon(random.Random(1), 0.2))
        controller = Controller(Auto(), costs, 8)
        if plan == "auto":
            cluster.run("sync", DAY_S, controller, auto=True)
        else:
            for mode, until_s in (("sync", DAY_S / 3), ("gba", DAY_S * 5 / 6), ("sync", DAY_S)):
                cluster.run(mode, until_s, controller)  # type: ignore[arg-type]
        trained[plan] = cluster.counted / cluster.now_s
    assert trained["auto"] > 0.97 * trained["known"]


@pytest.mark.parametrize("seed", range(3))
def test_a_long_tie_under_heavy_noise_is_left_alone(seed: int) -> None:
    chance = random.Random(seed)
    cluster = Cluster(4, 4, Costs(sync_step_s=0.1, gba_batch_s=0.75), lambda *_: chance.lognormvariate(-0.125, 0.5))
    cluster.run("sync", DAY_S, Controller(Auto(), cluster.costs, 4), auto=True)
    assert len(cluster.log) <= 2


def test_a_load_that_meets_all_workers_at_once_is_no_reason_to_switch() -> None:
    chance = random.Random(2)
    for jump in (4.0, 0.25):
        cluster = Cluster(
            16,
            16,
            Costs(sync_step_s=0.1, gba_batch_s=0.4),
            lambda worker, at_s, jump=jump: (jump if at_s > 300 else 1.0) * chance.lognormvariate(0, 0.02),  # type: ignore[misc]
        )
        cluster.run("sync", 600.0, Controller(Auto(minimum_stay=0), cluster.costs, 16), auto=True)
        assert cluster.log == []


@pytest.mark.parametrize("mode", ["sync", "gba"])
def test_a_sudden_straggler_is_noticed_after_a_few_of_its_batches(mode: ModeName) -> None:
    def busy(worker: int, at_s: float) -> float:
        slow = worker == 0 and (at_s > 100) is (mode == "sync")
        return 10.0 if slow else 1.0

    cluster = Cluster(8, 8, Costs(sync_step_s=0.1, gba_batch_s=0.3), busy)
    cluster.run(mode, 400.0, Controller(Auto(minimum_stay=0), cluster.costs, 8), auto=True)
    assert [decision.mode for _, decision in cluster.log] == ["gba" if mode == "sync" else "sync"]
    assert 100 < cluster.log[0][0] < (150 if mode == "sync" else 180)


def test_switches_are_never_closer_than_the_minimum_stay() -> None:
    cluster = Cluster(
        4, 4, Costs(sync_step_s=0.1, gba_batch_s=0.3), lambda w, at_s: 4.0 if w == at_s // 50 % 2 else 1.0
    )
    controller = Controller(Auto(minimum_stay=80), cluster.costs, 4)
    cluster.run("sync", 2000.0, controller, auto=True)
    assert all(later - earlier >= 80 for (earlier, _), (later, _) in pairwise(cluster.log))
