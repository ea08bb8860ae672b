"""Every mode on a cluster: all data are trained, all is accounted for, and a live run goes through all of them."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.trainer import Progress, Trainer
from hotrow.trainer.reports import Switched
from integration.on_ray.small_cluster import (
    asked,
    batches,
    check_settled,
    joined,
    largest_difference,
    losses,
    trainer_of,
    whole_rows,
)

pytestmark = pytest.mark.usefixtures("one_ray")

EVERY = [
    Sync(),
    Async(),
    Async(staleness=hr.Staleness(decay=hr.Inverse(), by="version")),
    BulkSync(bulk=2),
    BoundedStaleness(bound=1),
    BackupWorkers(backups=1),
    GBA(tolerance=2),
    Hybrid(max_in_flight=3),
    KStep(k=3, warmup=0),
]
BATCHES, SIZE = 150, 8


def k_step_adam(parameters: Iterator[torch.nn.Parameter]) -> hr.KStepAdam:
    return hr.KStepAdam(parameters, lr=0.02)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trainer, Path]]:
    """One cluster for all modes, and the state it began with."""
    made = trainer_of(hr.Ray(trainers=2, shards=2), hr.Adagrad(lr=0.2), k_step_adam)
    yield made, made.save(tmp_path_factory.mktemp("modes") / "start")
    made.close()


@pytest.fixture
def trainer(begun: tuple[Trainer, Path]) -> Trainer:
    made, start = begun
    made.switch(Sync())
    made.load(start)
    return made


def test_k_step_with_look_ahead_takes_the_same_steps(begun: tuple[Trainer, Path]) -> None:
    made, start = begun
    found = []
    for look_ahead in (0, 1):
        made.switch(Sync())
        made.load(start)
        made.switch(KStep(k=3, warmup=0, look_ahead=look_ahead))
        found.append(losses(made.fit(batches(60, SIZE))))
        check_settled(made)
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-5)


def auc_of(trainer: Trainer) -> float:
    found = trainer.evaluate(batches(2, 200, seed=5)).metrics["auc"]
    assert found is not None
    return found


@pytest.mark.parametrize("mode", [*EVERY, "auto"], ids=lambda mode: mode if isinstance(mode, str) else str(mode.name))
def test_a_mode_trains_all_data_and_accounts_for_every_gradient(trainer: Trainer, mode: Mode | str) -> None:
    """Two of these modes may drop what comes too late: that counts as trained, and as dropped."""
    before, granted = auc_of(trainer), trainer.statistics.granted
    trainer.switch(mode)
    dropped = sum(trainer.statistics.samples_dropped.values())
    found = losses(trainer.fit(batches(BATCHES, SIZE)))
    dropped = sum(trainer.statistics.samples_dropped.values()) - dropped
    assert trainer.samples == BATCHES * SIZE - dropped
    assert trainer.statistics.granted - granted == BATCHES
    check_settled(trainer)
    assert all(np.isfinite(found))
    rows = whole_rows(trainer)
    assert len(rows) > 200
    assert all(np.isfinite(row).all() and row[-1] > 0 for row in rows.values())  # Adagrad's sum: every row has moved
    assert auc_of(trainer) > before + 0.05


@pytest.mark.parametrize(("count", "last"), [(60, SIZE), (62, 3)])
def test_k_step_on_a_cluster_is_k_step_in_one_process(trainer: Trainer, count: int, last: int) -> None:
    """An even number of batches: one that is alone in its step goes to whoever is first, here and there.

    Without look-ahead: where "auto" measures it in one process, a worker may take both batches of the last step.
    """
    mode, data = KStep(k=3, warmup=0, look_ahead=0), batches(count, SIZE, seed=4, last=last)
    local = trainer_of("local", hr.Adagrad(lr=0.2), k_step_adam, mode=mode, workers=2)
    trainer.switch(mode)
    found, expected = losses(trainer.fit(data)), losses(local.fit(data))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert largest_difference(trainer, local) < 1e-4
    check_settled(trainer)
    local.close()


def test_an_evaluation_between_two_reports_is_of_the_last_merge_here_and_there(trainer: Trainer) -> None:
    mode, data, shown = KStep(k=3, warmup=0), batches(14, SIZE, seed=4), batches(1, 64, seed=5)
    local = trainer_of("local", hr.Adagrad(lr=0.2), k_step_adam, mode=mode, workers=2)
    trainer.switch(mode)
    found, expected = (
        [next(each.predict(shown)) for report in each.fit(data) if isinstance(report, Progress)]
        for each in (trainer, local)
    )
    assert len(found) == 7
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    local.close()


@pytest.mark.parametrize("ahead", [1, 4])
def test_hybrid_goes_on_after_predictions_whoever_is_ahead(trainer: Trainer, ahead: int) -> None:
    """A trainer may hold a batch of the next step, and wait for the others, when the driver asks for its parameters."""
    trainer.switch(Hybrid(max_in_flight=ahead))
    before, shown = trainer.samples, batches(1, 64, seed=5)
    for _ in trainer.fit(batches(40, SIZE), progressive=True):
        next(trainer.predict(shown))
    assert trainer.samples - before == 40 * SIZE
    check_settled(trainer)


def test_a_live_run_goes_through_all_modes_and_keeps_its_state(trainer: Trainer) -> None:
    """Nothing is lost at a switch, and no optimizer begins anew: sums of squares only grow, counts of steps go on."""
    facts, granted = trainer.facts, trainer.statistics.granted
    modes = iter([*EVERY[1:], Sync()])
    told, sums, next_at = [], [0.0], 10 * SIZE
    applied = trainer.statistics.applied_rows + sum(trainer.statistics.dropped.values())
    for report in trainer.fit(batches(400, SIZE)):
        if isinstance(report, Switched):
            told.append(report.mode)
        if not isinstance(report, Progress) or report.samples < next_at or (mode := next(modes, None)) is None:
            continue
        next_at = report.samples + 30 * SIZE
        trainer.switch(mode)
        assert trainer.facts == facts
        sums.append(float(sum(row[-1] for row in whole_rows(trainer).values())))
        assert trainer.optimizer is not None
        assert all(group["lr"] == 0.02 for group in trainer.optimizer.param_groups)
    assert told[-len(EVERY) :] == [mode.name for mode in EVERY[1:]] + ["sync"]
    assert sums == sorted(sums)
    assert len(set(sums)) == len(sums)
    assert trainer.statistics.granted - granted == 400
    ended = trainer.statistics.applied_rows + sum(trainer.statistics.dropped.values())
    assert ended - applied == 400
    check_settled(trainer)
    assert auc_of(trainer) > 0.6


def test_hybrid_ends_however_many_batches_there_are_and_whoever_is_ahead(trainer: Trainer) -> None:
    """A trainer that is ahead has the last data while another finds none, and all of them end every step together."""
    trainer.switch(Hybrid(max_in_flight=4))
    for count in (1, 2, 7, 8, 15, 16, 30):
        before = trainer.samples
        losses(trainer.fit(batches(count, SIZE, seed=count)))
        assert trainer.samples - before == count * SIZE
    check_settled(trainer)


def test_a_switch_back_and_forth_changes_no_number(trainer: Trainer) -> None:
    """Sync in pieces, with the dense state brought home, to the servers and to the trainers again, is Sync."""
    data = batches(60, SIZE, seed=9)
    local = trainer_of("local", hr.Adagrad(lr=0.2), k_step_adam)
    expected = losses(local.fit(joined(data, 16)))
    found = []
    for report in trainer.fit(data):
        if isinstance(report, Progress):
            found.append(report.loss)
            if report.step in (7, 8, 20):
                trainer.switch(GBA())
                trainer.switch(Sync())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert largest_difference(trainer, local) < 1e-4
    local.close()


def test_both_trainers_and_both_shards_have_had_their_part(trainer: Trainer) -> None:
    trained = [asked(trainer, f"trainer {number}")["samples"] for number in (0, 1)]
    losses(trainer.fit(batches(40, SIZE)))
    more = [asked(trainer, f"trainer {number}")["samples"] for number in (0, 1)]
    assert [now - then for now, then in zip(more, trained, strict=True)] == [20 * SIZE, 20 * SIZE]
    held = [asked(trainer, f"shard {number}")["rows.default"] for number in (0, 1)]
    assert sum(held) == len(whole_rows(trainer))
    assert min(held) > 0.3 * sum(held)
