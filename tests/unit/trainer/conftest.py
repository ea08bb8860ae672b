"""A small task that a small model learns: the label depends on two ids and a number."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

import hotrow as hr
from hotrow.data.schema import Schema
from hotrow.data.source import Trouble
from hotrow.nn.inputs import Inputs
from hotrow.trainer import Trainer

SCHEMA = Schema(label="y", numbers=["n"], ids=["a", "b"])


class Made:
    """A source of rows in memory, in blocks of 100."""

    def __init__(self, rows: int, seed: int = 0, schema: Schema = SCHEMA) -> None:
        rng = np.random.default_rng(seed)
        a, b, n = rng.integers(0, 40, rows), rng.integers(0, 30, rows), rng.normal(size=rows)
        weights = np.random.default_rng(99).normal(0, 1.5, (2, 40))
        odds = weights[0][a] + weights[1][b] + n
        clicked = rng.random(rows) < 1 / (1 + np.exp(-odds))
        self.table = pa.table({"y": clicked * 1, "n": n, "a": a, "b": b, "above": (n > 0) * 1})
        self.schema, self.trouble = schema, Trouble()
        self.readings = 0

    def rows(self) -> int:
        return int(self.table.num_rows)

    def read(self, skip: int = 0) -> Iterator[pa.RecordBatch]:
        self.readings += 1
        yield from self.table.slice(skip).to_batches(100)


class Net(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 1))

    def forward(self, x: Inputs) -> Tensor:
        odds: Tensor = self.layers(torch.cat([x.flat, x.numbers], 1)).squeeze(1)
        return odds


def make_trainer(seed: int = 0, dropout: float = 0.0, **settings: object) -> Trainer:
    torch.manual_seed(seed)
    table = hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.2), init=hr.Normal(std=0.1), seed=seed)
    given = {"optimizer": lambda p: torch.optim.Adam(p, lr=0.01), "global_batch": 64, "threads": 1, **settings}
    return Trainer(Net(dropout), table, **given)  # type: ignore[arg-type]


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    made = make_trainer()
    yield made
    made.close()
