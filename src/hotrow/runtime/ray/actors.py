"""Shards, trainers, embedding workers and loaders as Ray actors. Each reports its address, then serves until `Stop`.

Ray sends settings and the model to the actors; everything after that goes over the transport.
"""

import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import ray

from hotrow.client.row_hints import RowHints
from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.loading.process import LoaderServer
from hotrow.runtime.ray.sources import fetch_source
from hotrow.server.dense_memory import DenseMemory
from hotrow.server.dense_service import DenseService
from hotrow.server.dense_shard import DenseShard
from hotrow.server.process import ShardServer
from hotrow.server.restarting import ShardBefore, open_shard
from hotrow.server.shared_rows import dense_path
from hotrow.topology.affinity import bind_process
from hotrow.topology.binding import ThreadRole
from hotrow.transport.client import RpcClient
from hotrow.transport.security import ClusterKey
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId, Security
from hotrow.worker.embedding_process import EmbeddingServer, EmbeddingSetup
from hotrow.worker.process import TrainerProcess
from hotrow.worker.setup import RoleSpec, TrainerSetup

MOST_OPEN = 65_536  # requests to one peer; open grants bound them, and the driver must never wait


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Security, delay and rate of the connections of a run, and whether its roles bind themselves to cores."""

    security: Security = "key"
    key: ClusterKey | None = None
    delay_s: float = 0.0  # to the shards and back: for measurements
    link_gbps: float = 0.0  # of each role's link to the shards, in each direction: for measurements; 0: no limit
    bind_cores: bool = False

    def server(self, host: str | None, name: str, port: str = "*") -> RpcServer:
        """A server on a host; None: on this node's address for other nodes. Another port where that one is taken."""
        where = host or ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        how: dict[str, Any] = {"security": self.security, "key": self.key, "name": name}
        if port != "*":
            with suppress(ConfigError):
                return RpcServer(f"tcp://{where}:{port}", **how)
        return RpcServer(f"tcp://{where}:*", **how)

    def bind(self, kind: ThreadRole, number: int) -> None:
        """Bind a role, before it starts threads: they inherit the cores, and touch memory near them."""
        if self.bind_cores:
            bind_process(kind, number)

    def rpc_client(self, *, delayed: bool = False) -> RpcClient:
        delay_s, link_gbps = (self.delay_s, self.link_gbps) if delayed else (0.0, 0.0)
        return RpcClient(
            security=self.security, key=self.key, delay_s=delay_s, link_gbps=link_gbps, most_open=MOST_OPEN
        )

    def rpc_client_to(self, shards: Mapping[str, str]) -> RpcClient:
        """A client connected to shards by name."""
        wire = self.rpc_client(delayed=True)
        for name, address in shards.items():
            wire.connect(name, address)
        return wire


@dataclass(frozen=True, slots=True, eq=False)
class ShardSetup:
    """The settings of a shard."""

    role: RoleSpec
    number: int
    shards: int
    places: Sequence[int]  # of the model's parameters that it holds in token modes
    run: str | None = None  # names its shared memory; None: rows are in the memory of the process
    before: ShardBefore | None = None  # None: it is the first process


@dataclass(frozen=True, slots=True, eq=False)
class LoaderSetup:
    """The settings of a loader."""

    hinted: Mapping[str, Table]  # whose rows are on disk: shards are told of batches that are needed soon
    threads: int


class _Serving(Protocol):
    def serve(self) -> None: ...


class _Closing(Protocol):
    def close(self) -> None: ...


class _Shared(Protocol):
    """Has shared memory, which the next process of the role attaches to."""

    def close(self, *, leave: bool) -> None: ...


