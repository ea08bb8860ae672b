"""The interface of executors, what those of one process share, and one thread per worker.

Rows are looked up when a batch is submitted, in modes with look-ahead as `step_lookups` says. Dense parameters are read
when it is computed, which in all-reduce modes is after the dense step before its token. Gradients are parked under
their grant before the result is returned.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol

import torch
from torch import Tensor, nn

from hotrow.cache.local import CachedLocalTables
from hotrow.client.local import LocalTables
from hotrow.client.local_lookup import BegunLookup, LocalLookup
from hotrow.data.batch import Batch
from hotrow.modes import Mode
from hotrow.modes.base import Grant, value
from hotrow.runtime.clock import Elapsed, RunClock
from hotrow.runtime.interrupts import deliver_pending_sigint
from hotrow.runtime.step_cut import CutDecision
from hotrow.server.replicas import LocalParameters
from hotrow.topology.affinity import ThreadBinder
from hotrow.worker.core import Gradients, Learner, buffer_changes

Pull = Callable[[nn.Module], None]

WAKE_S = 0.1  # how long an interrupt may wait for workers that compute


@value
class BatchResult:
    """A batch whose gradients are parked where its mode applies them."""

    grant: Grant
    looked_step: int  # steps that were applied when rows were looked up
    pulled_step: int  # and when dense parameters were read
    samples: int
    loss: float
    output: Tensor | None  # of the model, before the update; None: its scores are in the sketches of `take_scores`
    busy: Elapsed  # lookup and computation: what every mode has to do for a batch


@dataclass(order=True, slots=True)
class Task:
    """A batch with its rows. Those of earlier steps are first."""

    token: int
    number: int
    grant: Grant = field(compare=False)
    batch: Batch = field(compare=False)
    rows: LocalLookup = field(compare=False)
    looked_step: int = field(compare=False)
    busy: Elapsed = field(compare=False)  # so far


@dataclass(frozen=True, slots=True, eq=False)
class ComputedTask:
    """A batch with its gradients."""

    task: Task
    pulled_step: int
    gradients: Gradients
    busy: Elapsed


@value
class WorkerLoss:
    """A worker whose open batches will not come."""

    worker: int
    name: str
    stays: bool  # it lost only what another role had for its batches


class Executor(Protocol):
    """Workers that compute batches. `lock` is held while parameters change."""

    lock: AbstractContextManager[object]

    @property
    def runs_ahead(self) -> bool:
        """Between two steps: whether workers change parameters of the next one without waiting for the loop."""

    def submit(self, grant: Grant, batch: Batch) -> None:
        """Start the batch of a grant on its worker."""

    def set_step(self, step: int) -> None:
        """Note the number of applied dense steps."""

    def next_result(self) -> BatchResult | None:
        """Wait for the next batch whose gradients are parked; None where workers were lost."""

    def take_lost_workers(self) -> Sequence[WorkerLoss]:
        """Workers that were lost since the last call. All results of theirs that will come have come."""

    @property
    def must_cut(self) -> bool:
        """Whether the open step has to be cut though no worker was lost: gradients that were parked for it are."""

    def cut(self, push: Callable[[BatchResult], int]) -> CutDecision:
        """Where workers end every step together and one was lost: stop the others in the middle of their step."""

    def note_unanswered(self, grant: int) -> None:
        """A batch of a step that counts whose worker was lost before it answered: its rows may never have arrived."""

    @property
    def has_result(self) -> bool:
        """Whether another result is there and may be handled together with the last one."""

    def close(self, *, failed: bool = False) -> None:
        """End all workers. After a failure some may wait for others that have ended."""


class NoLosses:
    """Workers that are threads of this process end with it."""

    must_cut = False

    def take_lost_workers(self) -> Sequence[WorkerLoss]:
        """Empty."""
        return ()

    def cut(self, push: Callable[[BatchResult], int]) -> CutDecision:
        raise AssertionError("workers of one process are not lost")

    def note_unanswered(self, grant: int) -> None:
        raise AssertionError("workers of one process are not lost")


class LocalWork:
    """Lookup and computation of one mode in this process."""

    def __init__(
        self, mode: Mode, tables: LocalTables, parameters: LocalParameters, clock: RunClock, binder: ThreadBinder
    ) -> None:
        self.mode, self.tables, self.parameters, self.clock = mode, tables, parameters, clock
        self.binder = binder  # of the threads to cores
        self._versions = mode.late is not None and mode.late.by == "version"  # staleness by version needs them

    def look_up(self, grant: Grant, batch: Batch, step: int) -> Task:
        """The rows of a batch after `step` dense steps."""
        began = self.clock.moment()
        rows = self.tables.lookup(batch, learn=True, versions=self._versions, worker=grant.worker)
        return Task(grant.token, grant.grant, grant, batch, rows, step, self.clock.moment().since(began))

    def finish_lookup(self, grant: Grant, batch: Batch, step: int, begun: BegunLookup, busy: Elapsed) -> Task:
        """The rows of a batch whose lookup has begun, which took `busy`, after `step` dense steps."""
        began = self.clock.moment()
        rows = self.tables.finish(begun, versions=self._versions)
        return Task(grant.token, grant.grant, grant, batch, rows, step, busy + self.clock.moment().since(began))

    def compute(self, task: Task, pulled_step: int, learner: Learner) -> ComputedTask:
        """Gradients from the current parameters of the learner's model."""
        began = self.clock.moment()
        gradients = learner.learn(task.batch, task.rows, self.tables)
        return ComputedTask(task, pulled_step, gradients, task.busy + self.clock.moment().since(began))

    def close(self, *, failed: bool) -> None:
        """The mode ends: all changes go to the tiers; caches lose theirs with the other gradients of a failure."""
        if not failed:
            self.tables.flush()
        if isinstance(self.tables, CachedLocalTables):
            self.tables.open_caches(1)

    def park(self, computed: ComputedTask) -> BatchResult:
        """Park gradients until their step is applied."""
        task, gradients = computed.task, computed.gradients
        self.parameters.park(task.number, gradients, task.grant.worker)
        return BatchResult(
            task.grant,
            task.looked_step,
            computed.pulled_step,
            gradients.samples,
            float(gradients.loss),
            gradients.output,
            computed.busy,
        )


