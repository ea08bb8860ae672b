"""Trainers and embedding workers join and leave a run on Ray. One small cluster for all of it."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import ray

import hotrow as hr
from hotrow.errors import ConfigError, InputError
from hotrow.modes import GBA, Hybrid
from hotrow.runtime.ray import actor_pool
from hotrow.runtime.ray.actors import TransportSettings
from hotrow.runtime.ray.connection import PlacedRoles
from hotrow.runtime.settings import Resources
from hotrow.trainer import Progress, Remark, Trainer
from hotrow.types import RoleId
from integration.on_ray.small_cluster import (
    asked,
    batches,
    check_settled,
    losses,
    trainer_of,
    whole_rows,
)

pytestmark = pytest.mark.usefixtures("one_ray")

COUNT = 400


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    made = trainer_of(hr.Ray(trainers=2, shards=1, embedding_workers=1), local_batch=8, mode=GBA())
    yield made
    made.close()


def fit_and(trainer: Trainer, count: int, act: Callable[[], None]) -> list[str]:
    """Train, and do something every 20 batches or so; gives what was remarked."""
    told, next_at = [], trainer.samples + 160
    for report in trainer.fit(batches(count, 8)):
        if isinstance(report, Remark):
            told.append(report.sentence)
        if isinstance(report, Progress) and report.samples >= next_at:
            act()
            next_at = report.samples + 160
    return told


def roles(trainer: Trainer) -> list[str]:
    assert trainer.cluster is not None
    return [name for name in trainer.cluster.roles if not name.startswith("shard")]


def test_roles_join_and_leave_while_gba_runs_and_it_goes_on_in_sync(trainer: Trainer, tmp_path: Path) -> None:
    left: list[Future[None]] = []
    turn = iter(range(100))

    def change() -> None:
        match next(turn):
            case 0:
                assert trainer.join("trainer") == "trainer 2"
                assert trainer.join("embedding worker") == "embedding worker 1"
            case 4:
                assert trainer.facts.workers == 3
                left.extend([trainer.leave("trainer 0"), trainer.leave("embedding worker 0")])
            case 6:
                trainer.save(tmp_path / "middle")

    told = fit_and(trainer, COUNT, change)
    for each in left:
        each.result(20)
    assert trainer.samples == COUNT * 8 == trainer.statistics.samples_applied_rows
    assert "trainer 2 takes part" in told
    assert "trainer 0 has left" in told
    assert roles(trainer) == ["trainer 1", "trainer 2", "embedding worker 1"]
    assert min(asked(trainer, role)["batches"] for role in ("trainer 2", "embedding worker 1")) > 20
    assert trainer.facts.workers == 2
    check_settled(trainer)

    trainer.save(tmp_path / "after")
    local = trainer_of("local")
    local.load(tmp_path / "after")
    assert len(whole_rows(local)) == len(whole_rows(trainer)) > 200
    local.load(tmp_path / "middle")
    local.close()

    trainer.switch("sync")
    before = trainer.samples
    assert len(losses(trainer.fit(batches(40, 8)))) == 20
    assert trainer.samples - before == 40 * 8
    check_settled(trainer)


def test_embedding_workers_come_and_go_in_hybrid_and_trainers_where_their_number_divides_a_step(
    trainer: Trainer,
) -> None:
    trainer.switch(Hybrid())
    turn = iter(range(100))
    before = trainer.samples

    def change() -> None:
        match next(turn):
            case 0:
                assert trainer.join("embedding worker") == "embedding worker 2"
                with pytest.raises(ConfigError, match=r"trainers=3: in hybrid .* or switch to a mode .* first, as gba"):
                    trainer.join("trainer")
            case 2:
                trainer.leave("embedding worker 1")
                trainer.leave("trainer 1")

    fit_and(trainer, 120, change)
    assert trainer.samples - before == 120 * 8
    assert roles(trainer) == ["trainer 2", "embedding worker 2"]
    check_settled(trainer)


def test_what_cannot_be_is_a_sentence_and_changes_nothing(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_pool, "ROOM_S", 0.0)
    monkeypatch.setattr(actor_pool, "_is_placed", lambda _: False)
    there = roles(trainer)
    acts: list[tuple[Callable[[], object], str]] = [
        (lambda: trainer.leave("trainer 2"), "'trainer 2': is the last trainer, a run needs one"),
        (lambda: trainer.leave("trainer 0"), "'trainer 0': there is no such role; there are: trainer 2, embedding"),
        (lambda: trainer.leave("shard 0"), "'shard 0': shards hold rows, and stay"),
        (lambda: trainer.leave("embedding worker 2"), "is the last embedding worker"),
        (lambda: trainer.join("shard"), "kind='shard': must be 'trainer' or 'embedding worker'"),  # type: ignore[arg-type]
        (lambda: trainer.join("embedding worker"), "embedding worker 3: Ray found no resources for it within 0 s"),
    ]
    for act, told in acts:
        with pytest.raises((InputError, ConfigError), match=told):
            act()
    assert roles(trainer) == there


class WaitingRole:
    """A role whose constructor takes long, as that of a shard which restores its rows."""

    def __init__(self, go_on: Path) -> None:
        while not go_on.exists():
            time.sleep(0.05)

    def address(self) -> str:
        return "tcp://127.0.0.1:1"


def test_a_role_that_is_placed_may_take_as_long_as_it_needs_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = actor_pool.ActorPool(TransportSettings(security="off"), None, lambda role, number: {})
    made: Any = ray.remote(WaitingRole)
    placed, waits = (made.options(num_cpus=cpus).remote(tmp_path / "go on") for cpus in (0, 4000))
    try:
        while not actor_pool._is_placed(placed):
            time.sleep(0.05)
        monkeypatch.setattr(actor_pool, "ROOM_S", -1.0)
        with pytest.raises(ConfigError, match="shard 1: Ray found no resources for it"):
            pool._check_room(RoleId("shard", 1), waits)
        goes_on = threading.Timer(1.0, (tmp_path / "go on").touch)
        goes_on.start()
        pool._check_room(RoleId("shard", 0), placed)
        goes_on.join()
    finally:
        ray.kill(placed)
        ray.kill(waits)


@pytest.mark.parametrize(("own", "cpus"), [(True, 0), (False, 0.5)])
def test_a_ray_of_the_runs_own_has_room_for_whoever_joins(own: bool, cpus: float) -> None:
    placed = PlacedRoles(hr.Ray(trainer=Resources(cpus=0.5), shard=Resources(cpus=0)), own=own)
    first, later = placed.options("trainer", 0), placed.options("trainer", 1)
    placed.close()
    assert (first["num_cpus"], later["num_cpus"]) == (0.5, cpus)
    assert "scheduling_strategy" not in later
