"""Predicted speeds against exact definitions, and against clusters that run the real disciplines in virtual time."""

import itertools
import random
from collections.abc import Callable
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.errors import ConfigError
from hotrow.switching import Auto, BatchTime, Controller, Costs, ModeName, Prediction, expected_maximum, predict
from oracles.switching import SAMPLES, Cluster

NONE = Costs(sync_step_s=0, gba_batch_s=0)
Busy = Callable[[int, float], float]


@given(
    st.lists(st.lists(st.floats(0, 100) | st.sampled_from([1.0, 2.0]), min_size=1, max_size=4), min_size=1, max_size=4)
)
def test_the_expected_maximum_is_the_mean_over_all_ways_to_draw(draws: list[list[float]]) -> None:
    assert expected_maximum(draws) == pytest.approx(fmean(map(max, itertools.product(*draws))), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("lists", [1, 10, 3000])
def test_the_expected_maximum_of_many_lists_does_not_underflow(lists: int) -> None:
    draws = [[1.0, 2.0, 3.0, 4.0, 5.0]] * lists
    assert expected_maximum(draws) == pytest.approx(5 - sum((value / 5) ** lists for value in range(1, 5)), rel=1e-9)


def steady(*busy_s: float, samples: int = 10, batches: int = 20) -> dict[int, list[BatchTime]]:
    return {worker: [BatchTime(each, samples, 0)] * batches for worker, each in enumerate(busy_s)}


def test_sync_waits_for_the_slowest_and_pays_once_a_step() -> None:
    costs = Costs(sync_step_s=0.5, gba_batch_s=7.0)
    assert predict(steady(1, 2, 4), 3, costs, 4).samples_per_s["sync"] == pytest.approx(30 / 4.5)


def test_gba_adds_up_the_workers_and_each_pays_for_every_batch() -> None:
    costs = Costs(sync_step_s=7.0, gba_batch_s=0.5)
    predicted = predict(steady(1, 2, 4), 3, costs, 4)
    assert predicted.samples_per_s["gba"] == pytest.approx(10 / 1.5 + 10 / 2.5 + 10 / 4.5)


def test_spread_and_idle_share_are_of_mean_busy_times() -> None:
    predicted = predict(steady(1, 2, 4), 3, NONE, 4)
    assert predicted.spread == 2
    assert predicted.idle_share == pytest.approx(1 - (1 + 2 + 4) / (3 * 4))
    assert predict(steady(2, 2), 2, NONE, 4).idle_share == 0
    assert predicted.memory_s == pytest.approx(20 * 7 / 3)


def test_staleness_is_shown_as_it_was() -> None:
    batches = {0: [BatchTime(1, 10, 0)] * 5, 1: [BatchTime(1, 10, 3)] * 5}
    assert predict(batches, 2, NONE, 4).staleness == 1.5


def test_a_change_that_meets_all_workers_is_no_spread() -> None:
    batches = {worker: [BatchTime(1, 10, 0)] * 10 + [BatchTime(2, 10, 0)] * 10 for worker in range(50)}
    predicted = predict(batches, 50, NONE, 4)
    assert predicted.samples_per_s["sync"] == pytest.approx(predicted.samples_per_s["gba"])
    assert predicted.idle_share == pytest.approx(0)


def test_a_newcomer_is_compared_with_batches_of_its_time() -> None:
    before = {worker: [BatchTime(9, 10, 0)] * 15 + [BatchTime(1, 10, 0)] * 5 for worker in range(3)}
    assert predict({**before, 3: [BatchTime(1, 10, 0)] * 5}, 4, NONE, 4) == predict(
        {worker: [BatchTime(1, 10, 0)] * 5 for worker in range(4)}, 4, NONE, 4
    )


def test_a_part_too_many_is_dealt_to_who_is_done_first() -> None:
    assert predict(steady(1, 1, 1), 4, NONE, 4).samples_per_s["sync"] == pytest.approx(40 / 2)
    assert predict(steady(1, 2, 4), 4, NONE, 4).samples_per_s["sync"] == pytest.approx(40 / 4)
    assert predict(steady(1, 2, 4), 4, NONE, 4).idle_share == pytest.approx(1 - (2 + 2 + 4) / (3 * 4))


def test_workers_beyond_the_parts_have_no_work_in_sync() -> None:
    predicted = predict(steady(1, 1, 5), 2, NONE, 4)
    assert predicted.samples_per_s["sync"] == pytest.approx(20 / 1)
    assert predicted.idle_share == pytest.approx(1 / 3)


@pytest.mark.parametrize(("slow", "chance"), [(3.0, 0.0), (5.2, 0.5), (8.0, 1.0)])
def test_batches_that_come_too_late_do_not_count_for_gba(slow: float, chance: float) -> None:
    """Steps of 1 s, tolerance 4, 7 of 10 places out before it: the chance rises from 0 at 4.7 s to 1 at 5.7 s."""
    quick = 7 / (10 - 1 / slow)  # so that seven quick workers and the slow one make ten batches a second
    predicted = predict(steady(*[quick] * 7, slow), 10, NONE, 4)
    share = 1 / slow / 10
    assert predicted.late_share == pytest.approx(share * chance, abs=1e-12)
    assert predicted.samples_per_s["gba"] == pytest.approx(10 * 10 * (1 - share * chance))


@pytest.mark.parametrize("field", ["sync_step_s", "gba_batch_s"])
def test_a_cost_below_0_is_refused(field: str) -> None:
    assert Costs(**{"sync_step_s": 0, "gba_batch_s": 0, field: 0.0}) == NONE
    with pytest.raises(ConfigError, match=f"Costs.{field}=-1: "):
        Costs(**{"sync_step_s": 0, "gba_batch_s": 0, field: -1})


def even(sigma: float) -> Callable[[random.Random], Busy]:
    return lambda chance: lambda worker, at_s: chance.lognormvariate(-(sigma**2) / 2, sigma)


def speeds(*factors: float) -> Callable[[random.Random], Busy]:
    return lambda chance: lambda worker, at_s: factors[worker % len(factors)] * chance.lognormvariate(0, 0.15)


CLUSTERS = {  # workers, parts, tolerance, busy time
    "even, little noise": (8, 8, 4, even(0.05)),
    "even, much noise": (8, 8, 4, even(0.5)),
    "a straggler": (8, 8, 4, speeds(1, 1, 1, 1, 1, 1, 1, 4)),
    "two kinds": (10, 10, 4, speeds(1, 3)),
    "a straggler too late for GBA": (8, 8, 1, speeds(1, 1, 1, 1, 1, 1, 1, 12)),
    "many late ones": (12, 12, 0, speeds(1, 1, 2.5)),
    "a worker lost": (7, 8, 4, speeds(1, 1.2, 0.8)),
    "half the workers": (4, 8, 4, even(0.2)),
    "a spare worker": (9, 8, 4, even(0.2)),
}


def watched(mode: ModeName, name: str, costs: Costs) -> tuple[Cluster, float, Prediction]:
    """A cluster after a long run in one mode, its speed, and what the batches of that run predict of both modes."""
    workers, parts, tolerance, busy = CLUSTERS[name]
    cluster = Cluster(workers, parts, costs, busy(random.Random(7)), tolerance)
    controller = Controller(Auto(window=400, tolerance=tolerance), costs, parts)
    speed = cluster.run(mode, 900.0, controller)
    with_work = {worker: batches for worker, batches in controller.batches.items() if batches}
    return cluster, speed, predict(with_work, parts, controller.present_costs, tolerance)


@pytest.mark.parametrize("name", CLUSTERS)
def test_predictions_are_the_speeds_of_the_real_disciplines(name: str) -> None:
    costs = Costs(sync_step_s=0.1, gba_batch_s=0.3)
    _, sync, from_sync = watched("sync", name, costs)
    cluster, gba, from_gba = watched("gba", name, costs)
    assert from_sync.samples_per_s["sync"] == pytest.approx(sync, rel=0.03)
    assert from_gba.samples_per_s["sync"] == pytest.approx(sync, rel=0.03)
    assert from_gba.samples_per_s["gba"] == pytest.approx(gba, rel=0.03)
    if cluster.workers <= cluster.parts:
        assert from_sync.samples_per_s["gba"] == pytest.approx(gba, rel=0.03)
    assert from_gba.late_share == pytest.approx(cluster.late / cluster.applied, abs=0.02)
    assert SAMPLES * cluster.applied > cluster.counted or cluster.late == 0


def test_late_batches_are_among_the_clusters() -> None:
    cluster, _, predicted = watched("gba", "many late ones", NONE)
    assert cluster.late / cluster.applied > 0.05
    assert predicted.late_share > 0.05
