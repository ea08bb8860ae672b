"""A shard behind real sockets with a wire to it, and what it is asked."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hotrow as hr
from hotrow.server.dense_service import DenseService
from hotrow.server.process import ShardServer
from hotrow.server.shard import Shard
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.errors import RemoteFault
from hotrow.transport.frames import RowBlock, pack, unpack
from hotrow.transport.messages import (
    ApplyOrder,
    Arrival,
    Exchange,
    Exchanged,
    Message,
    OrderPart,
    PullRows,
    PushRows,
)
from hotrow.transport.security import ClusterKey
from hotrow.transport.server import RpcServer
from hotrow.types import Security, Values

F32 = NDArray[np.float32]
TABLES = {
    "first": hr.Table(dim=2, optimizer=hr.SGD(lr=0.5)),
    "second": hr.Table(dim=3, optimizer=hr.Adagrad(lr=0.5)),
}
DIMS = {name: table.dim for name, table in TABLES.items()}
PATIENCE_S = 60  # a test that fails, fails by an answer; this only ends one that hangs


class Asked:
    """One shard and a wire to it."""

    def __init__(self, shard: Shard, server: RpcServer, wire: RpcClient, thread: threading.Thread) -> None:
        self.shard, self.server, self.wire, self.thread = shard, server, wire, thread

    def ask(self, message: Message, frames: Any = ()) -> "Future[Answer]":
        return self.wire.request("shard", message, frames)

    def answer(self, message: Message, frames: Any = ()) -> Message:
        return self.ask(message, frames).result(PATIENCE_S).message

    def fault(self, message: Message, frames: Any = ()) -> RemoteFault:
        with pytest.raises(RemoteFault) as caught:
            self.ask(message, frames).result(PATIENCE_S)
        return caught.value


@contextmanager
def serving(
    shard: Shard | None = None,
    *,
    security: Security = "off",
    key: ClusterKey | None = None,
    waiting_most: int = 1_024,
    dense: DenseService | None = None,
) -> Iterator[Asked]:
    made = Shard(TABLES, number=0, shards=1) if shard is None else shard
    with RpcServer(security=security, key=key) as server, RpcClient(security=security, key=key) as wire:
        thread = threading.Thread(target=ShardServer(made, server, dense, waiting_most=waiting_most).serve)
        thread.start()
        try:
            wire.connect("shard", server.address)
            yield Asked(made, server, wire, thread)
        finally:
            server.stop()
            thread.join()


def pull_of(keys: list[int], table: str = "first", *, after: int = 0, values: Values = "fp32", **more: Any) -> Any:
    blocks, frames = pack([RowBlock(table, np.array(keys, np.uint64), dim=DIMS[table])], "fp32")
    return PullRows(after, 0, more.get("learn", True), more.get("versions", False), values, blocks), frames


def push_of(
    grant: int, keys: list[int], table: str = "first", *, arrival: Arrival | None = None, values: Values = "fp32"
) -> Any:
    gradients = np.ones((len(keys), DIMS[table]), np.float32)
    blocks, frames = pack([RowBlock(table, np.array(keys, np.uint64), gradients)], values)
    return PushRows(grant, 0, 0, 0, 4, blocks, arrival), frames


def exchange(asked: Asked, push: Any = None, pull: Any = None, incarnation: int = 1) -> "Future[Answer]":
    (pushed, sent), (pulled, wanted) = push or (None, []), pull or (None, [])
    return asked.ask(Exchange(incarnation, pushed, pulled), [*sent, *wanted])


def rows_in(future: "Future[Answer]") -> list[F32]:
    answer = future.result(PATIENCE_S)
    assert isinstance(answer.message, Exchanged)
    return [np.array(block.values) for block in unpack(answer.message.blocks, answer.frames, DIMS)]


def step_of(*grants: int, step: int = 0) -> ApplyOrder:
    return ApplyOrder("both", step, 4, 1.0, tuple(OrderPart(grant, step, step, 4, 1.0) for grant in grants))
