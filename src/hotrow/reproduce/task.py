"""A task that all comparisons share: a drifting stream of clicks, a model, and its two sets of hyper-parameters.

Each day has rows to train on and, apart from them, rows to test on: a model that was trained up to a day is tested on
the next. So AUCs of two modes are of the same test rows, and the same seed gives both the same rows and the same start.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hotrow import checkpoint
from hotrow.client import LocalTables
from hotrow.client.aggregate import Average
from hotrow.config import Cache, Table, Uniform
from hotrow.data.batch import Batch, concatenated
from hotrow.data.synthetic import SyntheticConfig, SyntheticSource
from hotrow.metrics import auc
from hotrow.models import build
from hotrow.nn.inputs import InputShape
from hotrow.optim.sparse import SparseOptimizer
from hotrow.server.core import ParameterServer
from hotrow.sim.cached_gradients import work_of
from hotrow.sim.cached_tables import SimCachedTables
from hotrow.sim.gradients import RealWork
from hotrow.worker.core import Learner

TEST_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class PaperHyper:
    """Hyper-parameters that were tuned together."""

    rows: SparseOptimizer
    dense: str  # of torch.optim
    dense_settings: Mapping[str, Any]

    def optimizer(self, parameters: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """For the dense parameters."""
        made: torch.optim.Optimizer = getattr(torch.optim, self.dense)(parameters, **self.dense_settings)
        return made


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """Rows of a day, the shape of the stream, the model."""

    days: int
    train_rows: int  # of a day
    test_rows: int = 1_000_000  # of a day
    features: int = 10
    numbers: int = 4
    ids: int = 200_000
    zipf: float = 1.1
    drift: float = 0.05
    new_ids: float = 0.02
    signal: float = 1.6
    dim: int = 9  # the first float is the linear weight
    model: str = "deepfm"
    model_settings: Mapping[str, Any] = field(default_factory=lambda: {"hidden": [64, 32]})

    def stream(self, seed: int) -> SyntheticSource:
        """All days, training rows before test rows in each."""
        return _stream(
            SyntheticConfig(
                rows=self.days * (self.train_rows + self.test_rows),
                test_rows=0,
                days=self.days,
                features=self.features,
                numbers=self.numbers,
                ids=self.ids,
                zipf=self.zipf,
                drift=self.drift,
                new_ids=self.new_ids,
                signal=self.signal,
                seed=seed,
            )
        )

    def train(self, seed: int, day: int) -> Batch:
        """The training rows of a day."""
        start = day * (self.train_rows + self.test_rows)
        return _rows(self.stream(seed), start, start + self.train_rows)

    def test(self, seed: int, day: int) -> Batch:
        """The test rows of a day."""
        start = day * (self.train_rows + self.test_rows) + self.train_rows
        return _rows(self.stream(seed), start, start + self.test_rows)


@lru_cache(maxsize=4)
def _stream(config: SyntheticConfig) -> SyntheticSource:
    return SyntheticSource(config)


@lru_cache(maxsize=24)
def _rows(source: SyntheticSource, start: int, stop: int) -> Batch:
    blocks: list[Batch] = []
    wanted = stop - start
    for block in source.read_batches(start):
        blocks.append(block if len(block) <= wanted else block.slice(0, wanted))
        wanted -= len(blocks[-1])
        if wanted == 0:
            break
    return concatenated(blocks)


class Model:
    """A model under training: real rows, real gradients, whoever decides when they are applied."""

    def __init__(
        self,
        task: TrainingTask,
        hyper: PaperHyper,
        seed: int,
        *,
        average: Average = "batch",
        cache: Cache | None = None,
    ) -> None:
        torch.manual_seed(seed)
        self.task, self.seed = task, seed
        fields = {f"id_{place}": task.dim for place in range(1, task.features + 1)}
        module = build(task.model, InputShape(task.numbers, fields, {}), task.model_settings)
        table = Table(dim=task.dim, optimizer=hyper.rows, init=Uniform(bound=0.01), seed=seed, cache=cache)
        make = LocalTables if cache is None else SimCachedTables
        self.tables: LocalTables = make({"default": table}, threads=1)
        parameters = [each for each in module.parameters() if each.requires_grad]
        self.server = ParameterServer(module, self.tables, hyper.optimizer(parameters), average=average)
        self.learner = Learner(module)
        self.work: RealWork = work_of(self.server, self.tables, self.learner)

    def auc(self, day: int) -> float:
        """On the test rows of a day."""
        batch = self.task.test(self.seed, day)
        assert batch.labels is not None
        found = auc(batch.labels[:, 0], self.outputs(day))
        assert found is not None
        return found

    def outputs(self, day: int) -> Any:
        """On the test rows of a day."""
        batch = self.task.test(self.seed, day)
        return np.concatenate([self._predicted(part) for part in _cut(batch, TEST_BATCH)])

    def save(self, folder: Path, samples: int, step: int) -> None:
        """A base that several modes go on from."""
        saved = checkpoint.Saved({"samples": samples, "step": step}, None, {})
        checkpoint.save(folder, self.server.model, self.server.optimizer, self.tables.tiers, saved)

    def load(self, folder: Path) -> tuple[int, int]:
        """Go on from a base; samples and steps so far."""
        saved = checkpoint.load(folder, self.server.model, self.server.optimizer, self.tables.tiers).saved
        return int(saved.counters["samples"]), int(saved.counters["step"])

    def close(self) -> None:
        """Give the rows up."""
        self.tables.close()

    def _predicted(self, batch: Batch) -> Any:
        return self.learner.predict(batch, self.tables.lookup(batch, learn=False)).numpy()


def _cut(batch: Batch, size: int) -> Iterator[Batch]:
    for start in range(0, len(batch), size):
        yield batch.slice(start, min(start + size, len(batch)))
