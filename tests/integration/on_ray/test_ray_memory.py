"""However many batches go by, the roles of a cluster and the program that trains stay as large as they were."""

from collections.abc import Iterator

import pytest

import hotrow as hr
from hotrow.data.batch import Batch
from hotrow.modes import GBA, Hybrid, Mode
from hotrow.trainer import Progress, Trainer
from integration.on_ray.small_cluster import ALLOCATORS, batches, check_settled, resident, trainer_of

pytestmark = pytest.mark.usefixtures("one_ray")

SIZE = 2


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    made = trainer_of(hr.Ray(trainers=2, shards=2), global_batch=2 * SIZE)
    yield made
    made.close()


def small_batches(count: int) -> Iterator[Batch]:
    made = batches(500, SIZE)
    for number in range(count):
        yield made[number % len(made)]


@pytest.mark.parametrize(
    ("mode", "count", "settled"),
    [
        (Hybrid(max_in_flight=4), 1_000, 500),
        pytest.param(Hybrid(max_in_flight=4), 10_000, 2_000, marks=pytest.mark.slow),
        pytest.param(GBA(), 10_000, 2_000, marks=pytest.mark.slow),
    ],
    ids=lambda given: given.name if isinstance(given, Mode) else str(given),
)
def test_no_role_grows_with_the_batches_that_went_by(trainer: Trainer, mode: Mode, count: int, settled: int) -> None:
    trainer.switch(mode)
    start, before, trained = trainer.samples, None, 0
    for report in trainer.fit(small_batches(count)):
        if isinstance(report, Progress):
            trained = report.samples - start
        if before is None and trained >= settled * SIZE:
            before = resident(trainer)
    assert before is not None
    assert trained == count * SIZE
    grown = {name: now - before[name] for name, now in resident(trainer).items()}
    print(mode.name, count, {name: f"{each / 2**20:+.1f} MiB" for name, each in grown.items()})
    assert max(grown.values()) < ALLOCATORS, grown
    check_settled(trainer)
