"""Staleness of Async: what the mean has to be, and what moves it."""

import json
from typing import Any

import pytest

from hotrow.modes import Async, Sync
from hotrow.modes.base import Apply, GradientPart, Pushed, RunFacts
from hotrow.reproduce import asgd_figure_3
from hotrow.reproduce.asgd_figure_3 import PAPER, POISSON, StalenessLog, explanations, figures_of, logged
from hotrow.sim import ClusterConfig, ConstantSpeed, Faults, LogNormal, SimCluster, Speeds

SIZE, UPDATES = 20, 4_000


def found(speeds: Speeds, faults: Faults | None = None) -> dict[str, Any]:
    return figures_of(logged(speeds, faults or Faults(), SIZE, UPDATES, 3), SIZE)


@pytest.mark.parametrize(
    "speeds",
    [
        POISSON,
        Speeds(machines=LogNormal(sigma=0.5)),
        Speeds(batches=LogNormal(sigma=0.5)),
        Speeds(batches=ConstantSpeed()),
    ],
)
def test_mean_staleness_is_the_number_of_workers_whatever_their_speeds(speeds: Speeds) -> None:
    log = logged(speeds, Faults(), SIZE, UPDATES, 3)
    last = {
        worker: number for number, worker in enumerate(log.workers, 1)
    }  # the sums of all workers telescope to these
    figures = figures_of(log, SIZE)
    assert figures["mean"] == pytest.approx(sum(last.values()) / UPDATES)
    assert figures["mean"] == pytest.approx(SIZE, rel=0.02)


def test_one_round_of_workers_that_start_together_is_half_as_stale() -> None:
    figures = found(Speeds(batches=LogNormal(sigma=0.01)))
    assert figures["first_mean"] == (SIZE + 1) / 2
    assert figures["second_half_mean"] == pytest.approx(SIZE, rel=0.005)


def test_staleness_is_counted_from_one_as_the_paper_does() -> None:
    log = StalenessLog()
    config = ClusterConfig(workers=3, local_batch=1)
    SimCluster(Async(), config.model_copy(update={"workers": 1}), data=5, watchers=(log,)).run()
    assert log.staleness == [1] * 5
    sync = StalenessLog()
    sync.started(0.0, Sync(), RunFacts(1, 1, 1))
    push = Pushed("both", 7, grant=1, token=4, pulled_step=4, samples=1)
    sync.took(0.0, push, [Apply("both", 4, (GradientPart(1, 4, 4, 1, 1.0),))])
    assert (sync.staleness, sync.workers) == ([1], [7])


def test_a_poisson_process_spreads_as_its_mean_squared() -> None:
    assert found(POISSON)["variance"] == pytest.approx(SIZE**2, rel=0.15)


def test_workers_that_are_down_and_requests_that_wait_lower_the_mean_by_their_share() -> None:
    part = 0.8
    by_name = {name: found(speeds, faults) for name, speeds, faults in explanations(SIZE, part, UPDATES / SIZE)}
    down, wait = by_name["the same, 20.0 % are down"], by_name["requests wait up to 0.67 batches"]
    assert down["mean"] == pytest.approx(part * SIZE, rel=0.05)
    assert wait["mean"] == pytest.approx(part * SIZE, rel=0.05)
    for name in ("machines differ by 8 %", "batches differ by 8 %"):
        assert by_name[name]["mean"] == pytest.approx(SIZE, rel=0.01)


def test_machines_that_differ_show_in_the_workers_means_and_batches_that_differ_do_not() -> None:
    machines, batches = (found(speeds) for _, speeds, _ in explanations(SIZE, 0.8, 1.0)[:2])
    assert machines["variance_of_worker_means"] > 20 * batches["variance_of_worker_means"]


def test_a_quick_run_keeps_the_promise_and_is_plain_data() -> None:
    told: list[str] = []
    result = asgd_figure_3.run(True, tell=told.append)
    assert json.loads(json.dumps(result)) == result
    assert [each["holds"] for each in result["promises"]] == [True]
    assert [each["workers"] for each in result["means"]] == [5, 10, 20, 40, 60]
    assert len(told) == 15
    shown = "\n".join(asgd_figure_3.lines(result))
    for paper in PAPER.values():
        assert f"{paper['mean']:,.0f}" in shown
        assert f"{paper['variance']:,.0f}" in shown
