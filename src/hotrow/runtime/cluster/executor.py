"""The executor of a cluster: sends batches to trainers, whose replies come when the gradients are on the shards."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import Empty, SimpleQueue
from typing import NoReturn

from hotrow.data.reading import AnyBatch, BatchName
from hotrow.errors import HotrowError
from hotrow.modes import Mode
from hotrow.modes.base import Grant, RunFacts
from hotrow.runtime.clock import Elapsed
from hotrow.runtime.cluster.embedding_workers import EmbeddingWorkers
from hotrow.runtime.cluster.remote_parameters import RemoteParameters
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.cluster.step_forecast import StepForecast
from hotrow.runtime.executors import BatchResult
from hotrow.runtime.interrupts import deliver_pending_sigint
from hotrow.runtime.state import RunState
from hotrow.transport.batches import pack_batch
from hotrow.transport.client import Answer, Outcome
from hotrow.transport.ids import pack_ids
from hotrow.transport.messages import BatchAt, BatchReply, BatchRequest, LookUp

WAKE_S = 0.1  # how long an interrupt, or the loss of a role, may go unnoticed


def rank_for(worker: int, given: Sequence[int], share: int) -> int:
    """The rank that computes a batch of a step that all ranks end together; `given`: by rank, batches of the step.

    When a worker finds no more data, disciplines give its part of a step to workers that have some. A rank with its
    full share waits for the others, so these compute the rest.
    """
    return worker if given[worker] < share else given.index(min(given))


class RemoteExecutor:
    """One trainer for each worker. `ended` is called when the mode ends."""

    def __init__(
        self,
        roles: Roles,
        parameters: RemoteParameters,
        mode: Mode,
        facts: RunFacts,
        state: RunState,
        ended: Callable[[], None],
    ) -> None:
        self.lock: AbstractContextManager[object] = nullcontext()
        self.trainers = dict(enumerate(roles.trainers))  # by worker
        self._roles, self._parameters, self._mode, self._facts = roles, parameters, mode, facts
        self._state, self._ended, self._dense = state, ended, mode.dense
        self.step = facts.step  # dense steps that are applied
        self._next_look = 0.0
        self._given: dict[int, list[int]] = {}  # by step, the batches that each rank got
        self._prepared = -1  # the last step that shards were told of before its order
        self._forecast = StepForecast(mode.groups[0]) if mode.looks_ahead else None
        self._results: SimpleQueue[tuple[Grant, Outcome]] = SimpleQueue()

    @property
    def runs_ahead(self) -> bool:
        """With look-ahead a step is computed while the loop returns the one before it."""
        return self._forecast is not None and self._forecast.is_open

    def submit(self, grant: Grant, batch: AnyBatch) -> None:
        """Send the batch of a grant to its worker; its ids too, or to an embedding worker that looks them up for it.

        Of a batch at a loader only the place is sent.
        """
        trained = self._state.samples
        if self._forecast is not None:
            self._prepare_before(grant, self._forecast)
            self._forecast.grant(grant, len(batch))
            trained = self._forecast.samples_before(grant.token, trained)
        workers = self._roles.embedding_workers
        sample = None if workers is None else self._send_ids(workers, grant, batch, trained)
        at = _place(batch)
        layout, frames = (None, []) if isinstance(batch, BatchName) else pack_batch(batch, ids=sample is None)
        factor = self._mode.on_arrival(self._facts, len(batch))
        work = BatchRequest(
            grant.grant,
            grant.worker,
            grant.token,
            self.step,
            self._parameters.number,
            trained,
            self._state.lr_scale_at(trained),
            factor,
            layout,
            sample,
            at,
        )
        trainer = self.trainers[grant.worker if self._dense != "all-reduce" else self._rank(grant)]
        self._roles.rpc.send(trainer, work, frames, partial(self._worked, grant), deadline=False)

    def _prepare_before(self, grant: Grant, forecast: StepForecast) -> None:
        """Send the open step to the shards before the first lookup ahead of it: they need not wait for its order."""
        step = grant.token - 1
        if step < self.step or step == self._prepared:
            return
        self._prepared = step
        self._parameters.prepare(forecast.order(step, self._state.samples, self._state.lr_scale_at))

    def set_step(self, step: int) -> None:
        """Note the number of applied dense steps."""
        if step == self.step:
            return
        self.step = step
        for applied in [token for token in self._given if token < step]:
            del self._given[applied]
        if self._forecast is not None:
            self._forecast.applied(step)

    def next_result(self) -> BatchResult:
        """Wait for the next reply of a trainer."""
        while True:
            self._check_alive()
            try:
                grant, outcome = self._results.get(timeout=WAKE_S)
            except Empty:
                deliver_pending_sigint()
                continue
            if isinstance(outcome, Exception):
                self._raise(outcome)
            return self._finished(grant, outcome)

    @property
    def has_result(self) -> bool:
        """Only in token modes: where trainers end steps together, an order for each step tells them so."""
        return self._dense == "server" and not self._results.empty()

    def close(self, *, failed: bool = False) -> None:
        """End the mode. Ids of interrupted batches are released."""
        self._parameters.failed = self._parameters.failed or failed
        try:
            if self._roles.embedding_workers is not None:
                self._roles.embedding_workers.release()
        finally:
            self._ended()

    def _rank(self, grant: Grant) -> int:
        """The trainer that computes a grant where all trainers end a step together."""
        given = self._given.setdefault(grant.token, [0] * self._facts.workers)
        rank = rank_for(grant.worker, given, share=self._facts.parts // self._facts.workers)
        given[rank] += 1
        return rank

    def _send_ids(self, workers: EmbeddingWorkers, grant: Grant, batch: AnyBatch, trained: int) -> int:
        """Send ids to an embedding worker; returns their sample id there."""
        name, sample = workers.assign(grant.grant)
        versions = self._mode.late is not None and self._mode.late.by == "version"
        parts, frames = ((), []) if isinstance(batch, BatchName) else pack_ids(batch)
        step = grant.token if self._mode.looks_ahead else None
        ahead = self._mode.looks_ahead and grant.token > self.step
        after, at = self._parameters.number, _place(batch)
        ids = LookUp(sample, grant.worker, after, trained, versions, len(batch), parts, step, ahead, at)
        self._roles.rpc.send(name, ids, frames, partial(self._looked_up, grant))
        return sample

    # These two run in the client's thread.

    def _looked_up(self, grant: Grant, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            self._results.put((grant, outcome))

    def _worked(self, grant: Grant, outcome: Outcome) -> None:
        workers = self._roles.embedding_workers
        try:
            if workers is None:
                return
            if isinstance(outcome, Exception):
                workers.release([grant.grant])
            else:
                workers.done(grant.grant)
        finally:  # the loop waits for it, also where embedding workers fail
            self._results.put((grant, outcome))

    def _check_alive(self) -> None:
        """Checked regularly, also while replies come: in modes without barriers a lost role would not be noticed."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + WAKE_S
        with self._parameters.failing():
            self._roles.processes.check_alive()
            try:
                self._parameters.raise_failures()
            except HotrowError:
                self._roles.raise_loss()
                raise

    def _raise(self, error: Exception) -> NoReturn:
        """Raise the error of a request."""
        with self._parameters.failing():
            self._roles.raise_loss()
            raise error

    def _finished(self, grant: Grant, answer: Answer) -> BatchResult:
        reply = answer.of(BatchReply, self.trainers[grant.worker])
        busy = Elapsed(reply.busy_s, reply.busy_s)
        return BatchResult(grant, reply.looked_step, reply.pulled_step, reply.samples, reply.loss, None, busy)


def _place(batch: AnyBatch) -> BatchAt | None:
    """Where to pull a batch; None where this process has it."""
    if not isinstance(batch, BatchName):
        return None
    return BatchAt(batch.loader, batch.address, batch.reading, batch.epoch, batch.index)
