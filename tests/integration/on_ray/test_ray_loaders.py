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
from hotrow.trainer import Progress, Remark, Trainer
from integration.on_ray.small_cluster import (
    asked,
    check_settled,
    evaluated_in_the_driver,
    largest_difference,
    losses,
    trainer_of,
)
from integration.on_ray.test_ray_losses import kill

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


def check_equal(trainer: Trainer, readers: list[str], file: Path, expected: tuple[Trainer, list[float]]) -> None:
    """Two epochs on a cluster, and who has read them."""
    local, wanted = expected
    found = losses(trainer.fit(source_of(file), epochs=2))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    assert trainer.samples == local.samples == 2 * ROWS
    assert largest_difference(trainer, local) < 1e-4
    check_settled(trainer)
    figures = [asked(trainer, name) for name in readers]
    assert sum(each["loaded_samples"] for each in figures) == 2 * ROWS
    assert min(each["loaded_samples"] for each in figures) > 0.3 * ROWS
    assert [each["kept_batches"] for each in figures] == [0, 0]


@pytest.mark.slow  # unit/runtime/test_trainers_that_read.py is the same in threads
@pytest.mark.parametrize("embedding_workers", [0, 1])
def test_trainers_read_what_they_train_on_as_one_process_does(
    file: Path, expected: tuple[Trainer, list[float]], embedding_workers: int
) -> None:
    trainer = trainer_of(hr.Ray(trainers=2, shards=1, embedding_workers=embedding_workers))
    try:
        check_equal(trainer, ["trainer 0", "trainer 1"], file, expected)
    finally:
        trainer.close()


@pytest.fixture(scope="module", params=[0, pytest.param(1, marks=pytest.mark.slow)])
def loaded(request: pytest.FixtureRequest) -> Iterator[Trainer]:
    """Two loaders read for one trainer."""
    trainer = trainer_of(hr.Ray(trainers=1, shards=1, loaders=2, embedding_workers=request.param))
    yield trainer
    trainer.close()


def test_loaders_read_for_trainers_as_one_process_does(
    file: Path, expected: tuple[Trainer, list[float]], loaded: Trainer
) -> None:
    check_equal(loaded, ["loader 0", "loader 1"], file, expected)


def test_loaders_read_for_an_evaluation_too_and_its_figures_are_those_of_the_driver(
    file: Path, loaded: Trainer
) -> None:
    before = [asked(loaded, f"loader {number}")["loaded_samples"] for number in range(2)]
    found = loaded.evaluate(source_of(file))
    after = [asked(loaded, f"loader {number}")["loaded_samples"] for number in range(2)]
    assert sum(after) - sum(before) == found.rows == ROWS
    assert found.metrics == evaluated_in_the_driver(loaded, source_of(file))


@pytest.mark.usefixtures("quick_stop")
def test_a_killed_loader_is_replaced_and_every_sample_is_trained_once(file: Path, loaded: Trainer) -> None:
    """The last test of this cluster: it trains until the new loader reads."""
    begun, told, at = loaded.samples, [], None
    reports = loaded.fit(source_of(file), epochs=100_000)
    for report in reports:
        told += [report.sentence] if isinstance(report, Remark) else []
        if isinstance(report, Progress) and report.step == begun // 16 + 3:
            kill(loaded, "loader 1")
        if "loader 2 takes part" in told and at is None:
            at = loaded.samples
        if at is not None and loaded.samples > at + 2 * ROWS:
            break
    del reports  # ends the fit
    assert any(each.startswith("loader 1 is gone: ") for each in told), told
    assert loaded.statistics.counts["loaders_lost"] == 1
    assert asked(loaded, "loader 2")["loaded_samples"] > 0
    assert loaded.position is not None
    assert loaded.samples - begun == loaded.position.samples
    check_settled(loaded)
    assert loaded.evaluate(source_of(file)).rows == ROWS
