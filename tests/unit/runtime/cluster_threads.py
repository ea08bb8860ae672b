"""A cluster in threads of this process, behind real sockets: shards, trainers, embedding workers, a site on them."""

import pickle
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import hotrow as hr
from hotrow.client.pooled import peer_name
from hotrow.client.sharded import ShardedTables
from hotrow.config import Table
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.data.loader import Lease
from hotrow.data.source import Source
from hotrow.nn.inputs import Inputs
from hotrow.runtime.cluster.backend import ClusterBackend
from hotrow.runtime.cluster.embedding_workers import EmbeddingWorkers
from hotrow.runtime.cluster.roles import RoleProcesses, Roles
from hotrow.runtime.cluster.shard_restarts import ShardRestarts
from hotrow.runtime.state import RunState
from hotrow.server.dense_shard import DenseShard
from hotrow.server.shard import Shard
from hotrow.transport.client import RpcClient
from hotrow.transport.limits import Limits, RetryPolicy
from hotrow.transport.messages import Query, QueryReply
from hotrow.types import RoleId
from hotrow.worker.embedding_process import EmbeddingSetup
from hotrow.worker.losses import Squared, Task
from hotrow.worker.process import TrainerProcess
from hotrow.worker.setup import RoleSpec, TrainerSetup
from hotrow.worker.spec import TrainingSpec
from unit.runtime.shard_threads import ShardThreads
from unit.worker.embedding_threads import embedding_worker, served

TABLES = {"t": hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.05))}
SAMPLES = 8


class Net(nn.Module):
    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = nn.Linear(2 * 4 + 4 + 3, 8), nn.Linear(8, outputs)

    def forward(self, inputs: Inputs) -> Tensor:
        history = inputs.sequence("h")
        mean = history.rows.sum(1) / history.mask.sum(1, keepdim=True).clamp(min=1)
        hidden = torch.cat([inputs.rows.flatten(1), mean, inputs.numbers], 1)
        self.kept = hidden  # a tensor with a graph, as models keep for inspection: it has no copy
        given: Tensor = self.last(torch.relu(self.first(hidden)))
        return given[:, 0] if given.shape[1] == 1 else given


def batches(count: int) -> Iterator[tuple[Lease, Batch]]:
    chance = np.random.default_rng(0)
    for number in range(count):
        bounds = np.concatenate([[0], np.cumsum(chance.integers(0, 4, SAMPLES))]).astype(np.int64)
        parts = (
            FeatureBlock("t", "one", ("a", "b"), chance.integers(0, 50, 2 * SAMPLES)),
            FeatureBlock("t", "sequence", ("h",), chance.integers(0, 50, int(bounds[-1])), bounds),
        )
        numbers = chance.normal(size=(SAMPLES, 3)).astype(np.float32)
        labels = (chance.random((SAMPLES, 1)) < 0.3).astype(np.float32)
        yield Lease(number, 0, number, SAMPLES), Batch(parts, numbers, labels)


@dataclass(slots=True, eq=False)
class Cluster:
    """A site, and what a test does to its trainers and embedding workers."""

    site: ClusterBackend
    wire: RpcClient
    shards: ShardThreads
    embedding_workers: EmbeddingWorkers | None
    start_embedding_worker: Callable[[int], str]  # by number; gives its address
    start_trainer: Callable[[RoleId], None]  # by name; it waits until a mode begins on it
    addresses: Mapping[str, str]  # of trainers
    roles: Roles

    @property
    def cores(self) -> list[Shard]:
        return self.shards.cores

    def figures(self, name: str) -> dict[str, float]:
        told = self.wire.request(name, Query("status")).result(20).message
        assert isinstance(told, QueryReply)
        return told.figures


@contextmanager
def cluster(
    state: RunState,
    trainers: int,
    embedding_workers: int,
    retry: RetryPolicy | None = None,
    *,
    tables: Mapping[str, Table] = TABLES,
    limits: Limits | None = None,
    parked_bytes: int = 2**30,
    outputs: int = 1,
    task: Task = "classification",
    processes: RoleProcesses | None = None,
    restarts: int = 0,
    dense: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
) -> Iterator[Cluster]:
    """Two shards and all others in threads of this process, behind real sockets. Trainers read, where they can.

    With `restarts` the rows of shards are in shared memory, and lost shards are started again.
    """
    stored: dict[str, bytes] = {}

    def fetch(key: str) -> Source:
        source: Source = pickle.loads(stored[key])
        return source

    @contextmanager
    def store(source: Source) -> Iterator[str]:
        key = f"source-{len(stored)}"
        stored[key] = pickle.dumps(source)
        yield key

    lines: dict[str, Any] = {"retry": retry, "limits": limits, "most_open": 1_024}
    loss = Squared() if task == "regression" else None
    with ExitStack() as stack:
        model = Net(outputs)
        optimizer = dense(model.parameters(), lr=0.01)
        wire = stack.enter_context(RpcClient(security="off", **lines))
        shards = [RoleId("shard", number) for number in range(2)]
        places = dict(zip(shards, ([0, 1], [2, 3]), strict=True))
        addresses: dict[str, str] = {}

        def piece(number: int) -> DenseShard:
            own = Net(outputs)
            adam = dense(own.parameters(), lr=0.01)
            return DenseShard(own, adam, places[shards[number]], buffers=number == 0, parked_bytes=parked_bytes)

        run = f"threads-{secrets.token_hex(4)}" if restarts else None
        threads = ShardThreads(stack, tables, piece, run)
        threads.limits, threads.parked_bytes = limits, parked_bytes
        for name in shards:
            addresses[name] = threads.start(name)
            wire.connect(name, addresses[name])
        known = EmbeddingWorkers(wire, []) if embedding_workers else None
        at: dict[str, str] = {}

        def start_trainer(name: RoleId) -> None:
            own = Net(outputs)
            spec = TrainingSpec(own, tables, dense(own.parameters(), lr=0.01), loss, task=task)
            setup = TrainerSetup(RoleSpec(spec), shards, [0.01], places, pooled=embedding_workers > 0)
            at[name] = served(
                stack, lambda server, wire: TrainerProcess(setup, name, server, wire, fetch).serve, addresses, **lines
            )
            wire.connect(name, at[name])
            if known is not None:
                known.add_trainer(name)

        def start_embedding_worker(number: int) -> str:
            return embedding_worker(stack, EmbeddingSetup(tables, number, shards), addresses)

        workers = [RoleId("trainer", worker) for worker in range(trainers)]
        for name in workers:
            start_trainer(name)
        for number in range(embedding_workers):
            assert known is not None
            known.join(peer_name(number), start_embedding_worker(number))
        again = ShardRestarts(threads.start, restarts) if restarts else None
        roles = Roles(wire, shards, workers, processes or threads, known, stored_source=store, shard_restarts=again)
        client = ShardedTables(tables, wire, shards, threads=1)
        spec = TrainingSpec(model, tables, optimizer, loss, task=task)
        site = ClusterBackend(spec, client, roles, state, places=places)
        yield Cluster(site, wire, threads, known, start_embedding_worker, start_trainer, at, roles)
