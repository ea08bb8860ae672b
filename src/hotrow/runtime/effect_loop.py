"""One mode: events go to its discipline, leases to its grants, its effects to a performer.

The training loop and the simulator share it; only the performer differs. A worker requests a batch when a lease is
reserved for it, and the first lease reserved goes with the next grant. A worker without a lease gets the event `Ended`,
and joins again when a lease is returned.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from hotrow.errors import InputError
from hotrow.modes import Mode
from hotrow.modes.base import (
    Apply,
    Discipline,
    Drain,
    Drop,
    Effect,
    Ended,
    Event,
    Grant,
    Joined,
    LookAhead,
    Lost,
    Ready,
    Resume,
    RunFacts,
)
from hotrow.staleness import Statistics

LeaseT = TypeVar("LeaseT")
GivenT = TypeVar("GivenT", covariant=True)
TakenT = TypeVar("TakenT", contravariant=True)
NO_GRANTS: Mapping[int, int] = {}


class LeasePool(Protocol[GivenT]):
    """Leases that are not attached to a grant."""

    @property
    def reserved(self) -> int:
        """Leases reserved for workers."""

    def reserve(self) -> bool:
        """Reserve one more lease for a worker; False where there is none."""

    def attach(self) -> GivenT | None:
        """Hand out the first reserved lease."""

    def take(self) -> GivenT | None:
        """Hand out a lease that is not reserved."""

    def release(self, count: int) -> None:
        """Return the last `count` reserved leases."""


class Performer(Protocol[TakenT]):
    """Performs the effects of a mode. `settle` follows after the last effect of an event."""

    def observe(self, event: Event, effects: Sequence[Effect]) -> None:
        """Called before a decision is performed."""

    def begin(self, grant: Grant, lease: TakenT) -> None:
        """Start a batch on a worker."""

    def apply(self, effect: Apply, samples: int) -> None:
        """Change parameters. `samples` are new ones: 0 where another group of the same batches has counted them."""

    def drop(self, effect: Drop) -> int | None:
        """Drop a batch; returns its worker where it is not pushed: its lease is returned."""

    def samples_of(self, grant: int) -> int:
        """Samples of a batch whose grant may be dropped without a push."""

    def settle(self) -> None:
        """All effects of an event are performed."""


class EffectLoop(Generic[LeaseT]):
    """Feeds one discipline, from the first `Joined` to the last `Drain`."""

    def __init__(
        self,
        mode: Mode,
        facts: RunFacts,
        discipline: Discipline,
        leases: LeasePool[LeaseT],
        performer: Performer[LeaseT],
        statistics: Statistics,
    ) -> None:
        """`discipline`: of the mode, started with these facts."""
        self.mode, self.facts, self.discipline = mode, facts, discipline
        self.performer, self.statistics = performer, statistics
        self.present: set[int] = set()  # workers that joined and were not lost
        self.unpushed = 0  # grants whose pushes are not all in
        self.draining = False
        self.grants = facts.grants  # numbers used
        self.leases = leases
        self._most_held, self._first_group = mode.most_held(facts, mode.first_look_ahead), mode.groups[0]
        self._requested: dict[int, int] = {}  # worker -> batches requested and not granted; no entry is 0
        self._held: Counter[int] = Counter()  # worker -> granted and not pushed
        self._ended: set[int] = set()  # workers that found no data
        self._free: set[int] = set()  # workers that may hold one more batch, but for those that found no data
        self._took_from_others = False  # a grant without a request took a reserved lease

    @property
    def step(self) -> int:
        """Dense steps closed so far."""
        return self.discipline.step

    @property
    def with_data(self) -> list[int]:
        """Workers without an `Ended`, in the order of their numbers."""
        return sorted(self.present - self._ended)

    @property
    def free(self) -> list[int]:
        """Workers to request batches for, in the order of their numbers. One that found no data waits for some."""
        return sorted(self._free)

    def holds(self, worker: int) -> bool:
        """Whether a worker has a batch that is not pushed."""
        return self._held[worker] > 0

    def handle(self, event: Event) -> None:
        """Pass an event to the discipline, and perform its effects."""
        effects, performer = self.discipline.on(event), self.performer
        performer.observe(event, effects)
        if not effects:
            return
        lost = self._samples_lost(effects) if isinstance(event, Lost) else NO_GRANTS
        self.statistics.take(event, effects, lost)
        for effect in effects:
            if isinstance(effect, Grant):
                self._grant(effect)
            elif isinstance(effect, Apply):
                performer.apply(effect, effect.samples if effect.group == self._first_group else 0)
            elif isinstance(effect, Drop) and (worker := performer.drop(effect)) is not None:
                self.finish(worker)
        performer.settle()
        if self._took_from_others:
            self._took_from_others = False
            self._withdraw_requests()

    def join(self, worker: int) -> None:
        """Add a worker."""
        self.present.add(worker)
        self._free.add(worker)
        self.handle(Joined(worker))

    def request_batches(self, worker: int) -> None:
        """Request as many batches as the worker may hold."""
        for _ in range(self._most_held):
            self.request_batch(worker)

    def request_batch(self, worker: int) -> None:
        """Request one more batch, if the worker may hold one more."""
        if self.may_request(worker):
            self.requested(worker, self.leases.reserve())

    def may_request(self, worker: int) -> bool:
        """Whether a worker may hold one more batch."""
        return self._held[worker] + self._requested.get(worker, 0) < self._most_held

    def requested(self, worker: int, reserved: bool) -> None:
        """A worker requested a batch, and a lease was reserved for it or not."""
        if reserved:
            if self._ended:  # there is data again
                self._free |= self._ended
                if worker in self._ended:
                    self._ended.discard(worker)
                    self.handle(Joined(worker))
            self._requested[worker] = self._requested.get(worker, 0) + 1
            self.handle(Ready(worker))
        if not reserved or not self.may_request(worker):
            self._free.discard(worker)
        if not reserved and self._waits_for_data(worker):
            self._end(worker)

    def _waits_for_data(self, worker: int) -> bool:
        """Whether a worker without a lease has to get `Ended`."""
        return worker not in self._requested and worker not in self._ended

    def finish(self, worker: int) -> None:
        """A worker has one grant less to push for."""
        self.unpushed -= 1
        self._held[worker] -= 1
        if worker in self.present:
            self._free.add(worker)

    def lose(self, worker: int) -> None:
        """Remove a lost worker; others take over its requests."""
        self.present.discard(worker)
        self._ended.discard(worker)
        self._free |= self.present  # to those that found no data: leases are returned
        self._free.discard(worker)
        self.leases.release(self._requested.pop(worker, 0))
        self.handle(Lost(worker))

    def leave(self, worker: int) -> None:
        """Remove a worker that holds no batch; others join again where it returns a lease."""
        waited = self._requested.pop(worker, 0)
        self.leases.release(waited)
        if worker not in self._ended:
            self.handle(Ended(worker))
        self._ended.discard(worker)
        self.present.discard(worker)
        self._free.discard(worker)
        if waited:
            self.rejoin()

    def rejoin(self) -> None:
        """Let workers that got `Ended` join again: there is data."""
        ended, self._ended = self._ended, set()
        self._free |= self.present
        for worker in sorted(ended):
            self.handle(Joined(worker))

    def first_ended(self) -> int | None:
        """The first worker that found no data."""
        return min(self._ended, default=None)

    def look_ahead(self, steps: int) -> None:
        """Grant so many steps ahead from now on, in a mode that supports it.

        Workers may hold as many batches as before, at least: one that holds a batch of a step ahead may have to take
        over a lost one of the open step.
        """
        self._most_held = max(self._most_held, self.mode.most_held(self.facts, steps))
        self._free |= self.present - self._ended
        self.handle(LookAhead(steps))

    def drain(self) -> None:
        """Stop granting batches."""
        self.draining = True
        self.handle(Drain())

    def resume(self) -> None:
        """Grant again after a drain."""
        self.draining = False
        self.handle(Resume())

    def close(self) -> None:
        """End the mode: reserved leases are returned, and the discipline's counts are final."""
        self.leases.release(self.leases.reserved)
        self.statistics.update(self.discipline.counts, last=True)

    def _end(self, worker: int) -> None:
        self._ended.add(worker)
        self.handle(Ended(worker))

    def _grant(self, grant: Grant) -> None:
        worker = grant.worker
        asked = self._requested.pop(worker, 0)
        if asked > 1:
            self._requested[worker] = asked - 1
        lease = (self.leases.attach() if asked else None) or self._lease_without_request(grant)
        self.grants = grant.grant
        self.unpushed += 1
        self._held[worker] += 1
        self.performer.begin(grant, lease)

    def _lease_without_request(self, grant: Grant) -> LeaseT:
        lease = self.leases.take()
        if lease is None:
            self._took_from_others = True
            lease = self.leases.attach()
        if lease is None:
            message = f"mode {self.mode.name!r} made grant {grant.grant} for worker {grant.worker} without a request"
            raise InputError(f"{message}, and no data is left for it: grant what workers request")
        return lease

    def _withdraw_requests(self) -> None:
        """Where fewer leases are reserved than requested, some waiting workers get `Ended`."""
        while (missing := sum(self._requested.values()) - self.leases.reserved) > 0:
            worker = max(self._requested)
            self.leases.release(max(0, self._requested.pop(worker) - missing))
            self._free |= self.present
            self._end(worker)

    def _samples_lost(self, effects: Sequence[Effect]) -> dict[int, int]:
        return {each.grant: self.performer.samples_of(each.grant) for each in effects if isinstance(each, Drop)}
