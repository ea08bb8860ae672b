"""A model, a table and a loop, for tests that ask what a model learns."""

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.client.base import shape_of
from hotrow.data.batch import Batch
from hotrow.metrics import auc
from hotrow.models import build
from hotrow.modes.base import Apply, GradientPart
from hotrow.server.core import ParameterServer
from hotrow.worker.core import Learner as Computing

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


class Learner:
    """A model, its table `rows`, and a loop."""

    def __init__(
        self, name: str, like: Batch, settings: Mapping[str, Any], *, dim: int, lr: float, rows_lr: float
    ) -> None:
        torch.manual_seed(0)
        table = hr.Table(name="rows", dim=dim, optimizer=hr.Adagrad(lr=rows_lr), init=hr.Uniform(bound=0.3))
        model = build(name, shape_of(like, {"rows": dim}), settings)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.client = LocalTables({"rows": table}, threads=1)
        self.computing = Computing(model)
        self.server = ParameterServer(model, self.client, optimizer)
        self.steps, self.samples = count(), 0

    def train(self, batch: Batch) -> None:
        self.samples += len(batch)
        step = next(self.steps)
        self.server.park(step, self.computing.learn(batch, self.client.lookup(batch, learn=True), self.client))
        self.server.apply(Apply("both", step, (GradientPart(step, step, step, len(batch), 1.0),)), samples=self.samples)

    def scores(self, batch: Batch) -> Floats:
        slices = [batch.slice(at, at + 4096) for at in range(0, len(batch), 4096)]
        parts = [self.computing.predict(each, self.client.lookup(each, learn=False)) for each in slices]
        return torch.cat(parts).numpy()

    def auc(self, batch: Batch, label: int = 0) -> float:
        assert batch.labels is not None
        area = auc(batch.labels[:, label], self.scores(batch).reshape(len(batch), -1)[:, label])
        assert area is not None
        return area


def learned(
    name: str,
    batch: Batch,
    settings: Mapping[str, Any],
    *,
    epochs: int = 4,
    size: int = 128,
    dim: int = 8,
    lr: float = 0.01,
    rows_lr: float = 0.1,
) -> Learner:
    """The model after some passes over all samples of `batch`."""
    learner = Learner(name, batch, settings, dim=dim, lr=lr, rows_lr=rows_lr)
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        order = rng.permutation(len(batch))
        for start in range(0, len(batch), size):
            learner.train(batch.take(order[start : start + size]))
    return learner


def accuracy(learner: Learner, batches: Iterable[Batch]) -> float:
    """How often the best score is the label's class."""
    right = [learner.scores(batch).argmax(1) == batch.labels[:, 0] for batch in batches if batch.labels is not None]
    return float(np.concatenate(right).mean())
