"""Two shards and one trainer as processes behind real sockets, without Ray, and the training loop in this process."""

import multiprocessing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch
import without_pyarrow  # noqa: F401 - before Hotrow
from torch import nn
from zipf_batches import NAMES, NUMBERS, zipf_batches

from hotrow.client.sharded import ShardedTables
from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.data.loader import Lease
from hotrow.models.deepfm import DeepFM
from hotrow.nn.inputs import InputShape
from hotrow.optim.dense import KStepAdam
from hotrow.runtime.cluster.backend import ClusterBackend
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.state import RunState
from hotrow.server.dense_service import DenseService
from hotrow.server.dense_shard import DenseShard, spread
from hotrow.server.process import ShardServer
from hotrow.server.shard import Shard
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Query, QueryReply, Stop
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId
from hotrow.worker.process import TrainerProcess
from hotrow.worker.setup import RoleSpec, TrainerSetup
from hotrow.worker.spec import TrainingSpec

SHARDS = [RoleId("shard", number) for number in range(2)]
TRAINER = RoleId("trainer", 0)
START_S, STOP_S = 120, 30


@dataclass(frozen=True)
class Job:
    """What all processes agree on."""

    tables: Mapping[str, Table]  # one, "default"
    hidden: Sequence[int]
    k_step: bool = False
    threads: int = 1  # of the trainer

    def spec(self) -> TrainingSpec:
        torch.manual_seed(0)
        shape = InputShape(NUMBERS, dict.fromkeys(NAMES, self.tables["default"].dim))
        model = DeepFM(shape, hidden=tuple(self.hidden), activation="tanh")
        made = KStepAdam if self.k_step else torch.optim.Adam
        return TrainingSpec(model, self.tables, made(model.parameters(), lr=0.001))

    def places(self, model: nn.Module) -> dict[RoleId, list[int]]:
        held = spread([each.numel() for each in model.parameters()], len(SHARDS))
        return dict(zip(SHARDS, held, strict=True))


def leases(count: int, samples: int, ids: int) -> Iterator[tuple[Lease, Batch]]:
    """Batches of `zipf_batches`, each under a lease of its own."""
    for number, batch in enumerate(zipf_batches(count, samples, ids)):
        yield Lease(number, 0, number, samples), batch


def serve_shard(number: int, job: Job, ours: Connection) -> None:
    torch.set_num_threads(1)
    spec = job.spec()
    assert spec.optimizer is not None
    with RpcServer(security="off") as server:
        shard = Shard(job.tables, number=number, shards=len(SHARDS))
        held = job.places(spec.model)[SHARDS[number]]
        dense = DenseService(DenseShard(spec.model, spec.optimizer, held, buffers=number == 0))
        ours.send(server.address)
        ShardServer(shard, server, dense).serve()
        shard.close()


def serve_trainer(device: str, job: Job, ours: Connection) -> None:
    spec = job.spec()
    with RpcServer(security="off") as server, RpcClient(security="off") as wire:
        for name, address in ours.recv().items():
            wire.connect(name, address)
        role = RoleSpec(spec, threads=job.threads)
        setup = TrainerSetup(role, SHARDS, [0.001], job.places(spec.model), device=device)
        trainer = TrainerProcess(setup, TRAINER, server, wire)
        ours.send(server.address)
        trainer.serve()


@dataclass
class Processes:
    """None of them is expected to end."""

    started: dict[RoleId, Any] = field(default_factory=dict)

    def start(self, name: RoleId, serve: Any, *given: Any, first: Any = None) -> str:
        """Its address."""
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        self.started[name] = spawn.Process(target=serve, args=(*given, theirs), daemon=True)
        self.started[name].start()
        theirs.close()  # so that the end of the process is the end of the pipe
        if first is not None:
            ours.send(first)
        if not ours.poll(START_S):
            raise TimeoutError(f"{name} did not start within {START_S} s")
        return str(ours.recv())

    def lost(self) -> dict[RoleId, str]:
        return {name: "it ended" for name, each in self.started.items() if not each.is_alive()}

    def release(self, name: RoleId) -> None: ...

    def end(self, name: RoleId) -> None: ...


@dataclass(frozen=True)
class Cluster:
    """A backend, and what its trainer counts."""

    backend: ClusterBackend
    wire: RpcClient

    def figures(self) -> dict[str, float]:
        told = self.wire.request(TRAINER, Query("status")).result(STOP_S).message
        assert isinstance(told, QueryReply)
        return told.figures


@contextmanager
def cluster(device: str, job: Job, state: RunState) -> Iterator[Cluster]:
    processes = Processes()
    addresses = {name: processes.start(name, serve_shard, name.number, job) for name in SHARDS}
    addresses[TRAINER] = processes.start(TRAINER, serve_trainer, device, job, first=dict(addresses))
    spec = job.spec()
    with RpcClient(security="off") as wire:
        for name, address in addresses.items():
            wire.connect(name, address)
        roles = Roles(wire, SHARDS, [TRAINER], processes)
        client = ShardedTables(job.tables, wire, SHARDS, threads=1)
        try:
            yield Cluster(ClusterBackend(spec, client, roles, state, places=job.places(spec.model)), wire)
        finally:
            for name in reversed(addresses):
                wire.request(name, Stop()).result(STOP_S)
            for process in processes.started.values():
                process.join(STOP_S)
