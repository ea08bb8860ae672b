"""Shards, embedding workers and a client of theirs in this process, behind real sockets, each in a thread."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import hotrow as hr
from hotrow.client import LocalTables
from hotrow.client.base import Handle
from hotrow.client.pooled import PooledTables, peer_name
from hotrow.client.sharded import ShardedTables
from hotrow.config import Table
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.server.process import ShardServer
from hotrow.server.shard import Shard
from hotrow.transport.client import RpcClient
from hotrow.transport.ids import pack_ids, sample_id
from hotrow.transport.limits import Limits
from hotrow.transport.messages import LookUp, Message, Query, QueryReply, Stop
from hotrow.transport.server import RpcServer
from hotrow.types import Values
from hotrow.worker.embedding import BufferLimits
from hotrow.worker.embedding_process import EmbeddingServer, EmbeddingSetup

TABLES = {
    "a": hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.5)),
    "b": hr.Table(dim=3, optimizer=hr.SGD(lr=0.5)),
}


@dataclass(slots=True, eq=False)
class Cluster:
    """What a test has in hand."""

    wire: RpcClient
    cores: list[Shard]
    direct: ShardedTables
    through: PooledTables
    addresses: dict[str, str] = field(default_factory=dict)

    @property
    def shards(self) -> list[str]:
        return [f"shard {number}" for number in range(len(self.cores))]

    def figures(self, number: int = 0) -> dict[str, float]:
        told = self.wire.request(peer_name(number), Query("status")).result(20).message
        assert isinstance(told, QueryReply)
        return told.figures

    def send_ids(
        self, batch: Batch, grant: int, *, number: int = 0, worker: int = 0, after: int = 0, versions: bool = False
    ) -> int:
        """What the coordinator does with a batch; gives its sample id."""
        sample = sample_id(number, grant)
        parts, frames = pack_ids(batch)
        told = LookUp(sample, worker, after, 0, versions, len(batch), parts)
        self.wire.request(peer_name(number), told, frames).result(20)
        return sample


@contextmanager
def cluster(
    shards: int = 2,
    embedding_workers: int = 1,
    *,
    tables: Mapping[str, Table] = TABLES,
    values: Mapping[str, Values] | None = None,
    bounds: BufferLimits | None = None,
) -> Iterator[Cluster]:
    with ExitStack() as stack:
        cores = [Shard(tables, number=number, shards=shards, values=values) for number in range(shards)]
        wire = stack.enter_context(RpcClient(security="off"))
        names = [f"shard {number}" for number in range(shards)]
        addresses = {}
        for name, core in zip(names, cores, strict=True):
            server = stack.enter_context(RpcServer(security="off"))
            in_thread(stack, ShardServer(core, server).serve, server.stop)
            addresses[name] = server.address
            wire.connect(name, server.address)
        direct = ShardedTables(tables, wire, names, values=values, threads=1)
        made = Cluster(wire, cores, direct, PooledTables(tables, wire, values=values, threads=1), addresses)
        for number in range(embedding_workers):
            setup = EmbeddingSetup(tables, number, names, 1, values, bounds or BufferLimits())
            address = embedding_worker(stack, setup, {name: addresses[name] for name in names})
            made.addresses[peer_name(number)] = address
            wire.connect(peer_name(number), address)
        yield made


def embedding_worker(stack: ExitStack, setup: EmbeddingSetup, shards: Mapping[str, str]) -> str:
    """One more, until the stack ends or somebody stops it."""
    return served(stack, lambda server, wire: EmbeddingServer(setup, server, wire).serve, shards)


def served(
    stack: ExitStack,
    made: Callable[[RpcServer, RpcClient], Callable[[], None]],
    shards: Mapping[str, str],
    limits: Limits | None = None,
    **lines: Any,
) -> str:
    """A role that knows the shards, in a thread of its own; gives its address."""
    server = stack.enter_context(RpcServer(security="off", limits=limits))
    wire = stack.enter_context(RpcClient(security="off", limits=limits, **lines))
    for name, address in shards.items():
        wire.connect(name, address)

    def stop() -> None:
        with RpcClient(security="off") as asking:
            asking.connect("it", server.address)
            asked = asking.request("it", Stop())
            while thread.is_alive():  # one that is stopping already does not answer a second request
                wait([asked], 0.05)
                if asked.done():
                    asked.result(0)
                    break

    thread = in_thread(stack, made(server, wire), stop)
    return server.address


def in_thread(stack: ExitStack, serve: Callable[[], None], stop: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=serve)
    thread.start()

    def end() -> None:
        if thread.is_alive():
            stop()
        thread.join()

    stack.callback(end)
    return thread


def ask_all(wire: RpcClient, names: Sequence[str], made: Callable[[int], Message]) -> None:
    for asked in [wire.request(name, made(number)) for number, name in enumerate(names)]:
        asked.result(20)


def batch_of(samples: int, seed: int, *, ids: int = 20) -> Batch:
    """All kinds of parts."""
    chance = np.random.default_rng(seed)
    lengths = chance.integers(0, 4, samples)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    two = np.concatenate([[0], np.cumsum(chance.integers(0, 3, 2 * samples))]).astype(np.int64)
    several = int(bounds[-1])
    parts = (
        FeatureBlock("a", "one", ("x", "y"), chance.integers(0, ids, 2 * samples)),
        FeatureBlock("b", "bags", ("z", "u"), chance.integers(0, ids, int(two[-1])), two, "mean"),
        FeatureBlock("a", "sequence", ("w",), chance.integers(0, ids, several), bounds),
        FeatureBlock("b", "bags", ("v",), chance.integers(0, ids, several), bounds, "sum"),
    )
    return Batch(parts, np.zeros((samples, 0), np.float32), np.zeros((samples, 1), np.float32))


def without_ids(batch: Batch) -> Batch:
    """As a trainer gets it."""
    empty = np.empty(0, np.int64)
    parts = tuple(FeatureBlock(part.table, part.kind, part.features, empty, None, part.pooling) for part in batch.parts)
    return Batch(parts, batch.numbers, batch.labels)


def give_gradients(handle: Handle, seed: int, unused: Sequence[int] = ()) -> None:
    chance = torch.Generator().manual_seed(seed)
    for place, output in enumerate(handle.outputs):
        gradient = torch.randn(output.rows.shape, generator=chance)
        if output.mask is not None:
            gradient *= output.mask[..., None]  # nothing depends on padding
        output.rows.grad = None if place in unused else gradient


def rows_of(clients: Sequence[LocalTables], table: str, count: int = 20) -> torch.Tensor:
    """Of all ids, whoever has them; absent ones are NaN."""
    found = torch.full((count, TABLES[table].dim), float("nan"))
    for client in clients:
        out = torch.empty_like(found)
        client.tiers[table].find(np.arange(count), out)
        found = torch.where(torch.isnan(out), found, out)
    return found