def _let_sigterm_end_the_process() -> None:
    """Restore the default action of SIGTERM, once a role has closed everything.

    Ray's handler raises SystemExit in the main thread. A signal that arrives while that thread is in Ray's own code is
    raised in the first Python code after it, which at the end of a process is the __del__ of some object: Python then
    prints "Exception ignored in" with a traceback.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _die_by_sigterm() -> Any:
    """Restore the default action of SIGTERM, and return the handler that was there.

    Ray's handler raises SystemExit, which unwinds a shard that is being made: that would remove the shared memory which
    the next process needs. A process that dies at once leaves it.
    """
    if threading.current_thread() is threading.main_thread():
        return signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return None


class _Role:
    """The common part of all roles: they report their address, serve until `Stop`, and close."""

    def __init__(self, server: RpcServer, serving: _Serving, *others: _Closing, shared: Sequence[_Shared] = ()) -> None:
        self._server, self._serving, self._others, self._shared = server, serving, others, shared
        self._sigterm: Any = None  # its handler while it serves, where that is another one before

    def address(self) -> str:
        return self._server.address

    def serve(self) -> None:
        """Serve until a `Stop` message. A role that ends in another way leaves its shared memory to the next process.

        Ray's handler of SIGTERM raises SystemExit here.
        """
        stopped = False

        def close_shared(each: _Shared) -> None:
            each.close(leave=not stopped)

        with ExitStack() as stack:  # an error of one close does not keep the others open
            stack.callback(_let_sigterm_end_the_process)
            for shared in reversed(self._shared):
                stack.callback(close_shared, shared)
            for each in reversed((self._server, *self._others)):
                stack.callback(each.close)
            if self._sigterm is not None and threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, self._sigterm)
            self._serving.serve()
            stopped = True


class ShardRole(_Role):
    """One shard; a Ray actor when it is started as one."""

    def __init__(self, setup: ShardSetup, lines: TransportSettings, host: str | None) -> None:
        sigterm = _die_by_sigterm()
        lines.bind("store", setup.number)
        before, role, spec = setup.before, setup.role, setup.role.spec
        shard = open_shard(
            spec.tables,
            setup.run,
            before,
            number=setup.number,
            shards=setup.shards,
            threads=role.threads,
            values=role.values,
            parked_bytes=role.parked_bytes,
            attach=spec.attach,
        )
        piece = DenseShard(
            spec.model,
            spec.optimizer,
            setup.places,
            buffers=setup.number == 0,
            clip=spec.clip,
            parked_bytes=role.parked_bytes,
        )
        shared = setup.run is not None and shard.shared
        memory = DenseMemory(dense_path(str(setup.run), setup.number, setup.shards)) if shared else None
        dense = DenseService(piece, memory)
        server = lines.server(host, RoleId("shard", setup.number), "*" if before is None else before.port)
        serving = ShardServer(shard, server, dense, restarted=before is not None)
        super().__init__(server, serving, shared=(shard, dense))
        self._sigterm = sigterm


class TrainerRole(_Role):
    """One trainer; a Ray actor when it is started as one."""

    def __init__(
        self, setup: TrainerSetup, lines: TransportSettings, host: str | None, shards: Mapping[str, str], role: RoleId
    ) -> None:
        lines.bind("trainer", role.number)
        server, wire = lines.server(host, role), lines.rpc_client_to(shards)
        super().__init__(server, TrainerProcess(setup, role, server, wire, fetch_source), wire)


class LoaderRole(_Role):
    """One loader; a Ray actor when it is started as one."""

    def __init__(
        self, setup: LoaderSetup, lines: TransportSettings, host: str | None, shards: Mapping[str, str], role: RoleId
    ) -> None:
        lines.bind("reader", role.number)
        server = lines.server(host, role)
        if not setup.hinted:
            super().__init__(server, LoaderServer(role, server, fetch_source))
            return
        wire = lines.rpc_client_to(shards)
        hints = RowHints(setup.hinted, wire, list(shards), threads=setup.threads)
        super().__init__(server, LoaderServer(role, server, fetch_source, wire, hints), wire)


class EmbeddingRole(_Role):
    """One embedding worker; a Ray actor when it is started as one."""

    def __init__(
        self, setup: EmbeddingSetup, lines: TransportSettings, host: str | None, shards: Mapping[str, str]
    ) -> None:
        lines.bind("store", setup.number)
        server, wire = lines.server(host, RoleId("embedding worker", setup.number)), lines.rpc_client_to(shards)
        super().__init__(server, EmbeddingServer(setup, server, wire), wire)
