"""The trainers of a cluster, as the engine's crew: batches go out, word of their gradients comes back."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from queue import Empty, SimpleQueue

import numpy as np
import torch

from hotrow.data.batch import Batch
from hotrow.engines.clock import Span
from hotrow.engines.cluster.orders import Orders, on_arrival
from hotrow.engines.cluster.roles import Roles
from hotrow.engines.crew import Finished
from hotrow.engines.unbroken import breath
from hotrow.errors import InputError
from hotrow.modes import Mode
from hotrow.modes.base import Grant, RunFacts
from hotrow.transport.batches import pack_batch
from hotrow.transport.messages import Work, Worked
from hotrow.transport.wire import Answer
from hotrow.worker.core import Gradients

WAKE_S = 0.1  # how long an interrupt, or the loss of a role, may go unnoticed

Now = Callable[[], tuple[int, float]]  # samples trained so far, and what learning rates are multiplied by


class RemoteCrew:
    """One trainer for each worker. `ended` is called when the mode ends."""

    def __init__(
        self,
        roles: Roles,
        orders: Orders,
        mode: Mode,
        facts: RunFacts,
        now: Now,
        ended: Callable[[], None],
    ) -> None:
        self.lock: AbstractContextManager[object] = nullcontext()
        self._roles, self._orders, self._mode, self._facts = roles, orders, mode, facts
        self._now, self._ended = now, ended
        self._step = facts.step
        self._results: SimpleQueue[tuple[Grant, Future[Answer]]] = SimpleQueue()

    def start(self, grant: Grant, batch: Batch) -> None:
        """Send the batch of a grant to its worker."""
        header, frames = pack_batch(batch)
        trained, lr_scale = self._now()
        factor = on_arrival(self._mode, self._facts, len(batch))
        work = Work(
            grant.grant,
            grant.worker,
            grant.token,
            self._step,
            self._orders.number,
            trained,
            lr_scale,
            factor,
            header,
        )
        asked = self._roles.wire.ask(self._roles.trainers[grant.worker], work, frames, deadline=False)
        asked.add_done_callback(lambda done: self._results.put((grant, done)))

    def stepped(self, step: int) -> None:
        """So many dense steps are applied."""
        self._step = step

    def finished(self) -> Finished:
        """Wait for the next word."""
        while True:
            try:
                grant, done = self._results.get(timeout=WAKE_S)
            except Empty:
                breath()
                self._roles.alive()
                continue
            return self._finished(grant, done.result())

    def close(self) -> None:
        """The mode ends."""
        self._ended()

    def _finished(self, grant: Grant, answer: Answer) -> Finished:
        told = answer.message
        if not isinstance(told, Worked):
            raise InputError(
                f"trainer {grant.worker} answered {type(told).__name__} to work: is it of another version?"
            )
        output = torch.from_numpy(np.frombuffer(answer.frames[0], np.float32).reshape(told.shape).copy())
        gradients = Gradients(told.samples, [], {}, torch.tensor(told.loss), output)
        busy = Span(told.busy_s, told.busy_s)
        return Finished(grant, told.looked_step, told.pulled_step, gradients, busy)
