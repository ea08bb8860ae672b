"""Performs the effects of a mode in virtual time: open batches, applied steps, dropped grants.

The effect loop, the same as in training, decides and hands out leases. It takes no virtual time.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hotrow.modes import Mode
from hotrow.modes.base import Apply, Drop, Effect, Event, Grant, Pushed, RunFacts
from hotrow.runtime.effect_loop import EffectLoop
from hotrow.sim.clock import Clock
from hotrow.sim.leases import SimLease, SimLeasePool
from hotrow.sim.meter import SimMeter
from hotrow.sim.observer import SimObserver
from hotrow.sim.tasks import SimPush, SimTask
from hotrow.sim.work import SimWork
from hotrow.staleness import Statistics

if TYPE_CHECKING:  # it imports the coordinator
    from hotrow.sim.workers import SimWorkers


class SimCoordinator:
    """One mode after the other, and the batches of the run."""

    def __init__(
        self,
        clock: Clock,
        pool: SimLeasePool,
        work: SimWork,
        meter: SimMeter,
        observers: Sequence[SimObserver],
        samples: int,
        workers: "Callable[[SimCoordinator], SimWorkers]",
        mode: Mode,
        facts: RunFacts,
    ) -> None:
        """`workers` makes the workers, which report to this coordinator; it begins in a mode."""
        self._clock, self._pool, self._work, self._meter, self._observers = clock, pool, work, meter, observers
        self._samples_before = samples  # trained before this run
        self.statistics = Statistics()
        self._out: dict[int, SimTask] = {}  # by grant, until it is applied or dropped
        self.workers = workers(self)
        self.start(mode, facts)

    @property
    def at_end(self) -> bool:
        """Whether all data was handed out and pushed."""
        return not self.loop.unpushed and self._pool.exhausted

    def start(self, mode: Mode, facts: RunFacts) -> None:
        """Open a mode; no batch is open."""
        self.loop = EffectLoop(mode, facts, mode.start(facts), self._pool, self, self.statistics)
        for observer in self._observers:
            observer.started(self._clock.now_s, mode, facts)

    def stop(self) -> None:
        """Close the mode after a drain."""
        assert self.loop.draining
        assert not self.loop.unpushed
        self.loop.close()

    def pushed(self, push: SimPush) -> None:
        """A copy of a push arrived, the first one or another."""
        task, group = push.task, push.group
        grant = task.grant
        pulled = task.rows_step if group == "embedding" else task.dense_step
        if not push.delivered:
            task.to_come -= 1
            if not task.to_come and not task.given_up:
                self.loop.finish(grant.worker)
        self.loop.handle(Pushed(group, grant.worker, grant.grant, grant.token, pulled, task.lease.samples))

    def lose(self, worker: int) -> None:
        """Remove a worker; others take over its batches."""
        self.loop.lose(worker)
        self._expect_no_more(worker)
        while self._pool.has_returned and (ended := self.loop.first_ended()) is not None:
            self.loop.request_batch(ended)

    def lose_shard(self, shard: int) -> None:
        """The process of a shard ended. Where gradients of a common step are parked, it is cut, as on a cluster."""
        self.statistics.add_counts({"shards_lost": 1})
        self._work.lose_shard(shard)
        if self.loop.mode.dense != "server" and self.loop.mode.on_arrival(self.loop.facts, 1) is None:
            self._cut()

    def _cut(self) -> None:
        """Deal all open batches again, and start the mode anew."""
        for observer in self._observers:
            observer.cut(self._clock.now_s)
        loop, tasks = self.loop, list(self._out.values())
        self._out.clear()
        ended = [task for task in tasks if task.applied == "dense"]  # without rows, which were on the way
        ahead = [task.lease.samples for task in tasks if task.applied == "embedding"]
        self._meter.take_back(self._clock.now_s, sum(ahead))
        self.statistics.add_counts({"steps_cut": 1, "rows_applied_twice": len(ahead), "lost_pushes": len(ended)})
        self.statistics.drop("lost", [task.lease.samples for task in tasks if task.applied is None])
        for task in tasks:
            task.given_up = True
            self.workers.dropped(task)
            self._work.discard(task.grant.grant)
            if task not in ended:
                self._pool.give_back(task.lease)
        loop.close()
        facts = replace(loop.facts, step=loop.step, grants=loop.grants)
        self.workers.change(loop.mode, facts)
        self.start(loop.mode, facts)
        self.workers.join_all()

    # The performer of the effect loop.

    def observe(self, event: Event, effects: Sequence[Effect]) -> None:
        for observer in self._observers:
            observer.took(self._clock.now_s, event, effects)

    def begin(self, grant: Grant, lease: SimLease) -> None:
        self._out[grant.grant] = self.workers.begin(grant, lease)

    def apply(self, effect: Apply, samples: int) -> None:
        group, out = effect.group, self._out
        tasks: list[SimTask] = []
        if group != "dense" or self.loop.mode.dense != "local":  # a merge has no batches of its own
            for part in effect.parts:
                task = out[part.grant]
                tasks.append(task)
                task.to_apply -= 1
                task.applied = group
                if not task.to_apply:
                    del out[part.grant]
        if samples:
            self._meter.applied(self._clock.now_s, samples)
        applied = self._work.apply(effect, self._samples_before + self._meter.samples)
        if applied is not None:
            self.statistics.add_ids(applied.ids)
            self.statistics.correct_weights(applied.weights)
            self.statistics.add_counts(applied.undone)
        self.workers.applied(effect, tasks)
        for task in tasks:
            if task.given_up and not task.to_apply:
                self._work.discard(task.grant.grant)

    def drop(self, effect: Drop) -> int | None:
        task = self._out.pop(effect.grant)
        task.given_up = True
        self.workers.dropped(task)
        self._work.discard(effect.grant)
        if effect.reason == "late":
            return None
        self._pool.give_back(task.lease)
        return task.grant.worker

    def samples_of(self, grant: int) -> int:
        return self._out[grant].lease.samples

    def settle(self) -> None:
        """All effects of an event are performed."""
        self.workers.settle()

    def _expect_no_more(self, worker: int) -> None:
        """A grant that is not dropped although its worker is lost has all the pushes that it will ever have."""
        for task in [task for task in self._out.values() if task.to_come and task.grant.worker == worker]:
            self.loop.finish(worker)
            task.given_up = True
            task.to_apply -= task.to_come
            if not task.to_apply:
                del self._out[task.grant.grant]
                self._work.discard(task.grant.grant)
