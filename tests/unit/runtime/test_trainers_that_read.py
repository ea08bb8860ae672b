"""Trainers read what they train on: the steps are those of a run whose driver reads."""

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.data.loader import Loader
from hotrow.data.parquet import ParquetSource
from hotrow.data.reading import BatchName
from hotrow.data.schema import Schema
from hotrow.modes import GBA, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.state import RunState
from unit.runtime.cluster_threads import SAMPLES, cluster

SCHEMA = Schema(
    label="y",
    numbers=("x0", "x1", "x2"),
    ids=(
        {"column": "a", "table": "t"},
        {"column": "b", "table": "t"},
        {"column": "h", "table": "t", "sequence": 5},
    ),
    weight="w",
)
ROWS = 20 * 2 * SAMPLES + 3


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = np.random.default_rng(4)
    columns = {name: pa.array(chance.integers(0, 50, ROWS)) for name in "ab"}
    columns["h"] = pa.array([chance.integers(0, 50, length).tolist() for length in chance.integers(0, 4, ROWS)])
    columns |= {f"x{place}": pa.array(chance.normal(size=ROWS).astype(np.float32)) for place in range(3)}
    columns |= {"y": pa.array(chance.integers(0, 2, ROWS)), "w": pa.array(chance.random(ROWS))}
    path = tmp_path_factory.mktemp("data") / "x.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=32)
    return path


def trained(file: Path, mode: Mode, trainers: int, embedding_workers: int, *, remote: bool) -> tuple[list[float], int]:
    """The losses of all steps, and the samples that were trained."""
    loader = Loader(ParquetSource(file, SCHEMA), SAMPLES, epochs=2, shuffle=4 * SAMPLES)
    loader.held, state, found = None, RunState(), []
    with cluster(state, trainers, embedding_workers) as made, ExitStack() as stack:
        if remote:
            loader.remote = stack.enter_context(made.site.reading(loader))
            assert loader.remote is not None
        loop = TrainingLoop(made.site, state, mode=mode, facts=RunFacts(trainers, SAMPLES, 2 * SAMPLES))
        leases = LeaseQueue(iter(loader), loader.done)
        while leases.open_epoch() is not None:
            for stepped in loop.steps(leases, state.step):
                assert all(isinstance(each.batch, BatchName) == remote for each in stepped.batches)
                found.append(sum(float(each.loss) * len(each.batch) for each in stepped.batches) / stepped.samples)
        loop.close()
        assert loader.position().samples == state.samples
        if remote:
            figures = [made.figures(name) for name in made.addresses]
            assert sum(each["loaded_samples"] for each in figures) == 2 * ROWS
            assert min(each["loaded_samples"] for each in figures) > 0
    return found, state.samples


@pytest.mark.parametrize("embedding_workers", [0, 1])
def test_steps_of_sync_are_those_of_a_driver_that_reads(file: Path, embedding_workers: int) -> None:
    """Also with sample weights, sequences and a short batch at the end."""
    found = trained(file, Sync(), 1, embedding_workers, remote=True)
    wanted = trained(file, Sync(), 1, embedding_workers, remote=False)
    np.testing.assert_allclose(found[0], wanted[0], rtol=0, atol=1e-6)
    assert found[1] == wanted[1] == 2 * ROWS


def test_modes_with_tokens_train_every_batch_once(file: Path) -> None:
    _, samples = trained(file, GBA(), 2, 0, remote=True)
    assert samples == 2 * ROWS
