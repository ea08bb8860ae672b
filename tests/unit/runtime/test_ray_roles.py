"""A role as Ray runs it: once it has closed everything, a SIGTERM ends its process without a traceback.

A shard that ends without a `Stop` message leaves its shared memory to the next process.
"""

import multiprocessing
import secrets
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import numpy as np
import pytest
import torch
from torch import nn

import hotrow as hr

pytest.importorskip("ray")
from hotrow.checkpoint import dense as dense_state
from hotrow.errors import InputError
from hotrow.runtime.ray.actor_pool import ActorPool
from hotrow.runtime.ray.actors import ShardRole, ShardSetup, TransportSettings, _Role
from hotrow.runtime.ray.cluster import RayCluster
from hotrow.server.restarting import ShardBefore
from hotrow.server.shared_rows import remove_leftovers
from hotrow.store.segments import SHARED_MEMORY
from hotrow.transport.client import RpcClient
from hotrow.transport.frames import RowBlock, pack
from hotrow.transport.messages import Exchange, PullRows, Query, QueryReply, Stop, TakeDense
from hotrow.transport.server import RpcServer
from hotrow.worker.setup import RoleSpec
from hotrow.worker.spec import TrainingSpec

pytestmark = pytest.mark.ray
PATIENCE_S = 60


class Served:
    """Has nothing to serve."""

    def serve(self) -> None:
        pass


@pytest.fixture
def handler() -> Iterator[None]:
    """As Ray sets one: it raises in whatever Python code runs next."""
    before = signal.signal(signal.SIGTERM, lambda *_: exit(1))
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("handler")
def test_a_role_that_has_closed_leaves_sigterm_to_the_system() -> None:
    server = TransportSettings(security="off").server("127.0.0.1", "shard 0")
    _Role(server, Served()).serve()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


class Closing:
    """Notes that it was closed, and fails then."""

    def __init__(self, closed: list[str], name: str) -> None:
        self.closed, self.name = closed, name

    def close(self) -> None:
        self.closed.append(self.name)
        raise OSError(f"{self.name} did not close")


@pytest.mark.usefixtures("handler")
def test_a_role_closes_everything_whatever_fails_meanwhile() -> None:
    server, closed = TransportSettings(security="off").server("127.0.0.1", "shard 0"), list[str]()
    with pytest.raises(OSError, match="second did not close"):
        _Role(server, Served(), Closing(closed, "first"), Closing(closed, "second")).serve()
    assert closed == ["first", "second"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_cluster_gives_its_sockets_back_where_ray_fails_at_the_end() -> None:
    class FailingPool(ActorPool):
        def close(self, wait_s: float) -> None:
            raise OSError("Ray is gone")

    lines = TransportSettings(security="off")
    cluster = object.__new__(RayCluster)
    cluster._actors, cluster.rpc = FailingPool(lines, None, lambda role, number: {}), lines.rpc_client()
    with pytest.raises(OSError, match="Ray is gone"):
        cluster.close()
    with pytest.raises(InputError, match="closed"):
        cluster.rpc.request("shard 0", Stop())


@pytest.fixture
def run() -> Iterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    yield name
    remove_leftovers(name)


def network() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(2, 1)
    return model, torch.optim.Adam(model.parameters())


def shard_role(run: str, before: ShardBefore | None = None, lines: TransportSettings | None = None) -> ShardRole:
    model, optimizer = network()
    spec = TrainingSpec(model, {"t": hr.Table(dim=4, capacity="64MiB")}, optimizer)
    setup = ShardSetup(RoleSpec(spec), 0, 1, [0, 1], run=run, before=before)
    return ShardRole(setup, lines or TransportSettings(security="off"), "127.0.0.1")


def serve_shard(run: str, pipe: Connection) -> None:
    signal.signal(signal.SIGTERM, lambda *_: exit(1))  # as Ray does
    role = shard_role(run)
    pipe.send(role.address())
    role.serve()


def files(run: str) -> set[str]:
    return {each.name.removeprefix(f"hotrow-{run}-0-of-1") for each in SHARED_MEMORY.glob(f"hotrow-{run}-*")}


def test_a_shard_that_sigterm_ends_leaves_rows_and_dense_parameters_and_stop_removes_them(run: str) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve_shard, args=(run, there))
    process.start()
    there.close()  # a process that fails to start is an EOFError here
    with RpcClient(security="off") as wire:
        wire.connect("shard 0", here.recv())
        tensors, settings = dense_state.to_bytes(*network())
        wire.request("shard 0", TakeDense(7, settings), [tensors]).result(PATIENCE_S)
        blocks, frames = pack([RowBlock("t", np.arange(5, dtype=np.uint64), dim=4)], "fp32")
        pull = PullRows(0, 0, True, False, "fp32", blocks)
        wire.request("shard 0", Exchange(1, None, pull), frames).result(PATIENCE_S)
        process.terminate()
        process.join(PATIENCE_S)
        assert process.exitcode == 1
        assert files(run) == {"-t.rows", ".dense"}
        role = shard_role(run, ShardBefore(1, "*"))
        serving = threading.Thread(target=role.serve)
        serving.start()
        wire.reconnect("shard 0", role.address())
        ready = wire.request("shard 0", Query("ready")).result(PATIENCE_S).of(QueryReply, "shard 0").figures
        assert (ready["incarnation"], ready["dense_found"]) == (1, 1)  # the same rows, and the dense parameters
        wire.request("shard 0", Stop()).result(PATIENCE_S)
        serving.join(PATIENCE_S)
    assert not files(run)


class TerminatedSettings(TransportSettings):
    """SIGTERM arrives while a shard is being made: it has its rows, and no server yet."""

    def server(self, host: str | None, name: str, port: str = "*") -> RpcServer:
        signal.raise_signal(signal.SIGTERM)
        return super().server(host, name, port)


def start_and_terminate(run: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: exit(1))  # as Ray does
    shard_role(run, ShardBefore(1, "*"), TerminatedSettings(security="off"))


def test_a_shard_that_sigterm_ends_before_it_serves_leaves_the_rows_that_it_found(run: str) -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    first = context.Process(target=serve_shard, args=(run, there))
    first.start()
    there.close()
    here.recv()
    first.kill()
    first.join(PATIENCE_S)
    found = files(run)
    assert "-t.rows" in found
    second = context.Process(target=start_and_terminate, args=(run,))
    second.start()
    second.join(PATIENCE_S)
    assert second.exitcode == -signal.SIGTERM
    assert files(run) == found


@pytest.mark.usefixtures("handler")
def test_a_shard_that_serves_has_the_handler_of_before(run: str) -> None:
    before, role = signal.getsignal(signal.SIGTERM), shard_role(run)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    seen = []

    class Noting:
        def serve(self) -> None:
            seen.append(signal.getsignal(signal.SIGTERM))

    role._serving = Noting()
    role.serve()
    assert seen == [before]
