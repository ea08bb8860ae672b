"""Trainers and embedding workers that are killed: the run goes on, and every sample is trained once."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import hotrow as hr
from hotrow.data.source import Source
from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.optim import KStepAdam
from hotrow.runtime.ray.cluster import RoleLost
from hotrow.runtime.settings import Resources
from hotrow.trainer import Progress, Remark, Trainer
from integration.on_ray.small_cluster import batches, check_settled, file_of, trainer_of
from integration.on_ray.test_ray_losses import kill

pytestmark = pytest.mark.usefixtures("one_ray", "quick_stop")

SAMPLES, LOCAL = 1_600, 4
CLOSE = 0.03  # between the AUC of a run with a loss and of one without


class Data(NamedTuple):
    train: Source
    valid: Source


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Files that any role can read."""
    folder = tmp_path_factory.mktemp("data")
    train, valid = batches(SAMPLES // 8, 8), batches(100, 32, seed=5)
    return Data(file_of(train, folder / "train.parquet"), file_of(valid, folder / "valid.parquet"))


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    """Of four trainers three are killed, one test after the other."""
    small = dict.fromkeys(("trainer", "shard", "embedding_worker"), Resources(cpus=0.25))
    engine = hr.Ray(trainers=4, shards=2, embedding_workers=2, replace_lost=0, **small)
    made = trainer_of(engine, dense=lambda given: KStepAdam(given, lr=0.01), local_batch=LOCAL)
    yield made
    made.close()


def fit_and_kill(trainer: Trainer, source: Source, victim: str, *, epochs: int = 1) -> list[str]:
    """Train, and kill a role in the middle; gives what was remarked."""
    told, begun = [], trainer.samples
    for report in trainer.fit(source, shuffle=64, epochs=epochs):
        if isinstance(report, Remark):
            told.append(report.sentence)
        if isinstance(report, Progress) and victim and report.samples >= begun + SAMPLES // 4:
            kill(trainer, victim)
            victim = ""
    assert not victim
    return told


def check_trained_once(trainer: Trainer, begun: int, *, epochs: int = 1) -> None:
    """All samples of the data, by the ledger of the data and by that of the tables."""
    position, counted = trainer.position, trainer.statistics
    assert position is not None
    assert (position.epoch, position.marks, position.samples) == (epochs, (), SAMPLES * epochs)
    late = counted.samples_dropped.get("late", 0)
    assert trainer.samples - begun + late == SAMPLES * epochs
    if not counted.counts.get("rows_applied_twice", 0):
        check_settled(trainer)


@pytest.mark.parametrize(
    ("mode", "victim"),
    [
        (Async(), "trainer 0"),
        (GBA(), "embedding worker 0"),
        (Sync(look_ahead=1), "trainer 1"),
        (KStep(k=5, warmup=0), "trainer 2"),
        pytest.param(Sync(look_ahead=0), "embedding worker 1", marks=pytest.mark.slow),  # the last: another one starts
        pytest.param(GBA(), "embedding worker 2", marks=pytest.mark.slow),
    ],
    ids=lambda given: given if isinstance(given, str) else str(given.name),
)
def test_the_others_train_what_a_killed_role_held(trainer: Trainer, data: Data, mode: Mode, victim: str) -> None:
    """One small cluster for all: the third trainer takes an uneven share of a step of four batches."""
    trainer.switch(mode)
    begun, kind = trainer.samples, victim.rpartition(" ")[0]
    lost = trainer.statistics.counts.get(f"{kind.replace(' ', '_')}s_lost", 0)
    told = fit_and_kill(trainer, data.train, victim)
    check_trained_once(trainer, begun)
    assert any(each.startswith(f"{victim} is gone: ") for each in told), told
    assert trainer.statistics.counts[f"{kind.replace(' ', '_')}s_lost"] == lost + 1
    assert trainer.cluster is not None
    assert victim not in trainer.cluster.roles
    assert not trainer.cluster.lost


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "victim"),
    [
        (Async(), "trainer 1"),
        (BulkSync(bulk=3), "trainer 0"),
        (BoundedStaleness(bound=1), "trainer 1"),
        (BackupWorkers(backups=1), "trainer 0"),
        (GBA(), "trainer 1"),
        (Sync(look_ahead=0), "trainer 0"),
        (Sync(look_ahead=1), "trainer 1"),
        (Hybrid(), "trainer 0"),
        (KStep(k=5), "trainer 1"),
    ],
    ids=lambda given: given if isinstance(given, str) else f"{given.name}-{getattr(given, 'look_ahead', '')}",
)
def test_a_model_learns_as_well_as_without_a_loss(mode: Mode, victim: str, data: Data) -> None:
    found = []
    for engine in (hr.Ray(trainers=2, shards=2, replace_lost=0), "local"):
        workers = {} if isinstance(engine, hr.Ray) else {"workers": 2}
        trainer = trainer_of(
            engine, dense=lambda given: KStepAdam(given, lr=0.01), mode=mode, local_batch=LOCAL, **workers
        )
        if isinstance(engine, hr.Ray):
            fit_and_kill(trainer, data.train, victim, epochs=6)
            check_trained_once(trainer, 0, epochs=6)
        else:
            list(trainer.fit(data.train, shuffle=64, epochs=6))
        found.append(trainer.evaluate(data.valid).metrics["auc"] or 0.0)
        trainer.close()
    assert found[0] == pytest.approx(found[1], abs=CLOSE)


