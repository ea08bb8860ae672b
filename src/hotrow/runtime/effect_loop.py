"""One mode at work: events go to its discipline, leases to its grants, its effects to a performer.

The training loop and the simulator share it; only the performer differs. A worker asks for a batch when a lease is
reserved for it, and the first lease reserved goes with the next grant. A worker without a lease is told `Ended`, and
joins again when a lease comes back.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from hotrow.modes import Mode
from hotrow.modes.base import (
    Apply,
    Drain,
    Drop,
    Effect,
    Ended,
    Event,
    Grant,
    Joined,
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
        """Leases kept for workers that asked."""

    def reserve(self) -> bool:
        """Keep one more lease for a worker; False where there is none."""

    def attach(self) -> GivenT | None:
        """Hand out the first reserved lease."""

    def take(self) -> GivenT | None:
        """Hand out a lease that nobody reserved."""

    def release(self, count: int) -> None:
        """Return the last `count` reserved leases."""


class Performer(Protocol[TakenT]):
    """Performs the effects of a mode. `settle` follows after the last effect of an event."""

    def observe(self, event: Event, effects: Sequence[Effect]) -> None:
        """See a decision before it is performed."""

    def begin(self, grant: Grant, lease: TakenT) -> None:
        """Let a worker start a batch."""

    def apply(self, effect: Apply) -> None:
        """Change parameters."""

    def drop(self, effect: Drop) -> None:
        """Forget a batch."""

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
        leases: LeasePool[LeaseT],
        statistics: Statistics,
    ) -> None:
        self.mode, self.facts = mode, facts
        self.discipline = mode.start(facts)  # which may refuse
        self.statistics = statistics
        self.present: set[int] = set()  # workers that joined and were not lost
        self.unpushed = 0  # grants whose pushes are not all in
        self.draining = False
        self.grants = facts.grants  # numbers used
        self.leases = leases
        self.performer: Performer[LeaseT]  # set before the first event
        self._most_held = mode.most_in_flight
        self._asks: dict[int, int] = {}  # worker -> asked and not granted; no entry is 0
        self._held: Counter[int] = Counter()  # worker -> granted and not pushed
        self._ended: set[int] = set()  # workers that asked in vain
        self._took_from_others = False  # a grant that nobody asked for took a lease that was reserved

    @property
    def step(self) -> int:
        """Dense steps closed so far."""
        return self.discipline.step

    @property
    def with_data(self) -> list[int]:
        """Workers that were not told `Ended`, in the order of their numbers."""
        return sorted(self.present - self._ended)

    def holds(self, worker: int) -> bool:
        """Whether a worker has a batch that is not pushed."""
        return self._held[worker] > 0

    def tell(self, event: Event) -> None:
        """Let the discipline decide, and perform its effects."""
        effects = self.discipline.on(event)
        self.performer.observe(event, effects)
        if effects:
            lost = self._samples_lost(effects) if isinstance(event, Lost) else NO_GRANTS
            self.statistics.take(event, effects, lost)
            for effect in effects:
                if isinstance(effect, Grant):
                    self._grant(effect)
                elif isinstance(effect, Apply):
                    self.performer.apply(effect)
                elif isinstance(effect, Drop):
                    self.performer.drop(effect)
        self.performer.settle()
        if self._took_from_others:
            self._took_from_others = False
            self._take_back_asks()

    def join(self, worker: int) -> None:
        """A worker is there."""
        self.present.add(worker)
        self.tell(Joined(worker))

    def ask_for_all(self, worker: int) -> None:
        """Ask for as many batches as the worker may hold."""
        for _ in range(self._most_held):
            self.ask(worker)

    def ask(self, worker: int) -> None:
        """Ask for one more batch, if the worker may hold one more."""
        if self.may_ask(worker):
            self.asked(worker, reserved=self.leases.reserve())

    def may_ask(self, worker: int) -> bool:
        """Whether a worker may hold one more batch."""
        return self._held[worker] + self._asks.get(worker, 0) < self._most_held

    def asked(self, worker: int, *, reserved: bool) -> None:
        """A worker asked for a batch, and a lease was reserved for it or not."""
        if reserved:
            if worker in self._ended:
                self._ended.discard(worker)
                self.tell(Joined(worker))
            self._asks[worker] = self._asks.get(worker, 0) + 1
            self.tell(Ready(worker))
        elif self.waits_for_data(worker):
            self._end(worker)

    def waits_for_data(self, worker: int) -> bool:
        """Whether a worker without a lease has to be told `Ended`."""
        return worker not in self._asks and worker not in self._ended

    def finish(self, worker: int) -> None:
        """A worker has one grant less to push for."""
        self.unpushed -= 1
        self._held[worker] -= 1

    def lose(self, worker: int) -> None:
        """A worker is gone; others take over what it asked for."""
        self.present.discard(worker)
        self._ended.discard(worker)
        self.leases.release(self._asks.pop(worker, 0))
        self.tell(Lost(worker))

    def leave(self, worker: int) -> None:
        """A worker that holds no batch goes; others join again where it gives back a lease."""
        waited = self._asks.pop(worker, 0)
        self.leases.release(waited)
        if worker not in self._ended:
            self.tell(Ended(worker))
        self._ended.discard(worker)
        self.present.discard(worker)
        if waited:
            self.call_back()

    def call_back(self) -> None:
        """There is data for workers that were told `Ended`."""
        ended, self._ended = self._ended, set()
        for worker in sorted(ended):
            self.tell(Joined(worker))

    def first_ended(self) -> int | None:
        """The first worker that asked in vain."""
        return min(self._ended, default=None)

    def drain(self) -> None:
        """No more grants."""
        self.draining = True
        self.tell(Drain())

    def resume(self) -> None:
        """Grant again after a drain."""
        self.draining = False
        self.tell(Resume())

    def close(self) -> None:
        """End the mode: what was reserved goes back, and the discipline's counts are final."""
        self.leases.release(self.leases.reserved)
        self.statistics.told(self.discipline.counts, last=True)

    def _end(self, worker: int) -> None:
        self._ended.add(worker)
        self.tell(Ended(worker))

    def _grant(self, grant: Grant) -> None:
        worker = grant.worker
        asked = self._asks.pop(worker, 0)
        if asked > 1:
            self._asks[worker] = asked - 1
        lease = (self.leases.attach() if asked else None) or self._lease_without_asking(grant)
        self.grants = grant.grant
        self.unpushed += 1
        self._held[worker] += 1
        self.performer.begin(grant, lease)

    def _lease_without_asking(self, grant: Grant) -> LeaseT:
        lease = self.leases.take()
        if lease is None:
            self._took_from_others = True
            lease = self.leases.attach()
        assert lease is not None, f"grant {grant.grant} of worker {grant.worker}: there are no data left for it"
        return lease

    def _take_back_asks(self) -> None:
        """Where fewer leases are reserved than asked for, some workers that wait are told `Ended`."""
        while (missing := sum(self._asks.values()) - self.leases.reserved) > 0:
            worker = max(self._asks)
            self.leases.release(max(0, self._asks.pop(worker) - missing))
            self._end(worker)

    def _samples_lost(self, effects: Sequence[Effect]) -> dict[int, int]:
        return {each.grant: self.performer.samples_of(each.grant) for each in effects if isinstance(each, Drop)}
