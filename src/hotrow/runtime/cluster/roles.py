"""The roles of a cluster by name, and requests to several of them."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from hotrow.data.source import Source
from hotrow.errors import HotrowError, InputError
from hotrow.runtime.cluster.embedding_workers import EmbeddingWorkers
from hotrow.runtime.cluster.leaving import forget_when_stopped
from hotrow.runtime.cluster.shard_restarts import ShardRestarts
from hotrow.runtime.losses import SURVIVED, RoleLoss, RoleLost, WorkersLost, is_gone
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.envelope import Buffer
from hotrow.transport.errors import PeerLost, RemoteFault
from hotrow.transport.futures import uncancellable_future
from hotrow.transport.messages import Exchange, Exchanged, LeaveMeeting, Message, Query, QueryReply, Stop
from hotrow.types import RoleId

T = TypeVar("T")

WAKE_S = 0.1  # how long the loss of a role may go unnoticed
LOSS_S = 2.0  # from a failure until the lost role that caused it is known
ATTEMPTS = 3  # to start an embedding worker in place of the last one
KNOWN_LOSS_S = 60.0  # the same, where the failure says that a role does not answer


# Stores a source where loaders fetch it by the key; InputError where that is not possible.
StoredSource: TypeAlias = Callable[[Source], AbstractContextManager[str]]


class RoleProcesses(Protocol):
    """The processes of roles."""

    def lost(self) -> Mapping[RoleId, str]:
        """By name, why roles ended that were not released."""

    def release(self, name: RoleId) -> None:
        """The role leaves: its end is not a loss."""

    def end(self, name: RoleId) -> None:
        """End the process of a role that has left, or was lost. It is not among the lost ones any more."""


@dataclass(frozen=True, slots=True, eq=False)
class Roles:
    """The roles of a run. Trainers change in the thread of the training loop."""

    rpc: RpcClient
    shards: Sequence[RoleId]
    trainers: list[RoleId]  # in the order of their numbers when a mode begins
    processes: RoleProcesses
    embedding_workers: EmbeddingWorkers | None = None  # None: trainers look rows up themselves
    loaders: list[RoleId] = field(default_factory=list)  # empty: trainers read, where they can
    stored_source: StoredSource | None = None  # None: the driver reads
    replace_embedding_worker: Callable[[], object] | None = None  # start one in place of the last, which was lost
    lost: dict[RoleId, str] = field(default_factory=dict)  # trainers, embedding workers and loaders that ended, and why
    losses: deque[RoleLoss] = field(default_factory=deque)  # the same, not yet taken by the training loop
    on_loss: list[Callable[[RoleId], None]] = field(default_factory=list)  # called with each lost role that reads
    new_loaders: deque[RoleId] = field(default_factory=deque)  # started, and not prepared yet
    shard_restarts: ShardRestarts | None = None  # None: a lost shard ends the run
    _replacing: threading.Lock = field(default_factory=threading.Lock)  # held while the last embedding worker is

    def check_alive(self) -> None:
        """Note trainers, embedding workers and loaders that have ended, and start shards again that have.

        RoleLost, with its name, for any other role. Requests to a lost role fail with PeerLost from then on; requests
        to a shard wait. Only in the thread of the training loop, which sends to all roles.
        """
        ended = self.check_survivable()
        for name in ended:
            if name.kind == "shard":  # also those that are not the first to be started again
                self.rpc.suspend_deadlines(name)
        for name, why in ended.items():
            if name not in self.processes.lost():
                continue  # it was handled while another shard was started again
            if name.kind == "shard" and self.shard_restarts is not None:
                self.losses.append(self.shard_restarts.restart(self, name, why))
            else:
                self._lose(name, why)

    def check_survivable(self) -> Mapping[RoleId, str]:
        """RoleLost where the loss of a role ends the run; returns losses that do not. Thread-safe: changes nothing."""
        if self.shard_restarts is not None:
            self.shard_restarts.check()
        ended = dict(self.processes.lost())
        for name, why in ended.items():
            if name.kind not in SURVIVED and (name.kind != "shard" or self.shard_restarts is None):
                raise is_gone(name, why)
        return ended

    def check_trainers(self) -> None:
        """RoleLost where no trainer is left."""
        self.check_alive()
        if not self.trainers:
            gone = [name for name in self.lost if name.kind == "trainer"]
            raise is_gone(gone[-1], self.lost[gone[-1]]) if gone else RoleLost("there is no trainer")

    def check_all_left(self, trainers: int) -> None:
        """WorkersLost where there are fewer trainers than were to begin."""
        if len(self.trainers) != trainers:
            raise WorkersLost(f"{trainers} trainers were to begin, and {len(self.trainers)} are left")

    def surviving(self, act: Callable[[], T]) -> T:
        """Act on all trainers, and those that read for them; WorkersLost where one is lost meanwhile."""
        names = [*self.trainers, *self.loaders]
        try:
            return act()
        except HotrowError as error:
            if not self.caused_by_loss(names, error):
                raise
            raise WorkersLost(str(error)) from None

    def _lose(self, name: RoleId, why: str) -> None:
        self.lost[name] = why
        self.processes.end(name)
        if self.embedding_workers is not None:
            self.embedding_workers.forget_trainer(name)
        with suppress(InputError):  # it was not connected yet
            self.rpc.forget(name)
        if name.kind in ("trainer", "loader"):
            for members in (self.trainers, self.loaders):
                if name in members:
                    members.remove(name)
            for told in self.on_loss:
                told(name)
            self.losses.append(RoleLoss(name, why))
        elif self.embedding_workers is not None:
            self.losses.append(RoleLoss(name, why, batches=self.embedding_workers.lose(name)))
            if not self.embedding_workers.names:
                self._replace_last(name, why)

    def _replace_last(self, name: RoleId, why: str) -> None:
        """Trainers cannot compute without an embedding worker, so training waits for the new one.

        A thread starts it: roles that are lost meanwhile, itself or trainers that have to know it, are noted here.
        """
        workers, start = self.embedding_workers, self.replace_embedding_worker
        if workers is None or start is None:
            raise is_gone(name, why)
        if self._replacing.locked():  # the wait below starts another one
            return
        with self._replacing:
            errors: list[BaseException] = []
            while not workers.names:
                if len(errors) == ATTEMPTS:
                    raise RoleLost(f"{name} is gone: {why}; no other embedding worker could start: {errors[-1]}")
                started: Future[object] = Future()
                threading.Thread(target=_complete, args=(started, start), name="embedding worker", daemon=True).start()
                while not wait([started], timeout=WAKE_S).done:
                    self.check_alive()
                errors += [error] if (error := started.exception()) is not None else []

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
        if trainer in self.lost:
            left.set_result(None)
            return left
        left.add_done_callback(lambda _: self.processes.end(trainer))
        forget_when_stopped(self.rpc, trainer, [self.rpc.request(trainer, Stop())], left)
        return left

    def answer(self, asked: Future[Answer], most_s: float = math.inf, *, in_loop: bool = True) -> Answer:
        """Wait for a reply; PeerLost where the role is lost meanwhile, RoleLost where another one ends the run.

        `in_loop`: in the thread of the training loop. Others wait until that one has handled a loss.
        """
        until = time.monotonic() + most_s
        check = self.check_alive if in_loop else self.check_survivable
        while not asked.done() and not wait([asked], timeout=WAKE_S).done:
            check()
            if time.monotonic() > until:
                gone = ", ".join(f"{name} is gone: {why}" for name, why in self.lost.items())
                raise RoleLost(f"{gone}; another role did not answer for {most_s:.0f} s")
        return asked.result()

    def answers_of_ranks(self, asked: Mapping[RoleId, Future[Answer]], meeting: str | None) -> None:
        """Wait for trainers that meet. Where one is lost or refuses, the others are told not to wait for it."""
        left = list(asked.values())
        while left:
            done, _ = wait(left, timeout=WAKE_S)
            self.check_alive()
            left = [each for each in left if each not in done]
            failed = any(name in self.lost or (each.done() and each.exception()) for name, each in asked.items())
            if failed and meeting is not None:
                there = [name for name in asked if name not in self.lost]
                self.request_all(there, LeaveMeeting(meeting))  # no reply is waited for: those that follow tell
                meeting = None
        errors = [error for each in asked.values() if (error := each.exception()) is not None]
        if errors:  # that of a trainer which refused, before those of trainers that missed it
            raise min(errors, key=_says_lost)

    def rendezvous(self) -> str:
        """The address where ranks meet: a free port of the first trainer's host."""
        first = self.trainers[0]
        reply = self.answer(self.rpc.request(first, Query("meeting"))).of(QueryReply, first)
        host, _, _ = self.rpc.address_of(first).rpartition(":")
        return f"{host}:{int(reply.figures['port'])}"

    def caused_by_loss(self, roles: Collection[str], error: BaseException | None = None) -> bool:
        """Whether one of these roles is lost, the cause of an error: wait until that is known.

        An error that says so itself is waited for longer: Ray may be slow to notice the end of a process.
        """
        said = _says_lost(error)
        until = time.monotonic() + (KNOWN_LOSS_S if said else LOSS_S)
        while True:
            self.check_alive()
            if any(name in self.lost for name in roles):
                return True
            restarts = self.shard_restarts
            if said and restarts is not None and restarts.since_restart() < KNOWN_LOSS_S:
                return True  # requests gave up while it started, or know rows that it lost
            if time.monotonic() > until:
                return False
            time.sleep(WAKE_S)

    def request_all(
        self, names: Sequence[RoleId], message: Message, frames: Sequence[Buffer] = (), *, deadline: bool = True
    ) -> list[Future[Answer]]:
        """The same request to several roles."""
        return [self.rpc.request(name, message, frames, deadline=deadline) for name in names]


def _says_lost(error: BaseException | None) -> bool:
    """Whether an error says that a role does not answer."""
    return isinstance(error, PeerLost) or (isinstance(error, RemoteFault) and error.kind == "lost")


def _complete(future: "Future[object]", act: Callable[[], object]) -> None:
    try:
        future.set_result(act())
    except Exception as error:  # the thread that waits decides
        future.set_exception(error)
