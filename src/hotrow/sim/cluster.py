"""A cluster in virtual time: real disciplines, real or counted work, simulated speeds, network and faults.

One seed gives one run:

cluster = SimCluster(GBA(tolerance=4), ClusterConfig(workers=100, local_batch=1000), data=10_000_000, seed=7)
    result = cluster.run()
"""

from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf

from hotrow.errors import InputError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.sim.clock import Clock
from hotrow.sim.config import ClusterConfig
from hotrow.sim.coordinator import SimCoordinator
from hotrow.sim.leases import Counted, SimLeasePool, SimSource
from hotrow.sim.meter import SimMeter
from hotrow.sim.observer import SimObserver
from hotrow.sim.result import WINDOWS, SimResult, worker_result
from hotrow.sim.work import CachingWork, CountingWork, SimWork
from hotrow.sim.workers import OnBatch, SimWorkers
from hotrow.sizes import number_text

OnStep = Callable[[float, int], None]


@dataclass(frozen=True, slots=True)
class _Change:
    """The change after a drain; without a mode the active one continues."""

    mode: Mode | None = None
    workers: int | None = None
    local_batch: int | None = None

    def facts(self, before: RunFacts) -> RunFacts:
        given = {"workers": self.workers, "local_batch": self.local_batch}
        return replace(before, **{name: value for name, value in given.items() if value is not None})


class SimCluster:
    """Workers, servers and one discipline at a time.

    `data` is a number of samples, or a source of real batches for a `work` that computes. `on_step(time_s, step)` is
    called after each dense step and `on_batch(observation)` for each batch whose gradients arrived; they may call
    `switch`. `step` and `samples` are those of the training that this run continues.
    """

    def __init__(
        self,
        mode: Mode,
        config: ClusterConfig,
        *,
        data: int | SimSource,
        work: SimWork | None = None,
        seed: int = 0,
        step: int = 0,
        samples: int = 0,
        watchers: Sequence[SimObserver] = (),
        on_step: OnStep | None = None,
        on_batch: OnBatch | None = None,
    ) -> None:
        facts = replace(config.facts, step=step)
        mode.check(facts)
        work = CountingWork() if work is None else work
        self.config, self._work = config, work
        self._clock = Clock()
        self._meter = SimMeter(config.lanes)
        self._pool = SimLeasePool(Counted(data) if isinstance(data, int) else data, config.local_batch)
        self._coordinator = SimCoordinator(
            self._clock,
            self._pool,
            work,
            self._meter,
            watchers,
            samples,
            lambda made: SimWorkers(self._clock, config, made, work, self._meter, seed, on_batch),
            mode,
            facts,
        )
        self._workers = self._coordinator.workers
        self._on_step = on_step
        self._first_step = self._told_step = step
        self._facts_planned, self._planned_s = facts, 0.0  # after the last planned change
        self._changes: deque[_Change] = deque()  # the first one is draining, the others wait
        self._samples_most = inf
        self._finished = False
        self._workers.change(mode, facts)
        self._clock.at(0.0, self._open, None)
        self._workers.expect(config.faults)

    @property
    def now_s(self) -> float:
        """Virtual time."""
        return self._clock.now_s

    @property
    def mode(self) -> Mode:
        """The active mode."""
        return self._coordinator.loop.mode

    @property
    def facts(self) -> RunFacts:
        """The facts that the active mode was started with."""
        return self._coordinator.loop.facts

    def run(self, *, until_samples: int | None = None, until_s: float | None = None) -> SimResult:
        """Run until so many samples are applied, until a time, or until the data ends; a next call continues."""
        self._samples_most = inf if until_samples is None else until_samples
        self._clock.run(inf if until_s is None else until_s, self._done)
        return self.result()

    def switch(
        self, mode: Mode, *, workers: int | None = None, local_batch: int | None = None, at_s: float | None = None
    ) -> None:
        """Drain, now or at a time, then continue in another mode; with other workers and local batch if given."""
        change = _Change(mode, workers, local_batch)
        facts = change.facts(self._facts_planned)
        mode.check(facts)
        self._plan(change, at_s)
        self._facts_planned = facts

    def rest(self, *, at_s: float | None = None) -> None:
        """Drain, now or at a time, and continue: as for a checkpoint."""
        self._plan(_Change(), at_s)

    def result(self) -> SimResult:
        """Figures up to now."""
        now_s, meter, coordinator = self._clock.now_s, self._meter, self._coordinator
        coordinator.statistics.update(coordinator.loop.discipline.counts)
        if isinstance(self._work, CachingWork):
            coordinator.statistics.add_counts(self._work.take_counts())
        return SimResult(
            seconds=now_s,
            finished=self._finished,
            steps=coordinator.loop.step - self._first_step,
            samples_applied=meter.samples,
            rates=meter.rate.windows(now_s, self.config.window_s or now_s / WINDOWS),
            workers={number: worker_result(meter.efforts[number], now_s) for number in sorted(meter.efforts)},
            statistics=deepcopy(coordinator.statistics),
            lanes=tuple(meter.lanes),
            lanes_left_out=meter.lanes_left_out,
            row_bytes=meter.row_bytes,
        )

    def _plan(self, change: _Change, at_s: float | None) -> None:
        time_s = self.now_s if at_s is None else at_s
        if time_s < max(self.now_s, self._planned_s):
            now, planned = number_text(self.now_s), number_text(self._planned_s)
            last = f"it is {now} s, and the change before is planned for {planned} s"
            raise InputError(f"at_s={number_text(time_s)}: changes are planned one after the other; {last}")
        self._planned_s = time_s
        self._clock.at(time_s, self._changes.append, change)

    def _open(self, nothing: None) -> None:
        self._workers.join_all()

    def _done(self) -> bool:
        """Between two actions: report steps, and perform waiting changes once all is at rest."""
        coordinator = self._coordinator
        while self._told_step < coordinator.loop.step:
            self._told_step += 1
            if self._on_step is not None:
                self._on_step(self._clock.now_s, self._told_step)
        if self._changes and not coordinator.loop.draining:
            coordinator.loop.drain()
        if not coordinator.loop.unpushed and not self._finished:
            self._at_rest()
        return self._finished or self._meter.samples >= self._samples_most

    def _at_rest(self) -> None:
        """Nothing is being computed or sent, except by caches, which write their changes back first."""
        coordinator = self._coordinator
        if not (self._changes or coordinator.at_end) or not self._workers.flushed():
            return
        self._workers.resumed()
        if self._changes:
            self._make(self._changes.popleft())
        if coordinator.at_end and not self._changes:
            self._finished = True
            coordinator.loop.drain()

    def _make(self, change: _Change) -> None:
        coordinator, loop = self._coordinator, self._coordinator.loop
        if change.mode is None:
            loop.resume()
            return
        facts = replace(change.facts(loop.facts), step=loop.step, grants=loop.grants)
        coordinator.stop()
        if facts.local_batch != loop.facts.local_batch:
            self._pool.resize(facts.local_batch)
        self._workers.change(change.mode, facts, members=change.workers)
        coordinator.start(change.mode, facts)
        self._workers.join_all()
