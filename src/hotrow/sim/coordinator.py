"""Runs a discipline: tells it events, attaches data to its grants, performs its effects. It takes no virtual time.

A worker asks only if there is a lease for it, which is reserved then; the first one reserved goes with the next grant.
Who asks in vain is told that its data ended, and joins again when a lease comes back.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

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
    Lost,
    Pushed,
    Ready,
    Resume,
    RunFacts,
)
from hotrow.sim.clock import Clock
from hotrow.sim.leases import SimLease, SimLeasePool
from hotrow.sim.meter import SimMeter
from hotrow.sim.observer import SimObserver
from hotrow.sim.tasks import SimPush, SimTask
from hotrow.sim.work import SimWork
from hotrow.staleness import Statistics

NOBODY: Mapping[int, int] = {}


class Performer(Protocol):
    """Does in virtual time what a discipline decided."""

    def begin(self, grant: Grant, lease: SimLease) -> SimTask:
        """A worker may start a batch."""

    def applied(self, effect: Apply, tasks: Sequence[SimTask]) -> None:
        """Parameters were changed, from the gradients of these batches; a merge in KStep has none of its own."""


class SimCoordinator:
    """One discipline at a time, and the data of the run."""

    def __init__(
        self,
        clock: Clock,
        pool: SimLeasePool,
        work: SimWork,
        meter: SimMeter,
        watchers: Sequence[SimObserver],
        samples: int,
    ) -> None:
        self._clock, self._pool, self._work, self._meter, self._watchers = clock, pool, work, meter, watchers
        self._samples_before = samples  # trained before this run
        self.performer: Performer
        self.discipline: Discipline
        self.mode: Mode
        self.facts: RunFacts
        self._most_held = 1
        self.statistics = Statistics()
        self.present: set[int] = set()  # workers that joined and were not lost
        self.unpushed = 0  # grants whose pushes are not all in
        self.draining = False
        self.grants = 0  # numbers used
        self.step = 0
        self._out: dict[int, SimTask] = {}  # by grant, until it is applied or dropped
        self._asks: dict[int, int] = {}  # worker -> asked and not granted; no entry is 0
        self._held: Counter[int] = Counter()  # worker -> granted and not pushed, in modes where it may hold several
        self._ended: set[int] = set()  # workers that asked in vain
        self._took_from_others = False  # a grant that nobody asked for took a lease that was reserved

    def start(self, mode: Mode, facts: RunFacts) -> None:
        """A mode begins to work; nothing is out."""
        self.discipline = mode.start(facts)  # which may refuse
        self.mode, self.facts, self.draining, self.step = mode, facts, False, facts.step
        self._most_held = mode.most_in_flight
        for watcher in self._watchers:
            watcher.started(self._clock.now_s, mode, facts)

    def stop(self) -> None:
        """The mode at work goes, after a drain; asking begins anew under the next one."""
        assert self.draining
        assert not self.unpushed
        self.statistics.told(self.discipline.counts, last=True)
        self._pool.release(self._pool.reserved)
        self._asks.clear()
        self._held.clear()
        self._ended.clear()
        self.present.clear()

    def tell(self, event: Event) -> None:
        """Let the discipline decide, and perform what it says."""
        effects = self.discipline.on(event)
        for watcher in self._watchers:
            watcher.took(self._clock.now_s, event, effects)
        if not effects:
            return
        self.statistics.take(event, effects, self._samples_lost(effects) if isinstance(event, Lost) else NOBODY)
        self.step = self.discipline.step
        for effect in effects:
            if isinstance(effect, Grant):
                self._grant(effect)
            elif isinstance(effect, Apply):
                self._apply(effect)
            elif isinstance(effect, Drop):
                self._drop(effect)
        if self._took_from_others:
            self._took_from_others = False
            self._take_back_asks()

    def join(self, worker: int) -> None:
        """A worker is there."""
        self.present.add(worker)
        self.tell(Joined(worker))

    def ask_for_all(self, worker: int) -> None:
        """A worker that holds nothing wants as many batches as it may hold."""
        for _ in range(self.mode.most_in_flight):
            self.ask(worker)

    def ask(self, worker: int) -> None:
        """A worker wants one more batch, if it may hold one more."""
        if self._most_held > 1 and self._held[worker] + self._asks.get(worker, 0) >= self._most_held:
            return
        if self._pool.reserve():
            if worker in self._ended:
                self._ended.discard(worker)
                self.tell(Joined(worker))
            self._asks[worker] = self._asks.get(worker, 0) + 1
            self.tell(Ready(worker))
        elif worker not in self._asks and worker not in self._ended:
            self._end(worker)

    def pushed(self, push: SimPush) -> None:
        """A copy of a push arrived, the first one or another."""
        task, group = push.task, push.group
        grant = task.grant
        pulled = task.rows_step if group == "embedding" else task.dense_step
        if not push.delivered:
            task.to_come -= 1
            if not task.to_come and not task.given_up:
                self._finish(grant.worker)
        self.tell(Pushed(group, grant.worker, grant.grant, grant.token, pulled, task.lease.samples))

    def lose(self, worker: int) -> None:
        """A worker is gone; others take over what it held."""
        self.present.discard(worker)
        self._ended.discard(worker)
        self._pool.release(self._asks.pop(worker, 0))
        self.tell(Lost(worker))
        self._expect_no_more(worker)
        while self._pool.has_returned and self._ended:
            self.ask(min(self._ended))

    def drain(self) -> None:
        """No more grants."""
        self.draining = True
        self.tell(Drain())

    def resume(self) -> None:
        """Go on after a drain."""
        self.draining = False
        self.tell(Resume())

    @property
    def at_end(self) -> bool:
        """Whether all data were dealt and all that was dealt is pushed."""
        return not self.unpushed and self._pool.exhausted

    def _expect_no_more(self, worker: int) -> None:
        """A grant that is not dropped although its worker is lost has all the pushes that it will ever have."""
        for task in [task for task in self._out.values() if task.to_come and task.grant.worker == worker]:
            self._finish(worker)
            task.given_up = True
            task.to_apply -= task.to_come
            if not task.to_apply:
                del self._out[task.grant.grant]
                self._work.discard(task.grant.grant)

    def _finish(self, worker: int) -> None:
        """A worker has one grant less to push for."""
        self.unpushed -= 1
        if self._most_held > 1:
            self._held[worker] -= 1

    def _end(self, worker: int) -> None:
        self._ended.add(worker)
        self.tell(Ended(worker))

    def _take_back_asks(self) -> None:
        """Where fewer leases are reserved than asked for, some that wait are told that there are none."""
        while (missing := sum(self._asks.values()) - self._pool.reserved) > 0:
            worker = max(self._asks)
            self._pool.release(max(0, self._asks.pop(worker) - missing))
            self._end(worker)

    def _samples_lost(self, effects: Sequence[Effect]) -> dict[int, int]:
        return {each.grant: self._out[each.grant].lease.samples for each in effects if isinstance(each, Drop)}

    def _grant(self, grant: Grant) -> None:
        worker = grant.worker
        asked = self._asks.pop(worker, 0)
        if asked > 1:
            self._asks[worker] = asked - 1
        lease = (self._pool.attach() if asked else None) or self._lease_without_asking(grant)
        self.grants = grant.grant
        self.unpushed += 1
        if self._most_held > 1:
            self._held[worker] += 1
        self._out[grant.grant] = self.performer.begin(grant, lease)

    def _lease_without_asking(self, grant: Grant) -> SimLease:
        lease = self._pool.take()
        if lease is None:
            self._took_from_others = True
            lease = self._pool.attach()
        assert lease is not None, f"grant {grant.grant} of worker {grant.worker}: there are no data left for it"
        return lease

    def _apply(self, effect: Apply) -> None:
        group, out = effect.group, self._out
        tasks: list[SimTask] = []
        if group != "dense" or self.mode.dense != "local":  # a merge has no batches of its own
            for part in effect.parts:
                task = out[part.grant]
                tasks.append(task)
                task.to_apply -= 1
                if not task.to_apply:
                    del out[part.grant]
        if group != "dense":  # in Hybrid the same samples come again with their dense gradients
            self._meter.applied(self._clock.now_s, effect.samples)
        ids = self._work.apply(effect, self._samples_before + self._meter.samples)
        if ids is not None:
            self.statistics.add_ids(ids)
        self.performer.applied(effect, tasks)
        for task in tasks:
            if task.given_up and not task.to_apply:
                self._work.discard(task.grant.grant)

    def _drop(self, effect: Drop) -> None:
        task = self._out.pop(effect.grant)
        task.given_up = True
        self._work.discard(effect.grant)
        if effect.reason != "late":
            self._finish(task.grant.worker)
            self._pool.give_back(task.lease)
