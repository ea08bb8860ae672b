"""AUC, logloss and calibration of a cluster come from sketches of its trainers, and are those of one process."""

import numpy as np
import pytest
import torch

from hotrow.modes import GBA, Async, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.backend import Backend
from hotrow.runtime.local import LocalBackend
from hotrow.runtime.membership import ScaleRequest
from hotrow.runtime.state import RunState
from hotrow.trainer.meter import ProgressMeter
from hotrow.types import RoleId
from hotrow.worker.spec import TrainingSpec
from unit.runtime.cluster_threads import SAMPLES, TABLES, Net, batches, cluster

COUNT = 24
ROUNDING = 1e-8  # of steps, whose gradients are added up in another order


def reported(backend: Backend, state: RunState, mode: Mode, workers: int) -> tuple[float | None, ...]:
    """AUC with its error, logloss and calibration of a run, as its report has them."""
    meter = ProgressMeter(0.0)
    loop = TrainingLoop(backend, state, mode=mode, facts=RunFacts(workers, SAMPLES, workers * SAMPLES))
    leases = LeaseQueue(batches(COUNT))
    leases.open_epoch()
    for stepped in loop.steps(leases, 0):
        meter.step(stepped, 0.0)
    loop.rest()
    loop.close()
    report = meter.report(samples=0, step=0, epoch=0, lr_scale=1.0, scores=backend.take_scores())
    found = report.auc, report.auc_error, report.logloss, report.calibration
    assert None not in found
    return found


def in_one_process(mode: Mode, workers: int) -> tuple[float | None, ...]:
    model, state = Net(), RunState()
    local = LocalBackend(TrainingSpec(model, TABLES, torch.optim.Adam(model.parameters(), lr=0.01)), state)
    try:
        return reported(local, state, mode, workers)
    finally:
        local.close()


@pytest.mark.parametrize("mode", [Sync(), GBA(), Async()], ids=lambda mode: str(mode.name))
def test_one_trainer_reports_the_figures_of_one_process(mode: Mode) -> None:
    state = RunState()
    with cluster(state, 1, 0) as there:
        found, wanted = reported(there.site, state, mode, 1), in_one_process(mode, 1)
    assert found[:2] == wanted[:2]
    assert found[2:] == pytest.approx(wanted[2:], rel=ROUNDING)


def test_each_sample_is_in_one_collection() -> None:
    with cluster(RunState(), 2, 0) as there:
        loop = TrainingLoop(there.site, RunState(), mode=Async(), facts=RunFacts(2, SAMPLES, 2 * SAMPLES))
        leases = LeaseQueue(batches(COUNT))
        leases.open_epoch()
        taken = []
        for stepped in loop.steps(leases, 0):
            assert all(trained.output is None for trained in stepped.batches)
            taken.append(there.site.take_scores())
        loop.rest()
        taken.append(there.site.take_scores())
        assert sum(map(len, taken)) == COUNT * SAMPLES
        assert len(there.site.take_scores()) == 0
        loop.close()


def test_the_scores_of_a_trainer_that_leaves_are_kept() -> None:
    gone = ScaleRequest(RoleId("trainer", 0), joins=False)
    with cluster(RunState(), 2, 0) as there:
        loop = TrainingLoop(there.site, RunState(), mode=Async(), facts=RunFacts(2, SAMPLES, 2 * SAMPLES))
        leases = LeaseQueue(batches(COUNT))
        leases.open_epoch()
        for number, _ in enumerate(loop.steps(leases, 0)):
            if number == COUNT // 2:
                assert there.figures("trainer 0")["batches"] > 0
                loop.scale(gone)
        loop.rest()
        gone.done.result(20)
        assert there.site.worker_pool.names == [RoleId("trainer", 1)]
        assert len(there.site.take_scores()) == COUNT * SAMPLES
        loop.close()


def test_a_sketch_that_is_not_exact_says_its_error_and_has_the_logloss_and_calibration_of_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = in_one_process(Sync(), 1)
    monkeypatch.setattr("hotrow.metrics.sketch.PAIRS_MOST", 20)
    monkeypatch.setattr("hotrow.metrics.quantiles.POINTS_MOST", 8)
    state = RunState()
    with cluster(state, 1, 0) as there:
        auc, error, logloss, calibration = reported(there.site, state, Sync(), 1)
    assert error is not None
    assert 0 < error < 1
    assert auc == pytest.approx(wanted[0], abs=error)
    assert (logloss, calibration) == pytest.approx(wanted[2:], rel=ROUNDING)


def test_scores_that_are_not_finite_give_no_auc() -> None:
    with cluster(RunState(), 1, 0) as there:
        loop = TrainingLoop(there.site, RunState(), mode=Async(), facts=RunFacts(1, SAMPLES, SAMPLES))
        given = list(batches(2))
        given[1][1].numbers[0, 0] = np.nan
        leases = LeaseQueue(iter(given))
        leases.open_epoch()
        meter = ProgressMeter(0.0)
        for stepped in loop.steps(leases, 0):
            meter.step(stepped, 0.0)
        loop.rest()
        scores = there.site.take_scores()
        assert scores.not_finite > 0
        report = meter.report(samples=0, step=0, epoch=0, lr_scale=1.0, scores=scores)
        assert (report.auc, report.auc_error, report.logloss, report.calibration) == (None, 0.0, None, None)
        loop.close()
