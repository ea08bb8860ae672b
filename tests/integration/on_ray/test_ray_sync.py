"""Sync on a cluster is what one process does with one large batch, and its checkpoints are those of any engine."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow.data.batch import Batch
from hotrow.trainer import Evaluated, Progress, Trainer
from integration.on_ray.small_cluster import (
    aucs,
    batches,
    check_settled,
    evaluated_in_the_driver,
    file_of,
    joined,
    largest_difference,
    losses,
    trainer_of,
    whole_rows,
)

pytestmark = pytest.mark.usefixtures("one_ray")

STEPS = 200
IN_LINE = hr.Sync(look_ahead=0)
OPTIMIZERS: dict[str, tuple[Any, Callable[..., torch.optim.Optimizer], float]] = {
    "sgd": (hr.SGD(lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1), 1e-5),
    "adagrad": (hr.Adagrad(lr=0.05), lambda p: torch.optim.Adagrad(p, lr=0.02), 1e-5),
    "adam": (hr.Adam(lr=0.005), lambda p: torch.optim.Adam(p, lr=0.005), 1e-4),
}
LOCAL_BATCH = {"sgd": 8, "adagrad": 4, "adam": 8}  # of 16: one or two for each trainer and step


@pytest.fixture(
    scope="module",
    params=[pytest.param("sgd", marks=pytest.mark.slow), "adagrad", pytest.param("adam", marks=pytest.mark.slow)],
)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trainer, Path]]:
    """A trainer on two shards and two trainers, and the state it began with."""
    rows, dense, _ = OPTIMIZERS[kind]
    made = trainer_of(hr.Ray(trainers=2, shards=2), rows, dense, local_batch=LOCAL_BATCH[kind])
    yield made, made.save(tmp_path_factory.mktemp(kind) / "start")
    made.close()


@pytest.fixture
def both(kind: str, cluster: tuple[Trainer, Path]) -> Iterator[tuple[Trainer, Trainer]]:
    """The cluster as it began, and one process that trains whole global batches."""
    rows, dense, _ = OPTIMIZERS[kind]
    trainer, start = cluster
    trainer.load(start)
    local = trainer_of("local", rows, dense)
    yield trainer, local
    local.close()


def check_equal(kind: str, both: tuple[Trainer, Trainer], data: list[Batch], mode: hr.Sync = IN_LINE) -> list[float]:
    trainer, local = both
    trainer.switch(mode)
    ours, theirs = list(trainer.fit(data)), list(local.fit(joined(data, 16)))
    found = losses(ours)
    np.testing.assert_allclose(found, losses(theirs), rtol=0, atol=OPTIMIZERS[kind][2])
    if mode == IN_LINE:  # a report has the scores of batches that were computed, with look-ahead of the next step too
        other_order = np.mean([one != other for one, other in zip(aucs(ours), aucs(theirs), strict=True)])
        assert other_order <= 0.02  # two scores that are equal but for rounding may change places
    assert (trainer.samples, trainer.step) == (local.samples, local.step)
    assert largest_difference(trainer, local) < OPTIMIZERS[kind][2] * 10
    check_settled(trainer)
    return found


def test_the_steps_of_a_cluster_are_those_of_one_large_batch(kind: str, both: tuple[Trainer, Trainer]) -> None:
    size = LOCAL_BATCH[kind]
    found = check_equal(kind, both, batches(STEPS * 16 // size, size))
    assert len(found) == STEPS
    assert np.mean(found[-20:]) < np.mean(found[:20])


@pytest.mark.parametrize(("count", "last"), [(13, 8), (14, 3), (13, 5), (1, 2)])
def test_a_short_step_at_the_end_counts_once_and_as_what_it_holds(
    kind: str, both: tuple[Trainer, Trainer], count: int, last: int
) -> None:
    """Trainers without a batch in it, or with a short one, take the same step as the others."""
    size = LOCAL_BATCH[kind]
    data = batches(count, size, seed=7, last=min(last, size))
    before = both[0].statistics.short_steps
    found = check_equal(kind, both, data)
    samples = sum(map(len, data))
    assert len(found) == -(-samples // 16)
    assert both[0].samples == samples
    assert both[0].statistics.short_steps - before == (samples % 16 > 0)


@pytest.mark.parametrize(("count", "last"), [(200, 8), (13, 5)])
def test_with_look_ahead_the_steps_are_the_same(
    kind: str, both: tuple[Trainer, Trainer], count: int, last: int
) -> None:
    size = LOCAL_BATCH[kind]
    check_equal(kind, both, batches(count, size, seed=9, last=min(last, size)), hr.Sync(look_ahead=1))


def test_a_checkpoint_in_the_middle_of_a_fit_has_all_of_it(
    kind: str, both: tuple[Trainer, Trainer], tmp_path: Path
) -> None:
    """Also the dense optimizer's state, which trainers hold while they train."""
    trainer, local = both
    trainer.switch(IN_LINE)  # with look-ahead a save is one step later
    data = batches(80, LOCAL_BATCH[kind], seed=3)
    for report in trainer.fit(data):
        if isinstance(report, Progress) and report.step == 5:
            trainer.save(tmp_path / "middle")
    losses(local.fit(joined(data[: 5 * 16 // LOCAL_BATCH[kind]], 16)))
    again = trainer_of("local", *OPTIMIZERS[kind][:2])
    again.load(tmp_path / "middle")
    assert largest_difference(again, local) < OPTIMIZERS[kind][2]
    assert (again.samples, again.step) == (80, 5)
    again.close()


@pytest.mark.parametrize(
    "mode",
    [
        hr.Sync(look_ahead=1),
        pytest.param(hr.Sync(look_ahead=0), marks=pytest.mark.slow),
        pytest.param(hr.Hybrid(), marks=pytest.mark.slow),
    ],
    ids=["look-ahead", "in line", "hybrid"],
)
def test_trainers_evaluate_at_the_end_of_an_epoch_and_between_two_steps_as_the_driver_does(
    kind: str, both: tuple[Trainer, Trainer], mode: hr.Sync | hr.Hybrid, tmp_path: Path
) -> None:
    trainer, _ = both
    trainer.switch(mode)
    train, valid = (file_of(batches(20, 16, seed=seed), tmp_path / f"{seed}.parquet") for seed in (1, 2))
    found = []
    for report in trainer.fit(train, valid=valid, epochs=2):
        if isinstance(report, Progress) and report.step == 7:
            assert trainer.evaluate(valid).rows == 320
        if isinstance(report, Evaluated):
            found.append(report)
            assert report.metrics == evaluated_in_the_driver(trainer, valid)
    assert [(each.epoch, each.rows, each.auc_error) for each in found] == [(0, 320, 0.0), (1, 320, 0.0)]
    assert trainer.samples == 2 * 320


def test_a_checkpoint_goes_to_one_process_and_to_a_cluster_of_another_size(tmp_path: Path) -> None:
    rows, dense, _ = OPTIMIZERS["adagrad"]
    judged = batches(3, 50, seed=5)
    first = trainer_of(hr.Ray(trainers=1, shards=2), rows, dense)
    losses(first.fit(batches(20, 16)))
    told = first.evaluate(judged).metrics
    first.save(tmp_path / "two")
    local = trainer_of("local", rows, dense)
    local.load(tmp_path / "two")
    assert largest_difference(first, local) == 0
    assert len(whole_rows(local)) > 100
    first.close()
    assert local.evaluate(judged).metrics == pytest.approx(told, abs=1e-6)

    losses(local.fit(batches(5, 16, seed=1)))
    local.save(tmp_path / "one")
    other = trainer_of(hr.Ray(trainers=1, shards=1), rows, dense)
    other.load(tmp_path / "one")
    assert largest_difference(other, local) == 0
    assert other.evaluate(judged).metrics == pytest.approx(local.evaluate(judged).metrics, abs=1e-6)
    more = batches(10, 16, seed=2)
    np.testing.assert_allclose(losses(other.fit(more)), losses(local.fit(more)), rtol=0, atol=1e-5)
    assert largest_difference(other, local) < 1e-5
    other.close()
    local.close()
