"""Loaders and trainers of a cluster read the data: the same batches and the same losses as in one process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hotrow as hr
from hotrow.data.parquet import ParquetSource
from hotrow.data.schema import Schema
from hotrow.trainer import Trainer
from integration.on_ray.small_cluster import asked, check_settled, largest_difference, losses, trainer_of

pytestmark = pytest.mark.usefixtures("one_ray")

SCHEMA = Schema(label="click", numbers=("x", "y", "z"), ids=("a", "b", "c", "d"))
ROWS = 16 * 30 + 5


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = np.random.default_rng(0)
    columns: dict[str, Any] = {"click": chance.integers(0, 2, ROWS).astype(np.int8)}
    columns |= {name: chance.normal(size=ROWS).astype(np.float32) for name in "xyz"}
    columns |= {name: chance.integers(0, 60, ROWS) for name in "abcd"}
    path = tmp_path_factory.mktemp("data") / "x.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=48)
    return path


def source_of(file: Path) -> ParquetSource:
    return ParquetSource(file, SCHEMA)


@pytest.fixture(scope="module")
def expected(file: Path) -> Iterator[tuple[Trainer, list[float]]]:
    """In one process, with whole global batches."""
    local = trainer_of("local")
    yield local, losses(local.fit(source_of(file), epochs=2))
    local.close()


@pytest.mark.parametrize(("loaders", "embedding_workers"), [(0, 0), (2, 0), pytest.param(2, 1, marks=pytest.mark.slow)])
def test_a_run_whose_data_others_read_is_the_run_of_one_process(
    file: Path, expected: tuple[Trainer, list[float]], loaders: int, embedding_workers: int
) -> None:
    local, wanted = expected
    engine = hr.Ray(trainers=2, shards=1, loaders=loaders, embedding_workers=embedding_workers)
    trainer = trainer_of(engine)
    try:
        found = losses(trainer.fit(source_of(file), epochs=2))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
        assert trainer.samples == local.samples == 2 * ROWS
        assert largest_difference(trainer, local) < 1e-4
        check_settled(trainer)
        names = [f"loader {number}" for number in range(2)] if loaders else ["trainer 0", "trainer 1"]
        figures = [asked(trainer, name) for name in names]
        assert sum(each["loaded_samples"] for each in figures) == 2 * ROWS
        assert min(each["loaded_samples"] for each in figures) > 0.3 * ROWS
        assert [each["kept_batches"] for each in figures] == [0, 0]
    finally:
        trainer.close()
