"""Every shard writes and reads its own part of a checkpoint; any number of shards, and one process, load it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import hotrow as hr
from hotrow.checkpoint import SavedCheckpoint
from hotrow.trainer import Trainer
from integration.on_ray.small_cluster import batches, trainer_of, whole_rows

Floats = NDArray[np.float32]
pytestmark = pytest.mark.usefixtures("one_ray")


def made(engine: object, **settings: object) -> Trainer:
    return trainer_of(engine, hr.Adagrad(lr=0.05), lambda p: torch.optim.Adagrad(p, lr=0.02), **settings)  # type: ignore


def same(left: dict[int, Floats], right: dict[int, Floats]) -> bool:
    return left.keys() == right.keys() and all((left[key] == right[key]).all() for key in left)


def test_two_shards_write_and_one_process_loads_a_full_one_and_its_changes(tmp_path: Path) -> None:
    trainer, given = made(hr.Ray(trainers=1, shards=2)), batches(12, 16)
    states = []
    for turn in range(3):
        list(trainer.fit(given[4 * turn : 4 * turn + 4]))
        saving = trainer.save_in_background(tmp_path / "c", keep=9, delta=True)
        states.append(whole_rows(trainer))
        assert trainer.finish_saving() is saving
    found = SavedCheckpoint.open(tmp_path / "c")
    found.verify()
    assert [link.manifest.kind for link in found.chain] == ["full", "delta", "delta"]
    for facts in found.manifest.tables.values():
        assert [shard.rows.rpartition("/")[2] for shard in facts.shards] == ["0-of-2.arrow", "1-of-2.arrow"]
    trainer.close()
    local = made("local")
    for number, state in enumerate(states, 1):
        local.load(tmp_path / "c" / f"{number:06d}")
        assert same(whole_rows(local), state)
    local.close()


@pytest.mark.slow  # 30 s of starting roles; tests/unit/server/test_shard_loading.py has the same in threads
def test_two_shards_three_shards_and_one_process_continue_from_the_same_bits(tmp_path: Path) -> None:
    given = batches(10, 16)
    two = made(hr.Ray(trainers=1, shards=2))
    list(two.fit(given[:4]))
    two.save(tmp_path / "two", keep=9, delta=True)
    list(two.fit(given[4:6]))
    two.save(tmp_path / "two", keep=9, delta=True)
    state = whole_rows(two)
    two.close()
    three = made(hr.Ray(trainers=1, shards=3))
    list(three.fit(given[:2]))  # rows that the load replaces
    three.load(tmp_path / "two")
    assert same(whole_rows(three), state)
    three.save(tmp_path / "three")
    [damaged] = (tmp_path / "two").rglob("000002/tables/0/1-of-2.arrow")
    damaged.write_bytes(damaged.read_bytes()[:-8] + bytes(8))
    with pytest.raises(hr.InputError, match=r"shard 1.*000002: tables/0/1-of-2\.arrow was changed since it was saved"):
        three.load(tmp_path / "two")
    assert same(whole_rows(three), state)
    list(three.fit(given[6:8]))  # a refused load has changed nothing
    three.close()
    local = made("local")
    local.load(tmp_path / "three")
    assert same(whole_rows(local), state)
    local.close()


def test_a_shard_that_cannot_write_is_named_and_training_goes_on(tmp_path: Path) -> None:
    trainer, given = made(hr.Ray(trainers=1, shards=2)), batches(8, 16)
    list(trainer.fit(given[:4]))
    trainer.save(tmp_path / "c")
    trainer.save(tmp_path / "c", delta=True)  # changes were not tracked: it is full
    assert SavedCheckpoint.open(tmp_path / "c").manifest.kind == "full"
    before = whole_rows(trainer)
    (tmp_path / "c" / "000003").mkdir()
    (tmp_path / "c" / "000004").write_text("in the way of the next folder")
    with pytest.raises(hr.errors.FileError, match=r"shard \d"):
        trainer.save(tmp_path / "c", delta=True)
    assert SavedCheckpoint.open(tmp_path / "c").manifest.number == 2
    (tmp_path / "c" / "000004").unlink()
    list(trainer.fit(given[4:]))
    assert not same(whole_rows(trainer), before)
    trainer.save(tmp_path / "c", delta=True)
    state = whole_rows(trainer)
    trainer.close()
    local = made("local")
    local.load(tmp_path / "c")
    assert same(whole_rows(local), state)
    local.close()
