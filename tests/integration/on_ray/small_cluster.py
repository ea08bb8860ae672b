"""A small model trained on a small cluster and in this process, and what is compared of the two."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import hotrow as hr
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.data.loader import Loader
from hotrow.data.parquet import ParquetSource
from hotrow.data.schema import Schema
from hotrow.data.source import Source
from hotrow.nn.inputs import Inputs
from hotrow.trainer import Trainer
from hotrow.trainer.reports import Progress, Report
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Query, QueryReply
from hotrow.types import RoleId

IDS, FEATURES, NUMBERS, DIM = 60, 4, 3, 4
ALLOCATORS = 24 << 20  # bytes by which a process may grow beside what it holds
UNLUCKY = 1234.0  # a first number that the model cannot bear


class Net(nn.Module):
    """Two layers over all rows and numbers, without chance."""

    def __init__(self, vectors: int = FEATURES * DIM, hidden: int = 16) -> None:
        """`vectors`: floats of a sample's rows."""
        super().__init__()
        torch.manual_seed(1)
        self.hidden = nn.Linear(vectors + NUMBERS, hidden)
        self.last = nn.Linear(hidden, 1)

    def forward(self, x: Inputs) -> Tensor:
        if (x.numbers[:, 0] == UNLUCKY).any():
            raise ArithmeticError("this number is unlucky")
        odds: Tensor = self.last(torch.relu(self.hidden(torch.cat([x.rows.flatten(1), x.numbers], 1))))[:, 0]
        return odds


def batches(count: int, size: int, seed: int = 0, last: int | None = None) -> list[Batch]:
    """Clicks that depend on the ids; `last`: samples of the last batch."""
    chance = np.random.default_rng(seed)
    truth = np.random.default_rng(99).normal(0, 1.5, (FEATURES, IDS))
    sizes = [size] * (count - 1) + [size if last is None else last]
    made = []
    for each in sizes:
        keys = chance.integers(0, IDS, (each, FEATURES))
        odds = truth[np.arange(FEATURES), keys].sum(1)
        clicked = chance.random(each) < 1 / (1 + np.exp(-odds))
        ids = keys + np.arange(FEATURES) * IDS
        made.append(
            Batch(
                (FeatureBlock("default", "one", tuple("abcd"), ids.reshape(-1).astype(np.int64)),),
                chance.normal(size=(each, NUMBERS)).astype(np.float32),
                clicked[:, None].astype(np.float32),
            )
        )
    return made


def joined(parts: Iterable[Batch], size: int) -> Iterator[Batch]:
    """The same samples in larger batches; the last may be short."""
    parts = list(parts)
    keys = np.concatenate([each.parts[0].keys.reshape(-1, FEATURES) for each in parts])
    numbers = np.concatenate([each.numbers for each in parts])
    labels = np.concatenate([each.labels for each in parts if each.labels is not None])
    for start in range(0, len(numbers), size):
        part = FeatureBlock("default", "one", tuple("abcd"), keys[start : start + size].reshape(-1))
        yield Batch((part,), numbers[start : start + size], labels[start : start + size])


def file_of(batches: Iterable[Batch], path: Path) -> ParquetSource:
    """The samples of batches, in a file that any role can read."""
    parts = list(batches)
    keys = np.concatenate([each.parts[0].keys.reshape(-1, FEATURES) for each in parts])
    numbers = np.concatenate([each.numbers for each in parts])
    columns: dict[str, Any] = {name: keys[:, place] for place, name in enumerate("abcd")}
    columns |= {name: numbers[:, place] for place, name in enumerate("xyz")}
    columns["click"] = np.concatenate([each.labels[:, 0] for each in parts if each.labels is not None])
    pq.write_table(pa.table(columns), path, row_group_size=64)
    return ParquetSource(path, Schema(label="click", numbers=("x", "y", "z"), ids=("a", "b", "c", "d")))


def evaluated_in_the_driver(trainer: Trainer, source: Source) -> dict[str, float | None]:
    """The metrics of batches in memory, which no other process reads."""
    return trainer.evaluate([batch for _, batch in Loader(source, trainer.global_batch)]).metrics


def trainer_of(engine: hr.Ray | str = "local", rows: Any = None, dense: Any = None, **settings: Any) -> Trainer:
    """Global batches of 16; on a cluster local ones of 8, unless told otherwise."""
    table = hr.Table(dim=DIM, optimizer=rows or hr.Adagrad(lr=0.05), init=hr.Normal(std=0.1), seed=3)
    given = {"global_batch": 16, "report_every_s": 0, "threads": 1, **settings}
    return Trainer(Net(), table, optimizer=dense, engine=engine, **given)


def losses(reports: Iterable[Report]) -> list[float]:
    """Of every step, where every one is reported."""
    return [report.loss for report in reports if isinstance(report, Progress)]


def aucs(reports: Iterable[Report]) -> list[float | None]:
    """Of every step, where every one is reported."""
    return [report.auc for report in reports if isinstance(report, Progress)]


def whole_rows(trainer: Trainer) -> dict[int, NDArray[np.float32]]:
    """Values and optimizer state by key."""
    found: dict[int, NDArray[np.float32]] = {}
    for chunk in trainer.tables.tiers["default"].export():
        rows = np.hstack([chunk.values, chunk.state])
        found.update(zip(chunk.keys.tolist(), rows, strict=True))
    return found


def dense_state(trainer: Trainer) -> list[NDArray[np.float32]]:
    """Parameters, and what the optimizer keeps beside them."""
    parameters = list(trainer.model.parameters())
    state = trainer.optimizer.state if trainer.optimizer is not None else {}
    kept = [value for each in parameters for _, value in sorted(state.get(each, {}).items())]
    there = [torch.as_tensor(each) for each in (*parameters, *kept) if each is not None]
    return [each.detach().numpy().astype(np.float32) for each in there]


def largest_difference(left: Trainer, right: Trainer) -> float:
    """Of all dense and row values with their optimizers' state."""
    ours, theirs = whole_rows(left), whole_rows(right)
    assert ours.keys() == theirs.keys()
    of_rows = [float(np.abs(row - theirs[key]).max()) for key, row in ours.items()]
    pairs = list(zip(dense_state(left), dense_state(right), strict=True))
    return max([*of_rows, *(float(np.abs(one - other).max()) for one, other in pairs)])


def asked(trainer: Trainer, role: str) -> dict[str, float]:
    """The figures of a role, asked by somebody who has the key."""
    cluster = trainer.cluster
    assert cluster is not None
    with RpcClient(security=cluster.security, key=cluster.key) as wire:
        wire.connect(role, cluster.roles[RoleId.parse(role)].address)
        told = wire.request(role, Query("status")).result().message
    assert isinstance(told, QueryReply)
    return dict(told.figures)


def resident(trainer: Trainer) -> dict[str, int]:
    """Bytes by role, and of this process."""
    assert trainer.cluster is not None
    pids = {name: place.pid for name, place in trainer.cluster.roles.items()} | {"driver": os.getpid()}
    pages = {name: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for name, pid in pids.items()}
    return {name: count * os.sysconf("SC_PAGE_SIZE") for name, count in pages.items()}


def check_settled(trainer: Trainer) -> None:
    """Whatever was granted was applied or dropped, and no shard holds on to a push."""
    counted, cluster = trainer.statistics, trainer.cluster
    assert counted.granted == counted.applied_rows + sum(counted.dropped.values())
    assert cluster is not None
    for role in cluster.roles:
        if role.startswith("shard"):
            figures = asked(trainer, role)
            assert (figures["parked"], figures["parked_bytes"], figures["waiting"]) == (0, 0, 0)
