"""Shards that are killed: they are started again with their rows, and every sample is trained once."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import hotrow as hr
from hotrow.data.source import Source
from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.optim import KStepAdam
from hotrow.runtime.ray.cluster import RoleLost
from hotrow.runtime.settings import Resources
from hotrow.store.segments import SHARED_MEMORY
from hotrow.trainer import Progress, Remark, Trainer
from integration.on_ray.small_cluster import batches, check_settled, file_of, trainer_of, whole_rows
from integration.on_ray.test_ray_losses import kill

pytestmark = pytest.mark.usefixtures("one_ray", "quick_stop")

SAMPLES, LOCAL = 640, 4
SMALL = dict.fromkeys(("trainer", "shard", "embedding_worker"), Resources(cpus=0.25))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return file_of(batches(SAMPLES // 8, 8), tmp_path_factory.mktemp("data") / "train.parquet")


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    before = set(SHARED_MEMORY.glob("hotrow-run-*"))
    engine = hr.Ray(trainers=2, shards=2, **SMALL)
    made = trainer_of(engine, dense=lambda given: KStepAdam(given, lr=0.01), local_batch=LOCAL)
    yield made
    made.close()
    assert set(SHARED_MEMORY.glob("hotrow-run-*")) <= before


def fit_and_kill(trainer: Trainer, source: Source, victim: str = "shard 1") -> list[str]:
    """Train, and kill a role in the middle; gives what was remarked."""
    told, begun = [], trainer.samples
    for report in trainer.fit(source, shuffle=64):
        if isinstance(report, Remark):
            told.append(report.sentence)
        if isinstance(report, Progress) and victim and report.samples >= begun + SAMPLES // 4:
            kill(trainer, victim)
            victim = ""
    assert not victim
    return told


def check_trained_once(trainer: Trainer, begun: int) -> None:
    position, counted = trainer.position, trainer.statistics
    assert position is not None
    assert (position.epoch, position.marks, position.samples) == (1, (), SAMPLES)
    assert trainer.samples - begun + counted.samples_dropped.get("late", 0) == SAMPLES
    check_settled(trainer)


@pytest.mark.parametrize(
    "mode",
    [
        GBA(),
        Async(),
        Sync(look_ahead=1),
        Hybrid(),
        *(
            pytest.param(mode, marks=pytest.mark.slow)
            for mode in (
                Sync(look_ahead=0),
                KStep(k=5, warmup=0),
                BulkSync(bulk=3),
                BoundedStaleness(bound=1),
                BackupWorkers(backups=1),
            )
        ),
    ],
    ids=lambda mode: f"{mode.name}-{getattr(mode, 'look_ahead', '')}",
)
def test_a_killed_shard_is_started_again_and_training_goes_on(trainer: Trainer, source: Source, mode: Mode) -> None:
    """One small cluster for all."""
    trainer.switch(mode)
    begun, lost = trainer.samples, trainer.statistics.counts.get("shards_lost", 0)
    told = fit_and_kill(trainer, source)
    check_trained_once(trainer, begun)
    (sentence,) = [each for each in told if each.startswith("shard 1 is gone: ")]
    assert sentence.endswith(" s and has its rows")
    assert trainer.statistics.counts["shards_lost"] == lost + 1
    assert trainer.cluster is not None
    assert not trainer.cluster.lost


@pytest.mark.slow
def test_the_next_checkpoint_after_a_restart_is_full_and_says_so(
    source: Source, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = trainer_of(hr.Ray(trainers=1, shards=2, **SMALL), mode=GBA(), local_batch=LOCAL)
    for _ in range(2):
        fit_and_kill(trainer, source)
        with caplog.at_level(logging.INFO, logger="hotrow.trainer"):
            trainer.save(tmp_path, delta=True, keep=3)
    assert "the next checkpoint is a full one: shard 1" in caplog.text
    rows = whole_rows(trainer)
    trainer.close()
    local = trainer_of("local", mode=GBA(), local_batch=LOCAL)
    local.load(tmp_path)
    assert whole_rows(local).keys() == rows.keys()


@pytest.mark.slow
def test_rows_in_the_memory_of_a_killed_shard_come_from_the_last_checkpoint(source: Source, tmp_path: Path) -> None:
    trainer = trainer_of(hr.Ray(trainers=1, shards=2, shared_rows=False, **SMALL), mode=GBA(), local_batch=LOCAL)
    list(trainer.fit(source))
    trainer.save(tmp_path)
    begun = trainer.samples
    told = fit_and_kill(trainer, source)
    check_trained_once(trainer, begun)
    assert any("has its rows of the last checkpoint, without the updates of" in each for each in told), told
    assert trainer.statistics.counts["shard_steps_lost"] > 0
    trainer.close()


@pytest.mark.slow
def test_without_a_checkpoint_rows_in_the_memory_of_a_killed_shard_end_the_run(source: Source) -> None:
    trainer = trainer_of(hr.Ray(trainers=1, shards=2, shared_rows=False, **SMALL), mode=GBA(), local_batch=LOCAL)
    with pytest.raises(RoleLost, match=r"shard 1 is gone: .*no checkpoint .*run\.checkpoint_every"):
        fit_and_kill(trainer, source)
    trainer.close()
