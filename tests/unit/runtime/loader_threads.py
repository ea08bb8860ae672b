"""Loaders in threads of this process, behind real sockets, and what a data loader gets from them."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hotrow.data.batch import Batch
from hotrow.data.loader import Loader
from hotrow.data.reading import BatchName
from hotrow.data.schema import Schema
from hotrow.data.source import Source
from hotrow.loading.process import LoaderServer
from hotrow.runtime.cluster.reading_roles import ReadingRoles
from hotrow.runtime.cluster.roles import Roles
from hotrow.transport.batches import unpack_batch
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import BatchGiven, PullBatch, Query, QueryReply
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId
from unit.worker.embedding_threads import in_thread

SCHEMA = Schema(label="click", numbers=("x",), ids=("row",))
ROWS = 437


class Processes:
    """Roles in threads; one is lost when a test says so."""

    def __init__(self) -> None:
        self.killed: list[RoleId] = []  # and not noticed yet
        self.ended: list[RoleId] = []

    def lost(self) -> dict[RoleId, str]:
        return dict.fromkeys(self.killed, "it was killed")

    def release(self, name: RoleId) -> None: ...

    def end(self, name: RoleId) -> None:
        self.ended.append(name)
        if name in self.killed:
            self.killed.remove(name)


@dataclass(slots=True)
class Loaders:
    """Roles that read, and a client for what they keep."""

    roles: Roles
    wire: RpcClient
    processes: Processes
    start: Callable[[RoleId], None]

    def pull(self, name: BatchName) -> Batch:
        answer = self.wire.request(name.loader, PullBatch(name.reading, name.epoch, name.index, "all")).result(20)
        return unpack_batch(answer.of(BatchGiven, name.loader).batch, answer.frames)

    def kept(self, role: str) -> float:
        told = self.wire.request(role, Query("status")).result(20).message
        assert isinstance(told, QueryReply)
        return told.figures["kept_batches"]


@contextmanager
def loaders_of(
    count: int, *, as_trainers: bool = False, before_fetch: Callable[[], object] = lambda: None
) -> Iterator[Loaders]:
    stored: dict[str, bytes] = {}

    def fetch(key: str) -> Source:
        before_fetch()
        source: Source = pickle.loads(stored[key])
        return source

    @contextmanager
    def store(source: Source) -> Iterator[str]:
        key = f"source-{len(stored)}"
        stored[key] = pickle.dumps(source)
        yield key

    with ExitStack() as stack:
        wire = stack.enter_context(RpcClient(security="off"))
        names = [RoleId("trainer" if as_trainers else "loader", number) for number in range(count)]

        def start(name: RoleId) -> None:
            server = stack.enter_context(RpcServer(security="off"))
            role = LoaderServer(name, server, fetch)
            in_thread(stack, role.serve, server.stop)
            wire.connect(name, server.address)

        for name in names:
            start(name)
        processes = Processes()
        roles = Roles(
            wire, [], names if as_trainers else [], processes, None, [] if as_trainers else names, stored_source=store
        )
        yield Loaders(roles, wire, processes, start)


def table(broken: range = range(0)) -> pa.Table:
    numbers = range(ROWS)
    return pa.table(
        {
            "click": pa.array([None if row in broken else row % 2 for row in numbers], pa.int8()),
            "x": pa.array([None if row % 5 == 0 else float(row) for row in numbers], pa.float32()),
            "row": pa.array(numbers, pa.int64()),
        }
    )


def contents(batch: Batch) -> tuple[Any, ...]:
    assert batch.labels is not None
    return batch.parts[0].keys.tolist(), batch.numbers.tolist(), batch.labels.tolist()


@contextmanager
def read_remotely(loaders: Loaders, loader: Loader) -> Iterator[ReadingRoles]:
    reading = ReadingRoles(loaders.roles)
    with reading.prepared(loader) as loader.remote:
        assert loader.remote is not None
        try:
            yield reading
        finally:
            loader.remote = None


def remote_plan(loaders: Loaders, loader: Loader, *, stop: int | None = None) -> list[tuple[int, int, int, Any]]:
    """Read, pull and finish everything, or the first batches."""
    found: list[tuple[int, int, int, Any]] = []
    with read_remotely(loaders, loader):
        items = iter(loader)
        for lease, name in items:
            assert isinstance(name, BatchName)
            assert len(name) == lease.samples
            found.append((lease.number, lease.epoch, lease.index, contents(loaders.pull(name))))
            loader.done(lease)
            if len(found) == stop:
                break
        items.close()
    return found


def local_plan(loader: Loader) -> list[tuple[int, int, int, Any]]:
    found: list[tuple[int, int, int, Any]] = []
    for lease, batch in loader:
        found.append((lease.number, lease.epoch, lease.index, contents(batch)))
        loader.done(lease)
    return found