class ThreadExecutor(NoLosses):
    """One thread per worker, each with its own copy of the model. `next_result` raises the error of a worker."""

    has_result = False  # an update waits for nothing here, so that results one by one cost no more

    def __init__(self, work: LocalWork, learners: Sequence[Learner], pull: Pull, step: int) -> None:
        """`pull` copies the parameters into a worker's model."""
        self._work, self._pull, self._step = work, pull, step
        self._results: SimpleQueue[ComputedTask | BaseException] = SimpleQueue()
        self.lock: AbstractContextManager[object] = threading.Lock()
        self._inboxes: list[SimpleQueue[tuple[Grant, Batch] | Task | int | None]] = [SimpleQueue() for _ in learners]
        self._threads = [
            threading.Thread(target=self._run, args=(worker, learner), name=f"worker-{worker}", daemon=True)
            for worker, learner in enumerate(learners)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def runs_ahead(self) -> bool:
        """Rows are updated by the loop."""
        return False

    def submit(self, grant: Grant, batch: Batch) -> None:
        self._inboxes[grant.worker].put((grant, batch))

    def set_step(self, step: int) -> None:
        if step == self._step:
            return
        self._step = step
        if self._work.mode.dense == "all-reduce":  # a worker may wait for it
            for inbox in self._inboxes:
                inbox.put(step)

    def next_result(self) -> BatchResult:
        while True:
            try:
                result = self._results.get(timeout=WAKE_S)
            except Empty:
                deliver_pending_sigint()
                continue
            if isinstance(result, BaseException):
                raise result
            return self._work.park(result)

    def close(self, *, failed: bool = False) -> None:
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()
        self._work.close(failed=failed)

    # What follows runs in the workers' threads.

    def _run(self, worker: int, learner: Learner) -> None:
        torch.set_num_threads(1)
        self._work.binder.bind("trainer", worker)
        begun: list[Task] = []
        try:
            while (message := self._inboxes[worker].get()) is not None:
                if isinstance(message, Task):
                    begun.append(message)
                elif isinstance(message, tuple):
                    begun.append(self._work.look_up(*message, self._step))
                while self._inboxes[worker].empty() and begun and self._may_compute(min(begun)):
                    self._results.put(self._compute(learner, begun))
        except BaseException as fault:  # `next_result` raises it
            self._results.put(fault)

    def _may_compute(self, task: Task) -> bool:
        return self._work.mode.dense != "all-reduce" or task.token <= self._step

    def _compute(self, learner: Learner, begun: list[Task]) -> ComputedTask:
        task = min(begun)
        begun.remove(task)
        if self._work.mode.dense == "local":
            return self._work.compute(task, self._step, learner)
        with self.lock:
            pulled = self._step
            self._pull(learner.model)
        before = [buffer.clone() for buffer in learner.model.buffers()]
        computed = self._work.compute(task, pulled, learner)
        computed.gradients.buffers = buffer_changes(learner.model, before)
        return computed
