"""The embedding workers of a cluster: which one gets the next batch, and which batches each of them holds.

Embedding workers and trainers join and leave during a run. A leaving embedding worker gets no new batches, and stops
when the gradients of its batches have arrived. While its caches are open the training loop stops it, after a flush.
Thread-safe.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from hotrow.errors import HotrowError, InputError
from hotrow.runtime.cluster.embedding_members import Dropped, EmbeddingMembers, LeavingMember, Member
from hotrow.runtime.cluster.leaving import forget_when_stopped
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.errors import PeerLost
from hotrow.transport.ids import sample_id
from hotrow.transport.messages import Meet, OpenCaches, Query, QueryReply, Release, Stop
from hotrow.types import RoleId

_log = logging.getLogger("hotrow.runtime")


class EmbeddingWorkers:
    """Members by connection name for the driver, and by number for trainers."""

    def __init__(self, wire: RpcClient, trainers: Sequence[RoleId]) -> None:
        self._wire, self._trainers = wire, list(trainers)
        self._lock = threading.Lock()
        self._meeting = threading.Lock()  # one new member at a time, so that all others learn its address
        self._members = EmbeddingMembers()
        self._caches: OpenCaches | None = None  # what members were told when the last mode began
        self._flushed_first = False  # a mode with caches is open: members are flushed before they stop

    @property
    def names(self) -> list[RoleId]:
        """Members that get batches."""
        with self._lock:
            return sorted(each.name for each in self._members.staying)

    @property
    def present(self) -> list[RoleId]:
        """Those and members that leave."""
        with self._lock:
            return sorted(each.name for each in self._members.present)

    @property
    def idle(self) -> list[RoleId]:
        """Members that leave, and hold no batch."""
        with self._lock:
            return [each.member.name for each in self._members.idle]

    def open_caches(self, number: int) -> "dict[RoleId, Future[Answer]]":
        """Tell all members, and those that join, that a mode begins; returns their replies."""
        with self._lock:
            self._caches, self._flushed_first = OpenCaches(number, len(self._members.staying)), True
            return {each.name: self._wire.request(each.name, self._caches) for each in self._members.present}

    def close_caches(self) -> None:
        """The mode has ended, after a flush: members that leave stop when they hold no batch."""
        with self._lock:
            self._flushed_first, parting = False, self._members.idle
        self._stop_all(parting)

    def stop_idle(self, names: Iterable[RoleId]) -> None:
        """Stop leaving members that were flushed."""
        with self._lock:
            parting = [each for each in self._members.idle if each.member.name in names]
        self._stop_all(parting)

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
            told: OpenCaches | None = None
            while not self._add(Member(name, number, address), told, joined):
                if (told := self._caches) is not None:
                    self._wire.request(name, told).result()

    def _add(self, member: Member, told: OpenCaches | None, joined: Callable[[RoleId], None]) -> bool:
        """False where the member was not told of the mode that began last."""
        with self._lock:
            if told is not self._caches:
                return False
            self._members.staying.append(member)
            joined(member.name)  # a shard that is started again from now on is told to this member, too
            return True

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
            idle = not member.grants and not self._flushed_first
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
            _, parting = self._drop([grant])
        self._stop_all(parting)

    def release(self, grants: Iterable[int] | None = None) -> None:
        """Drop the ids of batches whose gradients will not arrive (None: of all batches)."""
        with self._lock:
            dropped, parting = self._drop(grants)
        for name, samples in dropped:
            self._send_release(name, Release(samples))
        self._stop_all(parting)

    def discard(self, grants: Sequence[int]) -> None:
        """Drop the ids of batches that are dealt again.

        Where members have caches, those count the batches whose gradients are in them: no shard knows of these. Which
        member it was is forgotten once a trainer has answered for the batch.
        """
        with self._lock:
            members = list(self._members.present) if self._flushed_first and grants else []
        for member in members:
            samples = tuple(sample_id(member.number, grant) for grant in grants)
            self._send_release(member.name, Release(samples, dealt_again=True))
        self.release(grants)

    def _send_release(self, name: RoleId, release: Release) -> None:
        try:
            asked = self._wire.request(name, release)
        except InputError:  # the member was lost, or the client is closed: the roles end with the run
            return
        asked.add_done_callback(_log_fault)

    def _drop(self, grants: Iterable[int] | None) -> tuple[Dropped, list[LeavingMember]]:
        """Close grants; returns also the members to be stopped. Under the lock."""
        dropped, parting = self._members.drop(grants)
        return dropped, [] if self._flushed_first else parting

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
