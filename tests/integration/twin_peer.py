"""An adapter for `hotrow bench --peer` without any other system: plain torch under another name."""

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hotrow.bench.cluster.plan import ClusterPlan, Hidden
from hotrow.bench.peers import EPS, Adapter, StorePeer, TrainingPeer
from hotrow.bench.torch_peers import TorchByHand, TorchPeer, TorchTrained
from hotrow.bench.train import source_of
from hotrow.bench.train_plan import TrainPlan
from hotrow.config import Table
from hotrow.data.loader import Loader
from hotrow.data.splits import RowRange
from hotrow.optim.sparse import Adagrad
from hotrow.store import RamTier


def table(rows: int, dim: int, *, lr: float, rowwise: bool) -> StorePeer:
    return TorchPeer(rows, dim, lr=lr)


def training(plan: TrainPlan, dim: int, hidden: Hidden, *, rowwise: bool) -> TrainingPeer:
    return TorchByHand(plan, dim, hidden) if rowwise else TorchTrained(plan, dim, hidden)


class OneProcess:
    """The ranks of a cluster that is none: plain torch in this process."""

    def __init__(self, plan: ClusterPlan, dim: int, hidden: Hidden, file: Path) -> None:
        self._plan, self._source = plan.train, source_of(file)
        self._peer = TorchTrained(plan.train, dim, hidden)

    def step_s(self, turn: int) -> float:
        start = time.perf_counter()
        stretch = RowRange(self._source, turn * self._plan.segment, (turn + 1) * self._plan.segment)
        for _, batch in Loader(stretch, self._plan.samples):
            self._peer.step(batch)
        return (time.perf_counter() - start) / self._plan.steps

    def close(self) -> None:
        """There is no process to end."""


class InMemory:
    """A store on disk that is none: our table in memory."""

    def __init__(self, folder: Path, dim: int, *, memory_bytes: int, lr: float, depth: int) -> None:
        self.tier = RamTier(Table(dim=dim, optimizer=Adagrad(lr=lr, eps=EPS)))
        self._steps = 0

    def fill(self, keys: NDArray[np.uint64], values: NDArray[np.float32], state: NDArray[np.float32]) -> None:
        self.tier.put(keys, values, state)

    def settle(self) -> None:
        """Nothing is out of order."""

    def step(self, keys: NDArray[np.int64], gradients: NDArray[np.float32]) -> None:
        self.tier.apply(self.tier.find_or_init(keys), gradients, step=self._steps)
        self._steps += 1

    def close(self) -> None:
        self.tier.close()


ADAPTER = Adapter(
    name="twin",
    title="a twin",
    versions={"twin": "torch"},
    lack=lambda: None,
    store=table,
    training=training,
    cluster=OneProcess,
    tiers=InMemory,
)
