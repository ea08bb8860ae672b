"""The embedding workers of a cluster: which one gets the next batch, and which batches each of them holds.

Embedding workers and trainers join and leave during a run. A leaving embedding worker gets no new batches, and stops
when the gradients of its batches have arrived. Thread-safe.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from hotrow.errors import HotrowError, InputError
from hotrow.runtime.cluster.embedding_members import EmbeddingMembers, LeavingMember, Member
from hotrow.runtime.cluster.leaving import forget_when_stopped
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.errors import PeerLost
from hotrow.transport.messages import Meet, Query, QueryReply, Release, Stop
from hotrow.types import RoleId

_log = logging.getLogger("hotrow.runtime")


class EmbeddingWorkers:
    """Members by connection name for the driver, and by number for trainers."""

    def __init__(self, wire: RpcClient, trainers: Sequence[RoleId]) -> None:
        self._wire, self._trainers = wire, list(trainers)
        self._lock = threading.Lock()
        self._meeting = threading.Lock()  # one new member at a time, so that all others learn its address
        self._members = EmbeddingMembers()

    @property
    def names(self) -> list[RoleId]:
        """Members that get batches."""
        with self._lock:
            return sorted(each.name for each in self._members.staying)

    def join(self, name: RoleId, address: str, joined: Callable[[RoleId], None] = lambda name: None) -> None:
        """Add a member; it gets batches once all trainers know its address. `joined` sends it what comes before."""
        self._wire.connect(name, address, near=True)
        reply = self._wire.request(name, Query("ready")).result().message
        if not isinstance(reply, QueryReply) or "number" not in reply.figures:
            raise InputError(f"{name} at {address} is not an embedding worker: it replied with {type(reply).__name__}")
        number = int(reply.figures["number"])
        with self._meeting:
            with self._lock:
                self._members.check_join(name, number)
                trainers = list(self._trainers)
            for trainer in trainers:
                self._meet(trainer, Meet(number, address))
            with self._lock:
                self._members.staying.append(Member(name, number, address))
                joined(name)  # a shard that is started again from now on is told to this member, too

    def _meet(self, trainer: RoleId, address: Meet) -> None:
        """Send the address to one trainer; a failure counts only while the trainer is a member."""
        try:
            self._wire.request(trainer, address).result()
        except HotrowError:
            with self._lock:
                if trainer in self._trainers:
                    raise

    def add_trainer(self, trainer: RoleId) -> None:
        """Send a new trainer the addresses of all members, and of those that join later."""
        with self._meeting:
            with self._lock:  # so that no leave is sent before the address
                self._trainers.append(trainer)
                met = [self._wire.request(trainer, Meet(each.number, each.address)) for each in self._members.present]
            for asked in met:
                asked.result()

    def forget_trainer(self, trainer: RoleId) -> None:
        """Remove a trainer that leaves."""
        with self._lock:
            if trainer in self._trainers:
                self._trainers.remove(trainer)

    def leave(self, name: RoleId, before: Callable[[], None] = lambda: None) -> "Future[None]":
        """Give a member no new batches; the future is done when it has stopped.

        `before` is called before it can stop.
        """
        with self._lock:
            member = self._members.check_leave(name)
            before()
            leaving = self._members.start_leaving(member)
            idle = not member.grants
        if idle:
            self._stop(leaving)
        return leaving.left

    def lose(self, name: RoleId) -> int:
        """Remove a member that was lost; returns the batches that it held.

        Trainers close their connections to it, so that what they wait for fails.
        """
        with self._lock:
            found = self._members.lose(name)
            trainers = list(self._trainers)
        if found is None:
            return 0
        member, leaving = found
        for trainer in trainers:
            for asked in self._request_if_present(trainer, Meet(member.number, None)):
                asked.add_done_callback(_log_fault)
        if leaving is not None:
            leaving.left.set_result(None)
        return len(member.grants)

    def assign(self, grant: int) -> tuple[RoleId, int]:
        """Choose the member that gets the ids of a grant's batch; returns its name and the sample id."""
        with self._lock:
            return self._members.assign(grant)

    def done(self, grant: int) -> None:
        """The gradients of a batch are on the shards."""
        with self._lock:
            _, parting = self._members.drop([grant])
        self._stop_all(parting)

    def release(self, grants: Iterable[int] | None = None) -> None:
        """Drop the ids of batches whose gradients will not arrive (None: of all batches)."""
        with self._lock:
            dropped, parting = self._members.drop(grants)
        for name, samples in dropped:
            try:
                asked = self._wire.request(name, Release(samples))
            except InputError:  # the member was lost, or the client is closed: the roles end with the run
                continue
            asked.add_done_callback(_log_fault)
        self._stop_all(parting)

    def _stop_all(self, parting: Iterable[LeavingMember]) -> None:
        for each in parting:
            self._stop(each)

    def _stop(self, parting: LeavingMember) -> None:
        """Stop a member whose batches are done; trainers drop its address."""
        member = parting.member
        with self._lock:
            self._members.leaving.remove(parting)
            trainers = list(self._trainers)
        try:
            pending = [self._wire.request(member.name, Stop())]
            for trainer in trainers:
                pending += self._request_if_present(trainer, Meet(member.number, None))
        except HotrowError as fault:  # often in the thread of the RPC client, which only logs it
            parting.left.set_exception(fault)
            return
        forget_when_stopped(self._wire, member.name, pending, parting.left)

    def _request_if_present(self, trainer: RoleId, message: Meet) -> "list[Future[Answer]]":
        """Empty for a trainer that has left in the meantime."""
        try:
            return [self._wire.request(trainer, message)]
        except InputError:
            with self._lock:
                if trainer in self._trainers:
                    raise
            return []


def _log_fault(done: "Future[Answer]") -> None:
    if (fault := done.exception()) is not None and not isinstance(fault, PeerLost):  # a lost role holds nothing
        _log.warning("could not release cancelled batches: %s", fault)
