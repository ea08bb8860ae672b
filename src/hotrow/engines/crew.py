"""Who computes: the calling thread, or one thread per worker. A crew starts batches and gives gradients back.

Rows are looked up when a batch is started. Dense parameters are read when it is computed, which in all-reduce modes is
not before the dense step of its token has come.
"""

import threading
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol

import torch
from torch import nn

from hotrow.client.local import LocalHandle
from hotrow.data.batch import Batch
from hotrow.engines.unbroken import breath
from hotrow.modes import Mode
from hotrow.modes.base import Grant
from hotrow.server.core import ParameterServer
from hotrow.worker.core import Gradients, Learner, Loss

WAKE_S = 0.1  # how long an interrupt may wait for workers that compute


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """A batch whose gradients are there."""

    grant: Grant
    pulled_step: int
    gradients: Gradients


@dataclass(order=True, slots=True)
class _Started:
    token: int
    number: int
    grant: Grant = field(compare=False)
    batch: Batch = field(compare=False)
    handle: LocalHandle = field(compare=False)


class Crew(Protocol):
    """Workers. `lock` is held while parameters change."""

    lock: AbstractContextManager[object]

    def start(self, grant: Grant, batch: Batch) -> None:
        """Let the grant's worker begin."""

    def stepped(self, step: int) -> None:
        """So many dense steps are applied."""

    def finished(self) -> Finished:
        """Wait for the next gradients."""

    def close(self) -> None:
        """Everybody goes home."""


class Alone:
    """The calling thread plays all workers, in the order of their tokens, on the server's own model."""

    def __init__(self, server: ParameterServer, learner: Learner, mode: Mode, step: int) -> None:
        self._server, self._learner, self._mode, self._step = server, learner, mode, step
        self._started: list[_Started] = []
        self.lock: AbstractContextManager[object] = nullcontext()

    def start(self, grant: Grant, batch: Batch) -> None:
        handle = looked_up(self._server, self._mode, batch)
        self._started.append(_Started(grant.token, grant.grant, grant, batch, handle))

    def stepped(self, step: int) -> None:
        self._step = step

    def finished(self) -> Finished:
        self._started.sort()
        task = self._started.pop(0)
        return Finished(task.grant, self._step, self._learner.learn(task.batch, task.handle, self._server.client))

    def close(self) -> None:
        """There is nobody to send home."""


class Threads:
    """One thread per worker, each with its own copy of the model. A fault in one of them comes out of `finished`."""

    def __init__(
        self,
        server: ParameterServer,
        workers: int,
        mode: Mode,
        step: int,
        *,
        loss: Loss | None = None,
        autocast: bool = False,
        replicas: list[nn.Module] | None = None,
    ) -> None:
        self._server, self._mode, self._step = server, mode, step
        self._results: SimpleQueue[Finished | BaseException] = SimpleQueue()
        self.lock: AbstractContextManager[object] = threading.Lock()
        self.replicas = [deepcopy(server.model) for _ in range(workers)] if replicas is None else replicas
        self._inboxes: list[SimpleQueue[tuple[Grant, Batch] | int | None]] = [SimpleQueue() for _ in range(workers)]
        self._threads = [
            threading.Thread(
                target=self._work,
                args=(worker, Learner(replica, loss=loss, autocast=autocast)),
                name=f"worker-{worker}",
                daemon=True,
            )
            for worker, replica in enumerate(self.replicas)
        ]
        for thread in self._threads:
            thread.start()

    def start(self, grant: Grant, batch: Batch) -> None:
        self._inboxes[grant.worker].put((grant, batch))

    def stepped(self, step: int) -> None:
        if step == self._step:
            return
        self._step = step
        if self._mode.most_in_flight > 1:  # somebody may wait for it
            for inbox in self._inboxes:
                inbox.put(step)

    def finished(self) -> Finished:
        while True:
            try:
                result = self._results.get(timeout=WAKE_S)
            except Empty:
                breath()
                continue
            if isinstance(result, BaseException):
                raise result
            return result

    def close(self) -> None:
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join()

    # What follows runs in the workers' threads.

    def _work(self, worker: int, learner: Learner) -> None:
        torch.set_num_threads(1)
        started: list[_Started] = []
        try:
            while (message := self._inboxes[worker].get()) is not None:
                if isinstance(message, tuple):
                    grant, batch = message
                    handle = looked_up(self._server, self._mode, batch)
                    started.append(_Started(grant.token, grant.grant, grant, batch, handle))
                while self._inboxes[worker].empty() and started and self._may_compute(min(started)):
                    self._results.put(self._compute(learner, started))
        except BaseException as fault:  # whatever it is, it belongs to whoever asked for the work
            self._results.put(fault)

    def _may_compute(self, task: _Started) -> bool:
        return self._mode.dense != "all-reduce" or task.token <= self._step

    def _compute(self, learner: Learner, started: list[_Started]) -> Finished:
        task = min(started)
        started.remove(task)
        with self.lock:
            pulled = self._step
            if self._mode.dense != "local":
                self._server.pull_into(learner.model)
        gradients = learner.learn(task.batch, task.handle, self._server.client)
        if self._mode.dense != "local":
            gradients.buffers = [buffer.clone() for buffer in learner.model.buffers()]
        return Finished(task.grant, pulled, gradients)


def looked_up(server: ParameterServer, mode: Mode, batch: Batch) -> LocalHandle:
    """The rows of a batch as they stand, with their versions where the mode will ask how late they are."""
    versions = mode.late is not None and mode.late.by == "version"
    return server.client.lookup(batch, learn=True, versions=versions)
