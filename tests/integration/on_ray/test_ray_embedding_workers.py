"""A run whose ids go to embedding workers is the run whose trainers ask the shards themselves."""

from collections.abc import Iterator

import numpy as np
import pytest

import hotrow as hr
from hotrow.trainer import Trainer, TrainingEnded
from integration.on_ray.small_cluster import (
    asked,
    batches,
    check_settled,
    joined,
    largest_difference,
    losses,
    trainer_of,
)

pytestmark = pytest.mark.usefixtures("one_ray")


@pytest.fixture(scope="module")
def trainer() -> Iterator[Trainer]:
    made = trainer_of(hr.Ray(trainers=2, shards=2, embedding_workers=2), local_batch=8)
    yield made
    made.close()


def test_sync_is_one_large_batch_and_other_modes_end(trainer: Trainer) -> None:
    local = trainer_of("local")
    data = batches(40, 8)
    found, expected = losses(trainer.fit(data)), losses(local.fit(joined(data, 16)))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert largest_difference(trainer, local) < 1e-4
    local.close()
    for mode in ("hybrid", "gba", "async"):
        before = trainer.samples
        trainer.switch(mode)
        *_, ended = trainer.fit(batches(31, 8, seed=1, last=3))
        assert isinstance(ended, TrainingEnded)
        assert trainer.samples - before == 30 * 8 + 3
        check_settled(trainer)
    figures = [asked(trainer, f"embedding worker {number}") for number in range(2)]
    assert all(each["pushed"] > 40 for each in figures)  # by turns
    assert [each["kept"] for each in figures] == [0, 0]
