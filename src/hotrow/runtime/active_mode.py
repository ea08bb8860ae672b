"""Everything that exists only while a mode runs: its effect loop, its parameters, its executor, its open batches."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease
from hotrow.modes.base import Apply, Drop, Effect, Event, Grant, Pushed
from hotrow.runtime.clock import RunClock
from hotrow.runtime.effect_loop import EffectLoop, LeasePool
from hotrow.runtime.executors import BatchResult, Executor
from hotrow.runtime.interrupts import defer_every_sigint, defer_sigint, deliver_pending_sigint
from hotrow.runtime.observer import ModeObserver, notify, observation
from hotrow.runtime.state import RunState
from hotrow.server.core import ApplyResult
from hotrow.server.replicas import Parameters


@dataclass(frozen=True, slots=True, eq=False)
class TrainedBatch:
    """A batch whose gradients were applied."""

    batch: Batch
    loss: Tensor  # one number
    output: Tensor  # of the model, before the update


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """A dense step that was applied; in Hybrid the rows were before."""

    step: int
    samples: int
    batches: tuple[TrainedBatch, ...]
    refused: int  # rows whose gradient was not finite


@dataclass(slots=True, eq=False)
class RunHooks:
    """Callbacks of a run, the same for all modes."""

    done: Callable[[Lease], None] = lambda lease: None  # a lease was applied, or came too late
    before: Callable[[Batch], None] | None = None  # a batch is about to be trained
    observer: ModeObserver | None = None


@dataclass(slots=True, eq=False)
class _OpenBatch:
    """A granted batch that is not applied yet."""

    worker: int
    lease: Lease
    batch: Batch
    result: BatchResult | None = None


class ActiveMode:
    """A mode that runs on the parameters and the executor that a backend opened for it."""

    def __init__(
        self,
        loop: EffectLoop[tuple[Lease, Batch]],
        parameters: Parameters,
        executor: Executor,
        state: RunState,
        hooks: RunHooks,
        clock: RunClock,
        steps: deque[StepResult],
    ) -> None:
        """`steps` collects the results of applied steps."""
        self.loop, self.executor = loop, executor
        loop.performer = self
        self.failed = False  # after an error gradients may never arrive
        self._parameters, self._state, self._hooks, self._clock = parameters, state, hooks, clock
        self._steps = steps
        self._granted: deque[tuple[Grant, Batch]] = deque()  # by the current event, not submitted yet
        self._open: dict[int, _OpenBatch] = {}  # by grant
        self._rows_ahead: set[int] = set()  # grants whose rows are applied, and whose dense gradients are not
        self._applying = False
        self._refused = 0

    @property
    def half_applied(self) -> bool:
        """Whether rows and dense parameters would be of different steps if the mode ended now."""
        return self._applying or bool(self._rows_ahead)

    @property
    def leases(self) -> LeasePool[tuple[Lease, Batch]]:
        """The data of the run."""
        return self.loop.leases

    @property
    def step(self) -> int:
        """Dense steps closed so far."""
        return self.loop.step

    def join(self, worker: int) -> None:
        """Add a worker."""
        with self._event():
            self.loop.join(worker)

    def leave(self, worker: int) -> None:
        """Remove a worker that holds no batch."""
        with self._event():
            self.loop.leave(worker)

    def rejoin(self) -> None:
        """Let workers that found no more data join again: there is some."""
        with self._event():
            self.loop.rejoin()

    def request_batch(self, worker: int) -> bool:
        """Request one more batch for a worker; False where it may not have one.

        Reading may wait for data: SIGINT is delivered meanwhile, and an error of the data does not fail the mode.
        """
        if self.loop.draining or not self.loop.may_request(worker):
            return False
        reserved = self.leases.reserve()
        if reserved or self.loop.waits_for_data(worker):
            with self._event():
                self.loop.requested(worker, reserved=reserved)
        return reserved

    def drain(self) -> None:
        """Stop granting batches."""
        with self._event():
            self.loop.drain()

    def resume(self) -> None:
        """Grant again."""
        with self._event():
            self.loop.resume()

    def finish_next(self) -> None:
        """Wait for the gradients of a batch, and perform the effects of their arrival."""
        with defer_sigint():  # one unit: gradients that arrived must not be lost to a deferred interrupt
            result = self._next_result()
            with self._event():
                self._pushed(result)
        deliver_pending_sigint()

    def rest(self) -> None:
        """Wait until all decisions are performed. No batch is being computed."""
        self._count(self._parameters.rest())

    def take_refused(self) -> int:
        """Rows whose gradient was not finite, since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def close(self) -> None:
        """End the mode: gradients that were not applied are discarded."""
        if self.half_applied or (self._open and self._parameters.changes_when_computed):
            self.failed = True
        try:
            with self.failing():
                for grant in self._open:
                    self._parameters.discard(grant)
                if self._open and not self.failed:
                    self._parameters.settle()
                self.loop.close()
        finally:
            self.executor.close(failed=self.failed)

    # The performer of the effect loop.

    def observe(self, event: Event, effects: Sequence[Effect]) -> None:
        if self._hooks.observer is not None:
            notify(self._hooks.observer, event)

    def begin(self, grant: Grant, lease: tuple[Lease, Batch]) -> None:
        self._open[grant.grant] = _OpenBatch(grant.worker, *lease)
        self._granted.append((grant, lease[1]))

    def apply(self, effect: Apply) -> None:
        groups, state = self.loop.mode.groups, self._state
        ends_step = effect.group == groups[-1]
        samples = effect.samples if effect.group == groups[0] else 0
        with self._applied_whole(effect):
            applied = self._parameters.apply(effect, samples=state.samples + samples, lr_scale=state.lr_scale)
            state.advance(samples, dense_step=ends_step)
            self._count(applied)
            if ends_step:
                self._steps.append(self._step_result(effect))

    def drop(self, effect: Drop) -> None:
        """Count a batch that came too late for its mode as trained. Workers of the loop are never lost."""
        assert effect.reason == "late"
        self._parameters.discard(effect.grant)
        self._hooks.done(self._open.pop(effect.grant).lease)

    def samples_of(self, grant: int) -> int:
        return len(self._open[grant].batch)

    def settle(self) -> None:
        self.loop.statistics.update(self.loop.discipline.counts)
        self._parameters.settle()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """One change as a unit: SIGINT waits until its end, and an error marks the mode as failed."""
        with defer_sigint():
            try:
                yield
            except BaseException:
                self.failed = True
                raise

    @contextmanager
    def _applied_whole(self, effect: Apply) -> Iterator[None]:
        """Parameters, counters and position change together; a fault in between leaves `half_applied`."""
        self._applying = True
        with defer_every_sigint():
            yield
            self._applying = False
            grants = {part.grant for part in effect.parts}
            if effect.group == "embedding":
                self._rows_ahead |= grants
            elif self.loop.mode.dense == "local":  # a merge is of all that was done since the last one
                self._rows_ahead.clear()
            else:
                self._rows_ahead -= grants

    @contextmanager
    def _event(self) -> Iterator[None]:
        """One event with all its effects."""
        before = len(self._steps)
        with self.failing():
            with self.executor.lock:
                yield
                self.executor.set_step(self.loop.step)
            if self._hooks.observer is not None and len(self._steps) > before:
                self._hooks.observer.stepped(self._clock())
            while self._granted:
                self._submit(*self._granted.popleft())

    def _submit(self, grant: Grant, batch: Batch) -> None:
        if self._hooks.before is not None:
            self._hooks.before(batch)
        self.executor.submit(grant, batch)

    def _next_result(self) -> BatchResult:
        try:
            return self.executor.next_result()
        except KeyboardInterrupt:  # batches in progress are still computed, or computed again
            raise
        except BaseException:  # raised by a worker: its gradients will never arrive
            self.failed = True
            raise

    def _pushed(self, result: BatchResult) -> None:
        grant = result.grant
        if self._hooks.observer is not None:
            late = self.step - result.pulled_step
            self._hooks.observer.finished(observation(result, self._clock(), late))
        self._open[grant.grant].result = result
        self.loop.finish(grant.worker)
        for group in self.loop.mode.groups:
            pulled = result.looked_step if group == "embedding" else result.pulled_step
            self.loop.handle(Pushed(group, grant.worker, grant.grant, grant.token, pulled, result.samples))

    def _count(self, applied: ApplyResult) -> None:
        statistics = self.loop.statistics
        statistics.add_ids(applied.ids)
        statistics.correct_weights(applied.weights)
        statistics.add_counts(applied.undone)
        self._refused += applied.refused

    def _step_result(self, effect: Apply) -> StepResult:
        batches = []
        for part in effect.parts:
            done = self._open.pop(part.grant)
            self._hooks.done(done.lease)
            assert done.result is not None
            batches.append(TrainedBatch(done.batch, done.result.loss, done.result.output))
        return StepResult(effect.step, effect.samples, tuple(batches), self.take_refused())
