"""Roles that a run cannot do without, and models that raise: nothing hangs, and the message names the cause."""

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hotrow as hr
from hotrow.data.batch import Batch
from hotrow.modes import GBA, Mode, Sync
from hotrow.runtime.ray.cluster import RoleLost
from hotrow.trainer import Progress, Trainer
from hotrow.transport.errors import RemoteFault
from hotrow.types import RoleId
from integration.on_ray.small_cluster import UNLUCKY, batches, file_of, losses, trainer_of

pytestmark = pytest.mark.usefixtures("one_ray")


def endless() -> Iterator[Batch]:
    yield from itertools.cycle(batches(50, 8))


def kill(trainer: Trainer, role: str) -> None:
    assert trainer.cluster is not None
    os.kill(trainer.cluster.roles[RoleId.parse(role)].pid, signal.SIGKILL)


def train_and_kill(trainer: Trainer, role: str) -> None:
    """Data do not end: only the loss does."""
    for report in trainer.fit(endless()):
        if isinstance(report, Progress) and report.step == 4:
            kill(trainer, role)


@pytest.mark.parametrize(
    ("role", "mode"),
    [
        ("trainer 0", Sync()),
        ("shard 1", GBA()),
        pytest.param("shard 1", Sync(), marks=pytest.mark.slow),
    ],
    ids=lambda given: given if isinstance(given, str) else str(given.name),
)
@pytest.mark.usefixtures("quick_stop")
def test_a_role_that_is_killed_is_named_and_a_new_cluster_can_begin(role: str, mode: Mode, tmp_path: Path) -> None:
    """Every one of these clusters is started in the Ray of the one that was lost before.

    The only trainer of Sync has the dense parameters.
    """
    shards = 1 if role.startswith("trainer") else 2
    trainer = trainer_of(hr.Ray(trainers=1, shards=shards, replace_lost=0), mode=mode, local_batch=8)
    with pytest.raises(RoleLost, match=f"{role} is gone"):
        train_and_kill(trainer, role)
    with pytest.raises(hr.InputError, match="load the last checkpoint into another"):
        trainer.save(tmp_path / "of several steps")
    assert not list(tmp_path.iterdir())
    trainer.close()


def test_a_role_that_is_lost_between_two_fits_is_named(tmp_path: Path) -> None:
    trainer = trainer_of(hr.Ray(trainers=1, shards=1, replace_lost=0))
    source = file_of(batches(2, 16), tmp_path / "x.parquet")
    assert len(losses(trainer.fit(batches(2, 16)))) == 2
    assert trainer.evaluate(source).rows == 32
    kill(trainer, "trainer 0")
    with pytest.raises(RoleLost, match="trainer 0 is gone"):
        trainer.evaluate(source)
    with pytest.raises(RoleLost, match="trainer 0 is gone"):
        losses(trainer.fit(batches(2, 16)))
    trainer.close()


@pytest.mark.parametrize("mode", [Sync(), pytest.param(GBA(), marks=pytest.mark.slow)], ids=lambda mode: str(mode.name))
def test_what_a_model_raises_reaches_who_trains_with_the_name_of_the_trainer(mode: Mode) -> None:
    trainer = trainer_of(hr.Ray(trainers=2, shards=1), mode=mode)
    data = batches(21, 8)
    numbers = data[-1].numbers.copy()
    numbers[3, 0] = UNLUCKY
    bad = Batch(data[-1].parts, numbers, data[-1].labels)
    found = []
    with pytest.raises(RemoteFault, match=r"trainer [01]: ArithmeticError: this number is unlucky"):
        found += losses(trainer.fit([*data[:20], bad, *data]))
    with pytest.raises(hr.InputError, match="load the last checkpoint"):
        trainer.evaluate(data)
    trainer.close()
    assert np.isfinite(found).all()
