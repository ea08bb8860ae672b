"""Who computes: the calling thread, or one thread per worker. A executor starts batches and gives gradients back.

Rows are looked up when a batch is started. Dense parameters are read when it is computed, which in all-reduce modes is
not before the dense step of its token has come.
"""

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol

import torch
from torch import Tensor, nn

from hotrow.client.local import LocalLookup
from hotrow.data.batch import Batch
from hotrow.modes import Mode
from hotrow.modes.base import Grant
from hotrow.runtime.clock import RunClock, Span
from hotrow.runtime.interrupts import deliver_pending_sigint
from hotrow.server.core import ParameterServer
from hotrow.worker.core import Gradients, Learner, Loss

WAKE_S = 0.1  # how long an interrupt may wait for workers that compute


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """A batch whose gradients are there."""

    grant: Grant
    looked_step: int  # steps that were applied when rows were looked up
    pulled_step: int  # and when dense parameters were read
    gradients: Gradients
    busy: Span  # looking rows up and computing: what every mode has to do for a batch


@dataclass(order=True, slots=True)
class _Lookup:
    token: int
    number: int
    grant: Grant = field(compare=False)
    batch: Batch = field(compare=False)
    handle: LocalLookup = field(compare=False)
    looked_step: int = field(compare=False)
    busy: Span = field(compare=False)  # so far


class Executor(Protocol):
    """Workers. `lock` is held while parameters change."""

    lock: AbstractContextManager[object]

    def start(self, grant: Grant, batch: Batch) -> None:
        """Let the grant's worker begin."""

    def stepped(self, step: int) -> None:
        """So many dense steps are applied."""

    def finished(self) -> BatchResult:
        """Wait for the next gradients."""

    def close(self, *, failed: bool = False) -> None:
        """Everybody goes home. After a fault some may wait for others that will not come."""


class InlineExecutor:
    """The calling thread plays all workers, in the order of their tokens, on the server's own model."""

    def __init__(self, server: ParameterServer, learner: Learner, mode: Mode, step: int, clock: RunClock) -> None:
        self._server, self._learner, self._mode, self._step, self._clock = server, learner, mode, step, clock
        self._started: list[_Lookup] = []
        self.lock: AbstractContextManager[object] = nullcontext()

    def start(self, grant: Grant, batch: Batch) -> None:
        self._started.append(started(self._server, self._mode, self._step, self._clock, grant, batch))

    def stepped(self, step: int) -> None:
        self._step = step

    def finished(self) -> BatchResult:
        task = min(self._started)
        finished = computed(task, self._step, self._learner, self._server, self._clock)
        self._started.remove(task)  # not before: cut off in the middle it is computed again
        return finished

    def close(self, *, failed: bool = False) -> None:
        """There is nobody to send home."""


class ThreadExecutor:
    """One thread per worker, each with its own copy of the model. A fault in one of them comes out of `finished`."""

    def __init__(
        self,
        server: ParameterServer,
        workers: int,
        mode: Mode,
        step: int,
        clock: RunClock,
        *,
        loss: Loss | None = None,
        autocast: bool = False,
        copies: Sequence[nn.Module] | None = None,
    ) -> None:
        self._server, self._mode, self._step, self._clock = server, mode, step, clock
        self._results: SimpleQueue[BatchResult | BaseException] = SimpleQueue()
        self.lock: AbstractContextManager[object] = threading.Lock()
        models = [deepcopy(server.model) for _ in range(workers)] if copies is None else copies
        self._inboxes: list[SimpleQueue[tuple[Grant, Batch] | int | None]] = [SimpleQueue() for _ in range(workers)]
        self._threads = [
            threading.Thread(
                target=self._work,
                args=(worker, Learner(model, loss=loss, autocast=autocast)),
                name=f"worker-{worker}",
                daemon=True,
            )
            for worker, model in enumerate(models)
        ]
        for thread in self._threads:
            thread.start()

    def start(self, grant: Grant, batch: Batch) -> None:
        self._inboxes[grant.worker].put((grant, batch))

    def stepped(self, step: int) -> None:
        if step == self._step:
            return
        self._step = step
        if self._mode.dense == "all-reduce":  # somebody may wait for it
            for inbox in self._inboxes:
                inbox.put(step)

    def finished(self) -> BatchResult:
        while True:
            try:
                result = self._results.get(timeout=WAKE_S)
            except Empty:
                deliver_pending_sigint()
                continue
            if isinstance(result, BaseException):
                raise result
            return result

    def close(self, *, failed: bool = False) -> None:
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()

    # What follows runs in the workers' threads.

    def _work(self, worker: int, learner: Learner) -> None:
        torch.set_num_threads(1)
        begun: list[_Lookup] = []
        try:
            while (message := self._inboxes[worker].get()) is not None:
                if isinstance(message, tuple):
                    begun.append(started(self._server, self._mode, self._step, self._clock, *message))
                while self._inboxes[worker].empty() and begun and self._may_compute(min(begun)):
                    self._results.put(self._compute(learner, begun))
        except BaseException as fault:  # whatever it is, it belongs to whoever asked for the work
            self._results.put(fault)

    def _may_compute(self, task: _Lookup) -> bool:
        return self._mode.dense != "all-reduce" or task.token <= self._step

    def _compute(self, learner: Learner, begun: list[_Lookup]) -> BatchResult:
        task = min(begun)
        begun.remove(task)
        with self.lock:
            pulled = self._step
            if self._mode.dense != "local":
                self._server.pull_into(learner.model)
        before = [buffer.clone() for buffer in learner.model.buffers()]
        finished = computed(task, pulled, learner, self._server, self._clock)
        if self._mode.dense != "local":
            after = learner.model.buffers()
            finished.gradients.buffers = [_change(now, then) for now, then in zip(after, before, strict=True)]
        return finished


def _change(now: Tensor, then: Tensor) -> Tensor:
    return now ^ then if now.dtype == torch.bool else now - then


def started(server: ParameterServer, mode: Mode, step: int, clock: RunClock, grant: Grant, batch: Batch) -> _Lookup:
    """With its rows as they stand, and their versions where the mode will ask how late they are."""
    began = clock.moment()
    versions = mode.late is not None and mode.late.by == "version"
    handle = server.client.lookup(batch, learn=True, versions=versions)
    return _Lookup(grant.token, grant.grant, grant, batch, handle, step, clock.moment().since(began))


def computed(
    task: _Lookup, pulled_step: int, learner: Learner, server: ParameterServer, clock: RunClock
) -> BatchResult:
    """Its gradients, from the model as it stands."""
    began = clock.moment()
    gradients = learner.learn(task.batch, task.handle, server.client)
    return BatchResult(task.grant, task.looked_step, pulled_step, gradients, task.busy + clock.moment().since(began))
