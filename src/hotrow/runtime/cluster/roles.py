"""The roles of a cluster by name, and requests to several of them."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from hotrow.data.source import Source
from hotrow.runtime.cluster.embedding_workers import EmbeddingWorkers
from hotrow.runtime.cluster.leaving import forget_when_stopped
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.envelope import Buffer
from hotrow.transport.futures import uncancellable_future
from hotrow.transport.messages import Exchange, Exchanged, Message, Stop
from hotrow.types import RoleId

WAKE_S = 0.1  # how long the loss of a role may go unnoticed
LOSS_S = 2.0  # from a failure until the lost role that caused it is known


# Stores a source where loaders fetch it by the key; InputError where that is not possible.
StoredSource: TypeAlias = Callable[[Source], AbstractContextManager[str]]


class RoleProcesses(Protocol):
    """The processes of roles."""

    def check_alive(self) -> None:
        """RoleLost, with its name, where a role has ended."""

    def release(self, name: RoleId) -> None:
        """The role leaves: its end is not a loss."""

    def end(self, name: RoleId) -> None:
        """End the process of a role that has left."""


@dataclass(frozen=True, slots=True, eq=False)
class Roles:
    """The roles of a run. Trainers change in the thread of the training loop."""

    rpc: RpcClient
    shards: Sequence[RoleId]
    trainers: list[RoleId]  # in the order of their numbers when a mode begins
    processes: RoleProcesses
    embedding_workers: EmbeddingWorkers | None = None  # None: trainers look rows up themselves
    loaders: Sequence[RoleId] = ()  # empty: trainers read, where they can
    stored_source: StoredSource | None = None  # None: the driver reads

    def incarnations(self) -> list[int]:
        """Of all shards."""
        return [state.incarnation for state in self._shard_states()]

    def newest_grant(self) -> int:
        """The largest grant of any shard."""
        return max(state.newest for state in self._shard_states())

    def samples(self) -> int:
        """The largest count of samples of any shard."""
        return max(state.samples for state in self._shard_states())

    def _shard_states(self) -> list[Exchanged]:
        asked = {name: self.rpc.request(name, Exchange(0)) for name in self.shards}
        return [self.answer(each).of(Exchanged, name) for name, each in asked.items()]

    def stop_trainer(self, trainer: RoleId) -> Future[None]:
        """Stop a trainer that holds no batch; the future is done when it has."""
        self.processes.release(trainer)
        if trainer in self.trainers:
            self.trainers.remove(trainer)
        if self.embedding_workers is not None:
            self.embedding_workers.forget_trainer(trainer)
        left = uncancellable_future()
        left.add_done_callback(lambda _: self.processes.end(trainer))
        forget_when_stopped(self.rpc, trainer, [self.rpc.request(trainer, Stop())], left)
        return left

    def answer(self, asked: Future[Answer]) -> Answer:
        """Wait for a reply; RoleLost where a role ends meanwhile."""
        while not asked.done() and not wait([asked], timeout=WAKE_S).done:
            self.processes.check_alive()
        return asked.result()

    def raise_loss(self) -> None:
        """Raise the loss of a role that is the cause of an error, once it is known; return where none is lost."""
        until = time.monotonic() + LOSS_S
        while time.monotonic() < until:
            self.processes.check_alive()
            time.sleep(WAKE_S)

    def request_all(
        self, names: Sequence[RoleId], message: Message, frames: Sequence[Buffer] = (), *, deadline: bool = True
    ) -> list[Future[Answer]]:
        """The same request to several roles."""
        return [self.rpc.request(name, message, frames, deadline=deadline) for name in names]
