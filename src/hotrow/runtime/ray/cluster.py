"""A cluster on Ray for one run: its roles are started in order, monitored, and ended with the run.

Trainers and embedding workers join and leave meanwhile; their numbers rise, and none is used again.
"""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

import ray
from ray._private import state

from hotrow.errors import ConfigError, HotrowError
from hotrow.runtime.cluster.embedding_workers import EmbeddingWorkers
from hotrow.runtime.cluster.facts import ClusterFacts
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.cluster.shard_restarts import ShardRestarts
from hotrow.runtime.losses import RoleLost
from hotrow.runtime.ray.actor_pool import ActorPool, Freed, Options
from hotrow.runtime.ray.actors import EmbeddingRole, LoaderRole, ShardRole, TrainerRole, TransportSettings
from hotrow.runtime.ray.setups import RoleSetups
from hotrow.runtime.ray.sources import stored_source
from hotrow.runtime.ray.trainer_places import TrainerPlaces
from hotrow.server.restarting import ShardBefore
from hotrow.transport.ids import WORKERS_MOST
from hotrow.transport.messages import Stop
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId, RoleKind

STOP_S = 10.0  # for a role to stop by itself

__all__ = ["RayCluster", "RoleLost"]


class RayCluster:
    """Shards, trainers and, if there are any, embedding workers and loaders of one run.

    Use it in a `with`, or close it.
    """

    def __init__(
        self,
        setups: RoleSetups,
        *,
        trainers: int,
        lines: TransportSettings,
        embedding_workers: int = 0,
        loaders: int = 0,
        host: str | None = "127.0.0.1",
        options: Options = lambda role, number: {"num_cpus": 0},
        freed: Freed = lambda role, number: None,
        places: TrainerPlaces | None = None,
        restarts: int = 0,
    ) -> None:
        """`host`: where roles listen, None for the address of their node; `options`: of the Ray actors.

        `freed` is told of each actor that has ended; `places`: of trainers whose number changes. A lost shard is
        started again, `restarts` times in a row.

        Without embedding workers trainers look rows up on the shards themselves.
        """
        self._setups = setups
        self._lines, self._host = lines, host
        self._actors = ActorPool(lines, host, options, freed)
        self.places = places
        self._joining = threading.Lock()
        self._restarts = ShardRestarts(self._restart_shard, restarts)
        self._numbers: dict[RoleKind, int] = {"trainer": 0, "embedding worker": 0, "loader": 0}  # used so far
        self.rpc = lines.rpc_client(delayed=True)
        try:
            self._start(trainers, embedding_workers, loaders)
        except BaseException:
            self.close()
            raise

    def _start(self, trainers: int, embedding_workers: int, loaders: int) -> None:
        names = self._setups.names
        self._shards = self._actors.start(ShardRole, {name: (self._setups.shard(name.number),) for name in names})
        for name, address in self._shards.items():
            self.rpc.connect(name, address)
        self._trainer = ray.put(self._setups.trainer())  # the initial state, also for trainers that join later
        workers = [self._new_role("trainer") for _ in range(trainers)]
        self._start_trainers(workers)
        lookup_workers = EmbeddingWorkers(self.rpc, workers) if embedding_workers else None
        readers = [self._new_role("loader") for _ in range(loaders)]
        self._start_loaders(readers)
        self.roles = Roles(
            self.rpc,
            names,
            list(workers),
            self._actors,
            lookup_workers,
            readers,
            stored_source,
            self.join_embedding_worker,
            shard_restarts=self._restarts,
        )
        for _ in range(embedding_workers):
            self._join_embedding_worker(self._embedding_workers(), joins=False)

    def facts(self) -> ClusterFacts:
        """The current roles and addresses."""
        noticed = {loss.name: loss.why for loss in list(self.roles.losses)}
        lost = self._actors.lost()
        return ClusterFacts(self._lines.security, self._lines.key, self._actors.where, lost, noticed | lost)

    def draining(self) -> set[RoleId]:
        """Roles on nodes that Ray drains: these end soon. Thread-safe."""
        ending = state.state.get_draining_nodes()
        return {name for name, node in self._actors.nodes.items() if node in ending}

    def ended_with_node(self, name: RoleId) -> bool:
        """Whether the node of a role has ended. Thread-safe."""
        node = self._actors.nodes.get(name)
        alive = [each["NodeID"] for each in ray.nodes() if each["Alive"]]  # type: ignore[no-untyped-call]
        return node not in alive

    def listen(self, name: str) -> RpcServer:
        """A server in the process of the run, with the cluster's key."""
        return self._lines.server(self._host, name)

    def join_trainer(self) -> RoleId:
        """Start one more trainer, which waits for a mode; returns its name. Thread-safe."""
        with self._joining:
            self._restarts.wait()
            name = self._new_role("trainer")
            self._start_trainers([name], joins=True)
            if self.roles.embedding_workers is not None:
                with self._or_never(name):
                    self.roles.embedding_workers.add_trainer(name)
        return name

    def join_loader(self) -> RoleId:
        """Start one more loader, which reads when the training loop has prepared it; returns its name. Thread-safe."""
        with self._joining:
            name = self._new_role("loader")
            self._start_loaders([name], joins=True)
            self.roles.new_loaders.append(name)
        return name

    def join_embedding_worker(self) -> RoleId:
        """Start one more embedding worker, also while a mode runs; returns its name. Thread-safe."""
        with self._joining:
            self._restarts.wait()
            return self._join_embedding_worker(self._embedding_workers(), joins=True)

    def leave_embedding_worker(self, name: RoleId) -> "Future[None]":
        """Give it no more batches; the future is done when it has stopped. Do not wait in the thread of the loop."""
        left = self._embedding_workers().leave(name, lambda: self._actors.release(name))
        left.add_done_callback(lambda _: self._actors.end(name))
        return left

    @property
    def shard_restarts(self) -> ShardRestarts:
        """Starts lost shards again."""
        return self._restarts

    def _restart_shard(self, name: RoleId, *, incarnation: int, checkpoint: str | None) -> str:
        before = ShardBefore(incarnation, self._shards[name].rpartition(":")[2], checkpoint)
        setup = self._setups.shard(name.number, before)
        self._shards[name] = self._actors.start(ShardRole, {name: (setup,)}, joins=True)[name]
        return self._shards[name]

    def close(self) -> None:
        """Send `Stop` to all roles, and end those that do not stop."""
        with contextlib.ExitStack() as stack:  # an error of one close does not keep the others open
            stack.callback(self.rpc.close)
            stack.callback(self._actors.close, STOP_S)
            for name in reversed(self._actors.where):  # trainers before shards
                with contextlib.suppress(HotrowError):
                    self.rpc.request(name, Stop())

    def __enter__(self) -> "RayCluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new_role(self, kind: RoleKind) -> RoleId:
        number = self._numbers[kind]
        self._numbers[kind] += 1
        return RoleId(kind, number)

    def _start_trainers(self, names: list[RoleId], *, joins: bool = False) -> None:
        given = {name: (self._trainer, self._shards, name) for name in names}
        for name, address in self._actors.start(TrainerRole, given, joins=joins).items():
            self.rpc.connect(name, address, near=True)

    def _start_loaders(self, names: list[RoleId], *, joins: bool = False) -> None:
        given = {name: (self._setups.loader(), self._shards, name) for name in names}
        for name, address in self._actors.start(LoaderRole, given, joins=joins).items():
            self.rpc.connect(name, address, near=True)

    def _join_embedding_worker(self, embedding_workers: EmbeddingWorkers, *, joins: bool) -> RoleId:
        name = self._new_role("embedding worker")
        if name.number >= WORKERS_MOST:
            raise ConfigError(f"{name}: a run has {WORKERS_MOST} numbers, and none is used twice")
        given = {name: (self._setups.embedding_worker(name.number), self._shards)}
        address = self._actors.start(EmbeddingRole, given, joins=joins)[name]
        with self._or_never(name):
            embedding_workers.join(name, address, partial(self._restarts.tell_all_to, self.rpc))
        return name

    @contextmanager
    def _or_never(self, name: RoleId) -> Iterator[None]:
        """End a role that was started and could not be announced to all others."""
        try:
            yield
        except BaseException:
            if self.roles.embedding_workers is not None:
                self.roles.embedding_workers.forget_trainer(name)
            self._actors.end(name)
            with contextlib.suppress(HotrowError):
                self.rpc.forget(name)
            raise

    def _embedding_workers(self) -> EmbeddingWorkers:
        if self.roles.embedding_workers is None:
            raise ConfigError("embedding_workers=0: this run's trainers look rows up themselves: start it with some")
        return self.roles.embedding_workers
