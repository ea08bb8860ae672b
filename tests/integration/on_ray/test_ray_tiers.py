"""Shards with rows on disk: the results of shards in memory, also after one was killed, and no file left."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import hotrow as hr
from hotrow.data.source import Source
from hotrow.modes import Async, Hybrid, Mode, Sync
from hotrow.runtime.settings import Resources
from hotrow.store.segments import SHARED_MEMORY
from hotrow.trainer import Progress, Trainer
from integration.on_ray.small_cluster import (
    DIM,
    Net,
    asked,
    batches,
    check_settled,
    file_of,
    largest_difference,
    trainer_of,
    whole_rows,
)
from integration.on_ray.test_ray_losses import kill

pytestmark = pytest.mark.usefixtures("one_ray")

SAMPLES = 640
SMALL = dict.fromkeys(("trainer", "shard", "embedding_worker", "loader"), Resources(cpus=0.25))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return file_of(batches(SAMPLES // 8, 8), tmp_path_factory.mktemp("data") / "train.parquet")


@pytest.fixture(scope="module", params=[0])
def begun(
    one_ray: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Trainer, Path]]:
    """A cluster, and the state it began with. Of 240 ids, memory has room for 160.

    The parameter is the number of loaders.
    """
    before = set(SHARED_MEMORY.glob("hotrow-run-*"))
    folder, start = tmp_path_factory.mktemp("rows"), tmp_path_factory.mktemp("saved") / "start"
    disk = {"capacity": 160, "disk": "4MB", "path": folder}
    table = hr.Table(dim=DIM, optimizer=hr.Adagrad(lr=0.05), init=hr.Normal(std=0.1), seed=3, **disk)
    engine = hr.Ray(trainers=2, shards=2, loaders=request.param, replace_lost=9, **SMALL)
    with closing(
        Trainer(Net(), table, engine=engine, global_batch=16, local_batch=8, report_every_s=0, threads=1)
    ) as made:
        yield made, made.save(start)
    assert set(SHARED_MEMORY.glob("hotrow-run-*")) <= before
    assert list(folder.iterdir()) == []


@pytest.fixture
def trainer(begun: tuple[Trainer, Path]) -> Trainer:
    made, start = begun
    made.load(start)
    return made


def test_a_step_is_the_same_with_rows_on_disk(trainer: Trainer, source: Source) -> None:
    with closing(trainer_of()) as memory:
        for each in (trainer, memory):
            each.switch(Sync(look_ahead=0))
            for _ in each.fit(source):
                pass
        assert largest_difference(trainer, memory) < 1e-5
    assert sum(asked(trainer, f"shard {number}")["moved_up.default"] for number in range(2)) > 0
    assert trainer.tables.tiers["default"].stats().disk_rows > 0


@pytest.mark.parametrize(
    ("begun", "readers"),
    [(0, ["trainer 0", "trainer 1"]), (1, ["loader 0"])],
    indirect=["begun"],
    ids=["trainers read", "a loader reads"],
)
def test_rows_come_into_memory_ahead_of_their_lookup(trainer: Trainer, readers: list[str], source: Source) -> None:
    trainer.switch(Async())
    victim = "shard 1"
    for report in trainer.fit(source):
        if isinstance(report, Progress) and victim and report.samples >= SAMPLES // 2:
            kill(trainer, victim)
            victim = ""
    came = [asked(trainer, f"shard {number}") for number in range(2)]
    sent = sum(asked(trainer, name)["hints"] for name in readers)
    assert sent >= sum(each["hints"] for each in came)
    for each in came:  # also the one that was started again
        assert each["hints"] > 0
        assert each["moved_ahead.default"] > 0
        assert each["moved_up.default"] == each["moved_ahead.default"] + each["moved_late.default"]
    check_settled(trainer)


@pytest.mark.parametrize("mode", [Async(), Hybrid()], ids=lambda mode: mode.name)
def test_a_killed_shard_comes_back_with_its_rows_on_disk(mode: Mode, trainer: Trainer, source: Source) -> None:
    trainer.switch(mode)
    victim = "shard 1"
    for report in trainer.fit(source):
        if isinstance(report, Progress) and victim and report.samples >= SAMPLES // 2:
            kill(trainer, victim)
            victim = ""
    assert not victim
    check_settled(trainer)
    assert trainer.samples == SAMPLES
    assert len(whole_rows(trainer)) == 240
