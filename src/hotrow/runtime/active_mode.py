"""Everything that exists only while a mode runs: its effect loop, its performer, its executor."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease
from hotrow.modes import Mode
from hotrow.modes.base import Grant, Pushed, RunFacts
from hotrow.runtime.backend import Backend
from hotrow.runtime.clock import RunClock
from hotrow.runtime.effect_loop import EffectLoop
from hotrow.runtime.executors import BatchResult, Executor
from hotrow.runtime.interrupts import defer_sigint, deliver_pending_sigint
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.look_ahead import LookAheadChoice
from hotrow.runtime.observer import ModeObserver, observation
from hotrow.runtime.state import RunState
from hotrow.runtime.step_cut import CutDecision
from hotrow.runtime.training_performer import TrainingPerformer
from hotrow.staleness import Statistics

Arguments = ParamSpec("Arguments")

TOGETHER = 256  # results whose effects are settled at once: their workers wait 10 ms at most


class ActiveMode:
    """A mode that runs on the parameters and the executor that a backend opened for it."""

    def __init__(
        self,
        loop: EffectLoop[tuple[Lease, Batch]],
        performer: TrainingPerformer,
        executor: Executor,
        leases: LeaseQueue,
        clock: RunClock,
        choice: LookAheadChoice | None = None,
    ) -> None:
        """`choice` decides how far the mode looks ahead; None: the mode itself does."""
        self.loop, self.performer, self.executor, self.leases = loop, performer, executor, leases
        self.failed = False  # after an error gradients may never arrive
        self.remarks: list[str] = []  # not yet taken
        self._clock, self._choice, self._groups = clock, choice, loop.mode.groups
        self._measured_step = loop.step
        self._looks_ahead = loop.mode.looks_ahead
        if self._looks_ahead and leases.before is not None:
            self._choice = None
            if loop.mode.first_look_ahead:
                self.remarks.append("look_ahead=1 has no effect: every batch is predicted before it is trained")

    @property
    def half_applied(self) -> bool:
        """Whether rows and dense parameters would be of different steps if the mode ended now."""
        return self.performer.half_applied

    @property
    def step(self) -> int:
        """Dense steps closed so far."""
        return self.loop.step

    def join(self, worker: int) -> None:
        """Add a worker."""
        self._handle(self.loop.join, worker)

    def begin(self) -> None:
        """All workers have joined; measured steps begin now."""
        if self._choice is not None:
            self._choice.restart()
            if self._choice.steps:
                self._look_ahead(self._choice.steps)

    def leave(self, worker: int) -> None:
        """Remove a worker that holds no batch."""
        self._handle(self.loop.leave, worker)

    def lose(self, worker: int) -> None:
        """Remove a lost worker; its batches are dealt again."""
        self._handle(self.loop.lose, worker)

    def cut(self) -> tuple[CutDecision, int]:
        """Stop in the middle of a step: workers were lost. Returns its fate, and the batches to be dealt again."""
        with self.failing():
            decision = self.executor.cut(self._push_cut)
            for _ in range(decision.closes):
                for result in self.performer.unanswered(self.step):
                    self.executor.note_unanswered(result.grant.grant)
                    self._push_cut(result)
            dealt_again = self.performer.give_back()
            self.rest()  # what shards have to tell of the last orders would be lost with the mode
        return decision, dealt_again

    def _push_cut(self, result: BatchResult) -> int:
        self._handle(self._pushed, result)
        return self.step

    def rejoin(self) -> None:
        """Let workers that found no more data join again: there is some."""
        self._handle(self.loop.rejoin)

    def request_batch(self, worker: int) -> bool:
        """Request one more batch for a worker; False where it may not have one.

        Reading may wait for data: SIGINT is delivered meanwhile, and an error of the data does not fail the mode.
        """
        if self.loop.draining or not self.loop.may_request(worker) or self._is_far_enough(worker):
            return False
        reserved = self.leases.reserve()
        self._handle(self.loop.requested, worker, reserved)
        return reserved

    def drain(self) -> None:
        """Stop granting batches."""
        self._handle(self.loop.drain)

    def resume(self) -> None:
        """Grant again. The time at rest is not that of a step."""
        if self._choice is not None:
            self._choice.restart()
        self._handle(self.loop.resume)

    def finish_next(self) -> None:
        """Wait for the gradients of a batch, and perform the effects of their arrival. No effect: workers were lost.

        Batches that arrived meanwhile are handled with it: a busy run sends fewer orders.
        """
        with defer_sigint():  # one unit: gradients that arrived must not be lost to a deferred interrupt
            result = self._next_result()
            if result is not None:
                self._handle(self._pushed_together if self.executor.has_result else self._pushed, result)
                self._measure()
        deliver_pending_sigint()

    def _pushed_together(self, result: BatchResult) -> None:
        with self.performer.settled_together():
            self._pushed(result)
            for _ in range(TOGETHER - 1):
                if not self.executor.has_result or (another := self._next_result()) is None:
                    break
                self._pushed(another)

    def rest(self) -> None:
        """Wait until all decisions are performed. No batch is being computed."""
        self.performer.count(self.performer.parameters.rest())

    def close(self) -> None:
        """End the mode: gradients that were not applied are discarded."""
        grants, parameters = self.performer.open_grants, self.performer.parameters
        if self.half_applied or (grants and parameters.changes_when_computed):
            self.failed = True
        try:
            with self.failing():
                for grant in grants:
                    parameters.discard(grant)
                if grants and not self.failed:
                    parameters.settle()
                self.loop.close()
        finally:
            self.executor.close(failed=self.failed)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """One change as a unit: SIGINT waits until its end, and an error marks the mode as failed."""
        with defer_sigint():
            try:
                yield
            except BaseException:
                self.failed = True
                raise

    def _handle(self, event: Callable[Arguments, None], *arguments: Arguments.args, **named: Arguments.kwargs) -> None:
        """One event with all its effects."""
        performer, before = self.performer, len(self.performer.steps)
        with defer_sigint():
            try:
                with self.executor.lock:
                    event(*arguments, **named)
                    if len(performer.steps) > before:  # the last counts of a mode are taken when it closes
                        self.loop.statistics.update(self.loop.discipline.counts)
                    self.executor.set_step(self.loop.step)
                if performer.observer is not None:
                    for _ in range(len(performer.steps) - before):
                        performer.observer.stepped(self._clock())
                while performer.granted:
                    self._submit(*performer.granted.popleft())
            except BaseException:
                self.failed = True
                raise

    def _is_far_enough(self, worker: int) -> bool:
        """Whether a worker that holds a batch must not get one of the next step: it may never be trained.

        A batch that is predicted before it is trained has to wait for all batches before it.
        """
        if not self._looks_ahead or not self.loop.holds(worker):
            return False
        most = self.leases.most_samples
        return self.leases.before is not None or (most is not None and self.performer.samples_granted >= most)

    def _measure(self) -> None:
        choice = self._choice
        if choice is None or choice.sentence is not None or self.loop.draining:
            return
        if self.loop.step > self._measured_step and choice.stepped(self._clock()):
            self._look_ahead(choice.steps)
        self._measured_step = self.loop.step
        if choice.sentence is not None:
            self.remarks.append(choice.sentence)

    def _look_ahead(self, steps: int) -> None:
        self._handle(self.loop.look_ahead, steps)

    def _submit(self, grant: Grant, batch: Batch) -> None:
        if self.leases.before is not None:
            self.leases.before(batch)
        self.executor.submit(grant, batch)

    def _next_result(self) -> BatchResult | None:
        try:
            return self.executor.next_result()
        except KeyboardInterrupt:  # batches in progress are still computed, or computed again
            raise
        except BaseException:  # raised by a worker: its gradients will never arrive
            self.failed = True
            raise

    def _pushed(self, result: BatchResult) -> None:
        grant, performer = result.grant, self.performer
        if performer.observer is not None:
            performer.observer.finished(observation(result, self._clock(), self.step))
        performer.pushed(result)
        self.loop.finish(grant.worker)
        for group in self._groups:
            pulled = result.looked_step if group == "embedding" else result.pulled_step
            self.loop.handle(Pushed(group, grant.worker, grant.grant, grant.token, pulled, result.samples))


def open_mode(
    backend: Backend,
    mode: Mode,
    facts: RunFacts,
    leases: LeaseQueue,
    state: RunState,
    statistics: Statistics,
    observer: ModeObserver | None,
    clock: RunClock,
) -> ActiveMode:
    """Open a mode on a backend. Its workers have not joined."""
    discipline = mode.start(facts)  # first: a mode may refuse to start
    parameters, executor = backend.open(mode, facts, clock)
    performer = TrainingPerformer(mode, parameters, leases, state, statistics, observer)
    loop = EffectLoop(mode, facts, discipline, leases, performer, statistics)
    return ActiveMode(loop, performer, executor, leases, clock, backend.look_ahead_choice(mode, facts))
