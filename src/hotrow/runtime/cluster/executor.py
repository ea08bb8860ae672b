"""The executor of a cluster: sends batches to trainers, whose replies come when the gradients are on the shards."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from queue import Empty, SimpleQueue

from hotrow.data.reading import AnyBatch, BatchName
from hotrow.errors import HotrowError
from hotrow.modes import Mode
from hotrow.modes.base import Grant, RunFacts
from hotrow.runtime.clock import Elapsed
from hotrow.runtime.cluster.caches import ClusterCaches
from hotrow.runtime.cluster.embedding_workers import EmbeddingWorkers
from hotrow.runtime.cluster.remote_parameters import RemoteParameters
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.cluster.step_cutting import StepCutting
from hotrow.runtime.cluster.step_forecast import StepForecast
from hotrow.runtime.executors import BatchResult, WorkerLoss
from hotrow.runtime.interrupts import deliver_pending_sigint
from hotrow.runtime.state import RunState
from hotrow.runtime.step_cut import CutDecision
from hotrow.transport.batches import pack_batch
from hotrow.transport.client import Answer, Outcome
from hotrow.transport.ids import pack_ids
from hotrow.transport.messages import BatchAt, BatchReply, BatchRequest, LookUp

WAKE_S = 0.1  # how long an interrupt, or the loss of a role, may go unnoticed


def shares_of(parts: int, ranks: int) -> list[int]:
    """By rank, the batches of a step: as even as they can be."""
    return [parts // ranks + (rank < parts % ranks) for rank in range(ranks)]


def rank_for(worker: int, given: Sequence[int], shares: Sequence[int]) -> int:
    """The rank that computes a batch of a step that all ranks end together; `given`: by rank, batches of the step.

    When a worker finds no more data, disciplines give its part of a step to workers that have some. A rank with its
    full share waits for the others, so these compute the rest.
    """
    if given[worker] < shares[worker]:
        return worker
    return max(range(len(shares)), key=lambda rank: shares[rank] - given[rank])


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
        current: Callable[[BatchName], AnyBatch],
        uncollected: "Counter[str]",
        dense_is_here: Callable[[], bool] = lambda: False,
        caches: ClusterCaches | None = None,
    ) -> None:
        """`current`: a batch, or its copy where its loader is lost.

        `uncollected`: by trainer, samples whose scores are not collected; `dense_is_here`: whether this process has the
        dense state after the last order.
        """
        self.lock: AbstractContextManager[object] = nullcontext()
        self.trainers = dict(enumerate(roles.trainers))  # by worker
        self._roles, self._parameters, self._mode, self._facts = roles, parameters, mode, facts
        self._state, self._ended, self._dense = state, ended, mode.dense
        self.step = facts.step  # dense steps that are applied
        self._next_look = 0.0
        self._given: dict[int, list[int]] = {}  # by step, the batches that each rank got
        self._prepared = -1  # the last step that shards were told of before its order
        self._forecast = StepForecast(mode.groups[0]) if mode.looks_ahead else None
        self._results: SimpleQueue[tuple[Grant, Outcome]] = SimpleQueue()  # of trainers
        self._refused: SimpleQueue[tuple[Grant, Exception]] = SimpleQueue()  # lookups of embedding workers
        self._current, self._uncollected, self._dense_is_here = current, uncollected, dense_is_here
        self._out: dict[int, tuple[Grant, list[str]]] = {}  # by number, with the roles that have a part in it
        self.cut_step: CutDecision | None = None  # the mode ends with it
        self._is_cut = False
        self._given_up: dict[int, None] = {}  # workers that lost a batch, in order
        self._caches = caches

    @property
    def runs_ahead(self) -> bool:
        """With look-ahead a step is computed while the loop returns the one before it."""
        return self._forecast is not None and self._forecast.is_open

    def submit(self, grant: Grant, batch: AnyBatch) -> None:
        """Send the batch of a grant to its worker; its ids too, or to an embedding worker that looks them up for it.

        Of a batch at a loader only the place is sent.
        """
        if self._is_cut:  # it is dealt again when the mode opens again
            return
        if isinstance(batch, BatchName):
            batch = self._current(batch)
        trained = self._state.samples
        if self._forecast is not None:
            self._prepare_before(grant, self._forecast)
            self._forecast.grant(grant, len(batch))
            trained = self._forecast.samples_before(grant.token, trained)
        trainer = self.trainers[grant.worker if self._dense != "all-reduce" else self._rank(grant)]
        others = [] if self._dense == "server" else list(self.trainers.values())  # a step is all trainers together
        loader = [batch.loader] if isinstance(batch, BatchName) else []
        self._out[grant.grant] = (grant, [trainer, *others, *loader])
        if trainer in self._roles.lost:  # since the grant was decided
            return
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

    def next_result(self) -> BatchResult | None:
        """Wait for the next reply of a trainer; None where workers were lost.

        A lost trainer's replies that came before its end are taken first: these batches are pushed.
        """
        while True:
            self._check_alive()
            self._release_refused()
            if self._losses() or self.must_cut:
                return None
            try:
                grant, outcome = self._results.get(timeout=WAKE_S)
            except Empty:
                deliver_pending_sigint()
                continue
            if grant.grant in self._out and (answer := self._answer(grant, outcome)) is not None:
                return self._finished(grant, answer)

    @property
    def must_cut(self) -> bool:
        """Whether a shard was started again that had gradients of the open step."""
        return self._parameters.must_cut and not self._is_cut

    def take_lost_workers(self) -> list[WorkerLoss]:
        """Workers whose trainer was lost, or whose batch was lost with another role.

        Their open batches are closed, where a cut of the step does not follow.
        """
        losses = self._losses()
        for loss in losses if self._dense == "server" else ():
            self._given_up.pop(loss.worker, None)
            for number in [number for number, (grant, _) in self._out.items() if grant.worker == loss.worker]:
                del self._out[number]
            if not loss.stays:
                del self.trainers[loss.worker]
        return losses

    def cut(self, push: Callable[[BatchResult], int]) -> CutDecision:
        """Stop all trainers in the middle of their step, and decide what becomes of it.

        `push` takes batches that were computed before, and returns the step that is open then.
        """
        self._is_cut = True
        with self._parameters.failing():
            cutting = StepCutting(self._roles, self._parameters, self._mode, self._state, self.trainers)
            reached, step = cutting.stop(), self.step
            while (result := self._next_of_cut()) is not None:
                step = push(result)
            self._parameters.wait_for_orders()
            self.cut_step = cutting.decide(step, reached, self._dense_is_here)
        return self.cut_step

    def note_unanswered(self, grant: int) -> None:
        """A batch of a step that counts was not answered for: let the shards count its rows that never arrived."""
        self._parameters.expect(grant)

    def _next_of_cut(self) -> BatchResult | None:
        """The next batch whose gradients are on the shards; None where all trainers that are left have answered."""
        while any(parts[0] not in self._roles.lost for _, parts in self._out.values()) or not self._results.empty():
            self._roles.check_alive()
            with suppress(Empty):
                grant, outcome = self._results.get(timeout=WAKE_S)
                if grant.grant in self._out and not isinstance(outcome, Exception):
                    return self._finished(grant, outcome)
                self._out.pop(grant.grant, None)
        self._out.clear()
        return None

    def _losses(self) -> list[WorkerLoss]:
        """Those of lost trainers whose replies have all come, and those that lost a batch."""
        if not self._roles.lost and not self._given_up:
            return []
        gone = [worker for worker, name in self.trainers.items() if name in self._roles.lost]
        stays = [worker for worker in self._given_up if worker not in gone]
        lost = [*(worker for worker in gone if self._results.empty()), *stays]
        return [WorkerLoss(worker, self.trainers[worker], worker in stays) for worker in lost]

    @property
    def has_result(self) -> bool:
        """Only in token modes: where trainers end steps together, an order for each step tells them so."""
        return self._dense == "server" and not self._results.empty() and not self._losses()

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
        rank = rank_for(grant.worker, given, shares_of(self._facts.parts, self._facts.workers))
        given[rank] += 1
        return rank

    def _send_ids(self, workers: EmbeddingWorkers, grant: Grant, batch: AnyBatch, trained: int) -> int:
        """Send ids to an embedding worker; returns their sample id there."""
        name, sample = workers.assign(grant.grant)
        self._out[grant.grant][1].append(name)
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
            self._refused.put((grant, outcome))

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
            self._roles.check_alive()
            if self._caches is not None:
                self._caches.stop_idle(self._parameters.count)
            try:
                self._parameters.raise_failures()
            except HotrowError:
                self._roles.caused_by_loss(self._roles.shards)  # a lost shard is the error then
                raise

    def _release_refused(self) -> None:
        """Where ids could not be looked up because a role is lost, the trainer that waits for vectors is told."""
        while not self._refused.empty():
            grant, error = self._refused.get()
            if grant.grant in self._out:
                self._check_caused_by_loss(grant, error)
                if self._roles.embedding_workers is not None:
                    self._roles.embedding_workers.release([grant.grant])

    def _answer(self, grant: Grant, outcome: Outcome) -> Answer | None:
        """The reply to a batch; None where another role that had a part in it is lost."""
        if not isinstance(outcome, Exception):
            return outcome
        self._check_caused_by_loss(grant, outcome)
        del self._out[grant.grant]
        self._given_up[grant.worker] = None
        return None

    def _check_caused_by_loss(self, grant: Grant, error: Exception) -> None:
        """Raise the error of a batch, unless it follows from the loss of a role that had a part in it."""
        if self._parameters.must_cut:
            return
        with self._parameters.failing():
            if not self._roles.caused_by_loss(self._out[grant.grant][1], error):
                raise error

    def _finished(self, grant: Grant, answer: Answer) -> BatchResult:
        _, roles = self._out.pop(grant.grant)
        trainer = roles[0]
        reply = answer.of(BatchReply, trainer)
        self._uncollected[trainer] += reply.samples
        if self._caches is not None:  # of the embedding worker where there is one: it came last
            self._caches.changed_rows[trainer if self._roles.embedding_workers is None else roles[-1]] = (
                reply.changed_rows
            )
        busy = Elapsed(reply.busy_s, reply.busy_s)
        return BatchResult(grant, reply.looked_step, reply.pulled_step, reply.samples, reply.loss, None, busy)


def _place(batch: AnyBatch) -> BatchAt | None:
    """Where to pull a batch; None where this process has it."""
    if not isinstance(batch, BatchName):
        return None
    return BatchAt(batch.loader, batch.address, batch.reading, batch.epoch, batch.index)
