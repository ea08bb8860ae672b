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
from hotrow.runtime.cluster.leaving import forget_when_stopped, uncancellable_future
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.ids import sample_id
from hotrow.transport.messages import Meet, Query, QueryReply, Release, Stop

_log = logging.getLogger("hotrow.runtime")


@dataclass(slots=True, eq=False)
class _Member:
    name: str
    number: int
    address: str
    grants: set[int] = field(default_factory=set)  # whose gradients have not come
    leaving: "Future[None] | None" = None


class EmbeddingWorkers:
    """Known to the coordinator's wire by name, and to trainers by number."""

    def __init__(self, wire: RpcClient, trainers: Sequence[str]) -> None:
        self._wire, self._trainers = wire, list(trainers)
        self._lock = threading.Lock()
        self._meeting = threading.Lock()  # of somebody new with all others: one at a time, so that nobody misses one
        self._members: list[_Member] = []  # who is first is next

    @property
    def names(self) -> list[str]:
        """Members that get batches."""
        with self._lock:
            return sorted(each.name for each in self._members if each.leaving is None)

    def join(self, name: str, address: str) -> None:
        """Add a member; it gets batches once all trainers know its address."""
        self._wire.connect(name, address, near=True)
        told = self._wire.ask(name, Query("ready")).result().message
        if not isinstance(told, QueryReply) or "number" not in told.figures:
            raise InputError(f"{name} at {address} is no embedding worker: it answered {type(told).__name__}")
        number = int(told.figures["number"])
        with self._meeting:
            with self._lock:
                if any(number == each.number or name == each.name for each in self._members):
                    raise ConfigError(f"number={number} of {name}: is there already, embedding workers need their own")
                trainers = list(self._trainers)
            for trainer in trainers:
                self._meet(trainer, Meet(number, address))
            with self._lock:
                self._members.append(_Member(name, number, address))

    def _meet(self, trainer: str, word: Meet) -> None:
        """Tell one trainer; a fault counts only while the trainer is a member."""
        try:
            self._wire.ask(trainer, word).result()
        except HotrowError:
            with self._lock:
                if trainer in self._trainers:
                    raise

    def add_trainer(self, trainer: str) -> None:
        """Tell a new trainer the addresses of all members, and of those that join later."""
        with self._meeting:
            with self._lock:  # so that nobody who leaves is forgotten by it before it was met
                self._trainers.append(trainer)
                met = [self._wire.ask(trainer, Meet(each.number, each.address)) for each in self._members]
            for asked in met:
                asked.result()

    def forget_trainer(self, trainer: str) -> None:
        """Remove a trainer that leaves."""
        with self._lock:
            if trainer in self._trainers:
                self._trainers.remove(trainer)

    def leave(self, name: str, before: Callable[[], None] = lambda: None) -> "Future[None]":
        """No new batches for this one; what comes back is done when it has stopped.

        `before` is called before it can be told to.
        """
        with self._lock:
            staying = [each for each in self._members if each.leaving is None]
            found = next((each for each in staying if each.name == name), None)
            if found is None:
                there = ", ".join(each.name for each in staying) or "none"
                raise InputError(f"{name!r}: there is no such embedding worker; there are: {there}")
            if len(staying) == 1:
                raise InputError(f"{name!r}: is the last embedding worker, trainers need one: let another join first")
            before()
            left = uncancellable_future()
            found.leaving = left
            idle = not found.grants
        if idle:
            self._part(found)
        return left

    def assign(self, grant: int) -> tuple[str, int]:
        """Choose the member that gets the ids of a grant's batch; returns its name and the sample id."""
        with self._lock:
            for place, member in enumerate(self._members):
                if member.leaving is None:
                    self._members.append(self._members.pop(place))
                    member.grants.add(grant)
                    return member.name, sample_id(member.number, grant)
        raise InputError("there is no embedding worker: let one join first")

    def done(self, grant: int) -> None:
        """The gradients of a batch are on the shards."""
        _, parting = self._drop([grant])
        self._part_all(parting)

    def release(self, grants: Iterable[int] | None = None) -> None:
        """Free the ids of batches whose gradients will not come (None: of all batches)."""
        dropped, parting = self._drop(grants)
        for name, samples in dropped:
            try:
                asked = self._wire.ask(name, Release(samples))
            except InputError:  # the wire is closed: who serves this run ends with it
                return
            asked.add_done_callback(_say_fault)
        self._part_all(parting)

    def _drop(self, grants: Iterable[int] | None) -> tuple[list[tuple[str, tuple[int, ...]]], list[_Member]]:
        """By name, the sample ids that are open no more; and who may part."""
        wanted = None if grants is None else set(grants)
        dropped, parting = [], []
        with self._lock:
            for member in self._members:
                mine = member.grants if wanted is None else member.grants & wanted
                if mine:
                    dropped.append((member.name, tuple(sample_id(member.number, each) for each in sorted(mine))))
                    member.grants = member.grants - mine
                    if member.leaving is not None and not member.grants:
                        parting.append(member)
        return dropped, parting

    def _part_all(self, members: Iterable[_Member]) -> None:
        for member in members:
            self._part(member)

    def _part(self, member: _Member) -> None:
        """All its batches are done: it stops, and trainers forget it."""
        with self._lock:
            self._members.remove(member)
            trainers = list(self._trainers)
        assert member.leaving is not None
        try:
            asked = [self._wire.ask(member.name, Stop())]
            for trainer in trainers:
                asked += self._ask_if_there(trainer, Meet(member.number, None))
        except HotrowError as fault:  # often in the wire's thread, where nobody else would hear of it
            member.leaving.set_exception(fault)
            return
        forget_when_stopped(self._wire, member.name, asked, member.leaving)

    def _ask_if_there(self, trainer: str, word: Meet) -> "list[Future[Answer]]":
        """Nothing of a trainer that has left meanwhile."""
        try:
            return [self._wire.ask(trainer, word)]
        except InputError:
            with self._lock:
                if trainer in self._trainers:
                    raise
            return []


def _say_fault(done: "Future[Answer]") -> None:
    if (fault := done.exception()) is not None:
        _log.warning("could not release cancelled batches: %s", fault)
