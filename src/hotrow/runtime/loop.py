"""The loop of a run: events go to a discipline, its effects to those who hold parameters and those who compute.

Where that takes place is the site's: this process, or a cluster. Values are read when a batch is granted. In Sync that
is after the step before is applied, so a step is exactly what one torch model with all rows would do on the whole
global batch.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease
from hotrow.modes import Mode, Sync
from hotrow.modes.base import Drain, Ended, Event, Joined, Ready, Resume, RunFacts
from hotrow.runtime.active_mode import Account, Coordinator, EventResult, StepResult
from hotrow.runtime.backend import Backend
from hotrow.runtime.clock import RunClock
from hotrow.runtime.executors import BatchResult, Executor
from hotrow.runtime.interrupts import defer_sigint, deliver_pending_sigint
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.membership import Membership, ScaleRequest
from hotrow.runtime.observer import ModeObserver, notify, observation
from hotrow.staleness import Statistics


class TrainingLoop:
    """A model and its tables, trained by the workers of a site in a mode."""

    def __init__(
        self,
        site: Backend,
        account: Account,
        *,
        mode: Mode | None = None,
        facts: RunFacts | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.site = site
        self.facts = RunFacts(workers=1, local_batch=1, global_batch=1) if facts is None else facts
        self.before: Callable[[Batch], None] | None = None  # called with every batch that is about to be trained
        self.watcher: ModeObserver | None = None
        self.clock = RunClock(clock)
        self._account = account
        self._mode: Mode = Sync() if mode is None else mode
        site.check_fit(self._mode, self.facts)
        self._coordinator: Coordinator | None = None
        self._executor: Executor | None = None
        self._pool: LeaseQueue | None = None
        self._done: Callable[[Lease], None] = _nothing
        self._free: dict[int, int] = {}  # batches that each worker could still begin
        self._asking: list[int] = []  # workers with a reserved lease that wait for a grant
        self._ended: set[int] = set()  # workers that found no more data
        self._resting = self._failed = False
        self._membership = Membership(site)
        self._doors = threading.RLock()  # held while a mode opens or closes: workers of none come and go in any thread
        self._granted = 0  # numbers of grants that were used so far
        self._early: list[StepResult] = []  # applied while somebody waited for rest
        self._refused = 0  # rows whose gradient was not finite, that no step has told of
        self.statistics = Statistics()  # over all modes

    @property
    def mode(self) -> Mode:
        """The one at work."""
        return self._mode

    def steps(self, pool: LeaseQueue, step: int, done: Callable[[Lease], None]) -> Iterator[StepResult]:
        """Train the pool's epoch; `done` is told of every lease whose gradients were applied, or came too late.

        While the caller has a step in hand the run's clock stands still.
        """
        self.clock.resume()
        try:
            for stepped in self._epoch(pool, step, done):
                self.clock.pause()
                yield stepped
                self.clock.resume()
        finally:
            self.clock.pause()

    def _epoch(self, pool: LeaseQueue, step: int, done: Callable[[Lease], None]) -> Iterator[StepResult]:
        self._pool, self._done = pool, done
        self._early = []  # of an epoch that was broken off
        if self._coordinator is None:
            yield from self._start(step)
        yield from self._call_back()
        while True:
            if self._resting:
                yield from self._take(Resume())
            if self._membership.pending:
                yield from self._turn_over()
            for worker in list(self._free):
                yield from self._ask(worker)
            if self._early:
                yield from self.take_early()
                continue  # whoever got a step may have asked for rest, or for another mode
            if not self._outstanding:
                break
            yield from self._next()
        yield from self._take(Drain())
        self._resting = True

    def rest(self) -> None:
        """Let everything that is being computed end, and apply it: a checkpoint or a switch comes."""
        if self._coordinator is None or self._failed:
            return
        if not self._resting:
            self._early += self._take(Drain())
            self._resting = True
        while self._outstanding:
            self._early += self._next()
        self._coordinator.rest()

    def take_early(self) -> list[StepResult]:
        """Steps that were applied on the way to rest, and that nobody was told of."""
        early, self._early = self._early, []
        return early

    def take_refused(self) -> int:
        """Rows whose gradient was not finite, of steps that were told of before this was known."""
        refused, self._refused = self._refused, 0
        return refused

    @property
    def present(self) -> list[int]:
        """Workers that have data, as far as they know."""
        if not self.busy:
            return list(range(self.facts.workers))
        leaving = self._membership.leaving
        return [worker for worker in self._free if worker not in self._ended and worker not in leaving]

    @property
    def busy(self) -> bool:
        """Whether an epoch is under way."""
        return self._coordinator is not None

    def switch(self, mode: Mode) -> None:
        """Go on in another mode.

        Parameters, optimizer state, hyper-parameters and the global batch stay as they are.
        """
        self.site.check_fit(mode, self.facts)
        self.rest()
        self._mode = mode
        if self._coordinator is not None:
            self._begin_anew()

    def demand(self, wish: ScaleRequest) -> None:
        """An error, with a sentence, where a worker cannot come or go as things stand. Nothing is changed."""
        self._membership.after(wish, self._mode, self.facts)

    def wish(self, wish: ScaleRequest) -> None:
        """A worker is to come or to go. In any thread.

        It happens where nothing is half done: before the next gradients are waited for or, where no mode is at work, at
        once.
        """
        self._membership.add(wish)
        with self._doors:
            if self._coordinator is None:
                self._turn_over_at_rest()

    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is made or changed."""
        return self.site.predict(batch)

    def close(self) -> None:
        """End the workers. What they compute is lost: `rest` first to keep it."""
        with self._doors:
            executor, coordinator, failed = self._executor, self._coordinator, self._failed
            self._coordinator = self._executor = None
            self._asking = []
            self._resting = self._failed = False
            if coordinator is not None:
                self._granted = coordinator.granted
                self._refused += coordinator.take_refused()
                coordinator.close(failed=failed)
            try:
                if executor is not None:
                    executor.close(failed=failed)
            finally:
                self._turn_over_at_rest()

    @property
    def _outstanding(self) -> int:
        return 0 if self._coordinator is None else self._coordinator.outstanding

    def _start(self, step: int) -> list[StepResult]:
        with self._doors:
            granted = max(self._granted, self.site.newest_grant())  # segments outlive runs, and know their grants
            facts = replace(self.facts, step=step, grants=granted)
            parameters, self._executor = self.site.open(self._mode, facts, self.clock)
            self._coordinator = Coordinator(
                self._mode, facts, parameters, self._account, lambda lease: self._done(lease), self.statistics
            )
            strangers = self._membership.number()
        for worker in strangers:
            self._forget(worker)
        self._free = dict.fromkeys(range(facts.workers), self._mode.most_in_flight)
        self._ended = set()
        return [stepped for worker in self._free for stepped in self._take(Joined(worker))]

    def _begin_anew(self) -> None:
        """At rest: the mode that is chosen, with the workers that are there then."""
        assert self._coordinator is not None
        assert self._pool is not None
        step = self._coordinator.discipline.step
        self.close()
        self._pool.release()  # workers ask anew, for as many batches as this mode lets them begin
        self._early += self._start(step)

    def _turn_over(self) -> list[StepResult]:
        """Workers come and go. Where all end every step together, they begin anew in their new number."""
        assert self._coordinator is not None
        self.facts = self._membership.accept(self._mode, self.facts)
        if self._mode.dense != "server":
            if self._membership.accepted:
                self.rest()
                self._begin_anew()
            return []
        steps = []
        while (wish := self._membership.take()) is not None:
            if wish.comes:
                steps += self._let_in(wish)
            else:
                self._membership.leave(wish)
        for worker in self._membership.leaving:
            steps += self._let_go(worker)
        return steps

    def _turn_over_at_rest(self) -> None:
        self.facts = self._membership.accept(self._mode, self.facts)
        self._membership.at_rest()

    def _let_in(self, wish: ScaleRequest) -> list[StepResult]:
        assert self._coordinator is not None
        with self._whole():
            worker = self._membership.begin(wish, self._coordinator.discipline.step)
            self._free[worker] = self._mode.most_in_flight
            return self._take(Joined(worker))

    def _let_go(self, worker: int) -> list[StepResult]:
        """One that leaves, when it holds no batch; in these modes it holds one at most, and does not ask before.

        What it waited with goes to others, who may have found no more.
        """
        assert self._pool is not None
        waited = self._asking.count(worker)
        if self._free[worker] + waited < self._mode.most_in_flight:
            return []
        with self._whole():
            self._asking = [each for each in self._asking if each != worker]
            for _ in range(waited):
                self._pool.give_back()
            steps = [] if worker in self._ended else self._take(Ended(worker))
            self._ended.discard(worker)
            del self._free[worker]
            self._forget(worker)
            self._membership.part(worker)
            return steps + self._call_back() if waited else steps

    def _call_back(self) -> list[StepResult]:
        """There are data for those who found no more."""
        ended, self._ended = self._ended, set()
        return [stepped for worker in sorted(ended) for stepped in self._take(Joined(worker))]

    def _forget(self, worker: int) -> None:
        if self.watcher is not None:
            self.watcher.lost(worker)

    def _next(self) -> list[StepResult]:
        """Wait for gradients and see what they come to."""
        assert self._executor is not None
        assert self._coordinator is not None
        with defer_sigint():  # as one: gradients that are there must not be lost to an interrupt that was held back
            finished = self._finished(self._executor)
            with self._whole():
                if self.watcher is not None:
                    late = self._coordinator.discipline.step - finished.pulled_step
                    self.watcher.finished(observation(finished, self.clock(), late))
                with self._executor.lock:
                    self._free[finished.grant.worker] += 1
                    performed = self._coordinator.pushed(finished)
                    self._executor.stepped(self._coordinator.discipline.step)
                self._send(performed)
        deliver_pending_sigint()
        return performed.steps

    def _ask(self, worker: int) -> Iterator[StepResult]:
        """For as many batches as the worker may begin, while there are data."""
        assert self._pool is not None
        while self._free.get(worker) and worker not in self._ended and not self._resting:
            if self._pool.reserve():
                self._free[worker] -= 1
                self._asking.append(worker)
                yield from self._take(Ready(worker))
            elif worker in self._asking:  # it has data to wait with
                return
            else:
                self._ended.add(worker)
                yield from self._take(Ended(worker))

    def _take(self, event: Event) -> list[StepResult]:
        assert self._coordinator is not None
        assert self._executor is not None
        with self._whole():
            if self.watcher is not None:
                notify(self.watcher, event)
            with self._executor.lock:
                if isinstance(event, Resume):
                    self._resting = False
                performed = self._coordinator.on(event)
                self._executor.stepped(self._coordinator.discipline.step)
            self._send(performed)
        return performed.steps

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """An event with all that comes of it. After a fault gradients may never come: nobody waits for rest then."""
        with defer_sigint():
            try:
                yield
            except BaseException:
                self._failed = True
                raise

    def _finished(self, executor: Executor) -> BatchResult:
        try:
            return executor.finished()
        except KeyboardInterrupt:  # what was being computed is computed all the same, or again
            raise
        except BaseException:  # whatever a worker threw: its gradients will never come
            self._failed = True
            raise

    def _send(self, performed: EventResult) -> None:
        """Data to those who were granted a batch; the watcher hears of steps first."""
        assert self._coordinator is not None
        assert self._executor is not None
        assert self._pool is not None
        if self.watcher is not None and performed.steps:
            self.watcher.stepped(self.clock())
        for grant in performed.grants:
            self._asking.remove(grant.worker)
            lease, batch = self._pool.attach()
            if self.before is not None:
                self.before(batch)
            self._coordinator.attach(grant, lease, batch)
            self._executor.start(grant, batch)


def _nothing(lease: Lease) -> None:
    """Nobody asks."""
