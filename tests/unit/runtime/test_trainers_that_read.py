"""Trainers read what they train on: the steps are those of a run whose driver reads."""

from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotrow.data.batch import Batch
from hotrow.data.loader import Loader
from hotrow.data.parquet import ParquetSource
from hotrow.data.reading import BatchName
from hotrow.data.schema import Schema
from hotrow.modes import GBA, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.state import RunState
from hotrow.transport.messages import BatchRequest
from hotrow.transport.request import Request
from hotrow.worker.process import TrainerProcess
from hotrow.worker.trainer_mode import TrainerMode
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


def test_modes_with_tokens_train_every_batch_once_with_its_rows_whichever_trainer_has_read_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_work, lock = TrainerProcess._begin_work, Lock()
    found: dict[tuple[int, int], list[Any]] = {}
    pulled_from: set[bool] = set()

    def recording(
        self: TrainerProcess, opened: TrainerMode, work: BatchRequest, request: Request, batch: Batch
    ) -> None:
        assert work.at is not None
        with lock:
            found.setdefault((work.at.epoch, work.at.index), []).append(contents(batch))
            pulled_from.add(work.at.loader == self.role)
        begin_work(self, opened, work, request, batch)

    monkeypatch.setattr(TrainerProcess, "_begin_work", recording)
    _, samples = trained(file, GBA(), 2, 0, remote=True)
    assert samples == 2 * ROWS
    assert pulled_from == {True, False}, "of its own loader, and of that of the other trainer"
    alone = Loader(ParquetSource(file, SCHEMA), SAMPLES, epochs=2, shuffle=4 * SAMPLES)
    assert found == {(lease.epoch, lease.index): [contents(batch)] for lease, batch in alone}


def contents(batch: Batch) -> list[Any]:
    parts = [each for part in batch.parts for each in (part.keys, part.bounds)]
    return [None if each is None else each.tolist() for each in (batch.numbers, batch.labels, batch.weights, *parts)]
