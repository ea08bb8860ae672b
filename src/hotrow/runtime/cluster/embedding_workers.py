"""The embedding workers of a cluster: which one gets the next batch, and which batches each of them holds.

Embedding workers and trainers join and leave during a run. A leaving embedding worker gets no new batches, and stops
when the gradients of its batches have arrived. Thread-safe.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.runtime.cluster.leaving import forget_when_stopped
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.futures import uncancellable_future
from hotrow.transport.ids import sample_id
from hotrow.transport.messages import Meet, Query, QueryReply, Release, Stop
from hotrow.types import RoleId

_log = logging.getLogger("hotrow.runtime")


@dataclass(slots=True, eq=False)
class _Member:
    name: RoleId
    number: int
    address: str
    grants: set[int] = field(default_factory=set)  # whose gradients have not arrived


@dataclass(frozen=True, slots=True, eq=False)
class _LeavingMember:
    """Gets no new batches, and stops when it has none. `left` is done then."""

    member: _Member
    left: "Future[None]"


class EmbeddingWorkers:
    """Members by connection name for the driver, and by number for trainers."""

    def __init__(self, wire: RpcClient, trainers: Sequence[RoleId]) -> None:
        self._wire, self._trainers = wire, list(trainers)
        self._lock = threading.Lock()
        self._meeting = threading.Lock()  # one new member at a time, so that all others learn its address
        self._staying: list[_Member] = []  # the first one gets the next batch
        self._leaving: list[_LeavingMember] = []

    @property
    def names(self) -> list[RoleId]:
        """Members that get batches."""
        with self._lock:
            return sorted(each.name for each in self._staying)

    @property
    def _members(self) -> list[_Member]:
        return [*self._staying, *(each.member for each in self._leaving)]

    def join(self, name: RoleId, address: str) -> None:
        """Add a member; it gets batches once all trainers know its address."""
        self._wire.connect(name, address, near=True)
        reply = self._wire.request(name, Query("ready")).result().message
        if not isinstance(reply, QueryReply) or "number" not in reply.figures:
            raise InputError(f"{name} at {address} is not an embedding worker: it replied with {type(reply).__name__}")
        number = int(reply.figures["number"])
        with self._meeting:
            with self._lock:
                if any(number == each.number or name == each.name for each in self._members):
                    raise ConfigError(f"number={number} of {name}: is taken, embedding workers need different numbers")
                trainers = list(self._trainers)
            for trainer in trainers:
                self._meet(trainer, Meet(number, address))
            with self._lock:
                self._staying.append(_Member(name, number, address))

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
                met = [self._wire.request(trainer, Meet(each.number, each.address)) for each in self._members]
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
            found = next((each for each in self._staying if each.name == name), None)
            if found is None:
                there = ", ".join(each.name for each in self._staying) or "none"
                raise InputError(f"{name!r}: there is no such embedding worker; there are: {there}")
            if len(self._staying) == 1:
                raise InputError(f"{name!r}: is the last embedding worker, trainers need one: let another join first")
            before()
            leaving = _LeavingMember(found, uncancellable_future())
            self._staying.remove(found)
            self._leaving.append(leaving)
            idle = not found.grants
        if idle:
            self._stop(leaving)
        return leaving.left

    def assign(self, grant: int) -> tuple[RoleId, int]:
        """Choose the member that gets the ids of a grant's batch; returns its name and the sample id."""
        with self._lock:
            if not self._staying:
                raise InputError("there is no embedding worker: let one join first")
            member = self._staying.pop(0)
            self._staying.append(member)
            member.grants.add(grant)
            return member.name, sample_id(member.number, grant)

    def done(self, grant: int) -> None:
        """The gradients of a batch are on the shards."""
        _, parting = self._drop([grant])
        self._stop_all(parting)

    def release(self, grants: Iterable[int] | None = None) -> None:
        """Drop the ids of batches whose gradients will not arrive (None: of all batches)."""
        dropped, parting = self._drop(grants)
        for name, samples in dropped:
            try:
                asked = self._wire.request(name, Release(samples))
            except InputError:  # the client is closed: the roles end with the run
                return
            asked.add_done_callback(_log_fault)
        self._stop_all(parting)

    def _drop(self, grants: Iterable[int] | None) -> tuple[list[tuple[RoleId, tuple[int, ...]]], list[_LeavingMember]]:
        """By name, the sample ids that are not open any more; and members that may stop."""
        wanted = None if grants is None else set(grants)
        dropped: list[tuple[_Member, set[int]]] = []
        with self._lock:
            for member in self._members:
                mine = member.grants if wanted is None else member.grants & wanted
                if mine:
                    member.grants = member.grants - mine
                    dropped.append((member, mine))
            emptied = {member.name for member, _ in dropped if not member.grants}
            parting = [each for each in self._leaving if each.member.name in emptied]
        samples = [
            (each.name, tuple(sample_id(each.number, grant) for grant in sorted(mine))) for each, mine in dropped
        ]
        return samples, parting

    def _stop_all(self, parting: Iterable[_LeavingMember]) -> None:
        for each in parting:
            self._stop(each)

    def _stop(self, parting: _LeavingMember) -> None:
        """Stop a member whose batches are done; trainers drop its address."""
        member = parting.member
        with self._lock:
            self._leaving.remove(parting)
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
    if (fault := done.exception()) is not None:
        _log.warning("could not release cancelled batches: %s", fault)