@pytest.mark.slow
def test_a_trainer_takes_the_place_of_a_lost_one_also_of_the_last(data: Data) -> None:
    trainer = trainer_of(hr.Ray(trainers=1, shards=1), mode=Async(), local_batch=LOCAL)
    told = fit_and_kill(trainer, data.train, "trainer 0")
    check_trained_once(trainer, 0)
    assert "trainer 1 takes part" in told
    kill(trainer, "trainer 1")
    trainer.switch("sync")  # at rest the dense parameters are in this process
    begun = trainer.samples
    told = [each.sentence for each in trainer.fit(data.train) if isinstance(each, Remark)]
    assert "trainer 2 takes part" in told
    check_trained_once(trainer, begun)
    trainer.close()


@pytest.mark.parametrize(
    "mode", [Sync(), *(pytest.param(each, marks=pytest.mark.slow) for each in (Hybrid(), KStep(k=5)))]
)
def test_without_a_trainer_dense_parameters_come_from_the_last_checkpoint(
    mode: Mode, data: Data, tmp_path: Path
) -> None:
    """Rows stay, the steps go on, and what the dense parameters lack is counted."""
    dense = (lambda given: KStepAdam(given, lr=0.01)) if isinstance(mode, KStep) else None
    trainer = trainer_of(hr.Ray(trainers=1, shards=1), dense=dense, mode=mode, local_batch=LOCAL)
    told, saved, steps = [], 0, []
    for report in trainer.fit(data.train, shuffle=64):
        told += [report.sentence] if isinstance(report, Remark) else []
        steps += [report.step] if isinstance(report, Progress) else []
        if not saved and trainer.samples >= SAMPLES // 4:
            trainer.save(tmp_path / "saved")
            saved = trainer.step
        if isinstance(report, Progress) and saved and report.step == saved + 20:
            kill(trainer, "trainer 0")
    check_trained_once(trainer, 0)
    assert steps == sorted(steps), "the counter does not go back"
    assert "trainer 1 takes part" in told
    assert any(each.startswith("no trainer was left: dense parameters are those of the checkpoint") for each in told)
    assert trainer.statistics.counts["dense_steps_lost"] >= 20
    assert trainer.statistics.counts["dense_samples_lost"] >= 20 * trainer.global_batch
    trainer.save(tmp_path / "after")
    trainer.close()


@pytest.mark.slow
def test_without_a_replacement_what_was_trained_can_be_saved(data: Data, tmp_path: Path) -> None:
    """Dense parameters and rows are on the shards."""
    trainer = trainer_of(hr.Ray(trainers=1, shards=2, replace_lost=0), mode=GBA(), local_batch=LOCAL)
    with pytest.raises(RoleLost, match="trainer 0 is gone: "):
        fit_and_kill(trainer, data.train, "trainer 0")
    trainer.save(tmp_path / "saved")
    assert trainer.position is not None
    assert trainer.position.samples == trainer.samples
    trainer.close()


@pytest.mark.slow
def test_a_trainer_that_is_lost_between_two_fits_is_left_out(data: Data, tmp_path: Path) -> None:
    trainer = trainer_of(hr.Ray(trainers=2, shards=1, replace_lost=0), mode=Sync(), local_batch=LOCAL)
    list(trainer.fit(data.train))
    kill(trainer, "trainer 0")
    assert trainer.evaluate(data.valid).rows == 3_200
    told = [each.sentence for each in trainer.fit(data.train) if isinstance(each, Remark)]
    assert any(each.startswith("trainer 0 is gone: ") for each in told)
    check_trained_once(trainer, SAMPLES)
    trainer.save(tmp_path / "after")
    trainer.close()
