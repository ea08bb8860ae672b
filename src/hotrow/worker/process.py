"""A trainer: batches arrive at its server, rows and gradients are exchanged by its client, the calling thread computes.

Rows are requested as soon as a batch arrives, in the thread that receives it. Batches are computed in the order of
their tokens, none before its dense step. The gradients of one batch and the lookup of another share one request where
neither has to wait for it.
"""

import json
import threading
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import partial
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import torch

from hotrow.checkpoint import dense as dense_state
from hotrow.client.pooled import peer_name
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.loading.service import FetchSource, LoaderService, no_source
from hotrow.modes import mode_of
from hotrow.server.pushes import SeenGrants
from hotrow.transport.batches import unpack_batch
from hotrow.transport.client import RpcClient
from hotrow.transport.faults import fault_of
from hotrow.transport.messages import (
    BatchRequest,
    Begin,
    CloseStep,
    CollectScores,
    CutStep,
    DenseGiven,
    Done,
    FlushCache,
    ForgetLoader,
    GiveDense,
    LeaveMeeting,
    Meet,
    Query,
    QueryReply,
    Regroup,
    Settle,
    ShardAt,
    StepCut,
    Stop,
)
from hotrow.transport.server import Request, RpcServer
from hotrow.transport.sketches import pack_sketch
from hotrow.transport.tensors import cut, joined
from hotrow.types import RoleId
from hotrow.worker.all_reduce_dense import AllReduceDense
from hotrow.worker.batch_computation import BatchComputation
from hotrow.worker.batch_fetcher import BatchFetcher
from hotrow.worker.dense_strategy import DenseStrategy
from hotrow.worker.evaluation import EvaluationService
from hotrow.worker.exchange_queue import PendingBatch
from hotrow.worker.open_dense import open_dense
from hotrow.worker.rendezvous import Rendezvous
from hotrow.worker.reply_errors import reply_errors
from hotrow.worker.scores import ScoreCollector
from hotrow.worker.setup import TrainerSetup, check_device
from hotrow.worker.trainer_mode import TrainerMode
from hotrow.worker.trainer_rows import TrainerRows

CUT = "it was cut because a role was lost"


class TrainerProcess:
    """One worker of a run."""

    def __init__(
        self,
        setup: TrainerSetup,
        role: RoleId,
        server: RpcServer,
        wire: RpcClient,
        fetch_source: FetchSource = no_source,
    ) -> None:
        """`fetch_source`: of the data, where this trainer reads too."""
        self.role = role
        self._setup, self._spec, self._server, self._wire = setup, setup.role.spec, server, wire
        check_device(setup.device)
        self._rows = TrainerRows(setup, wire)
        evaluated = deepcopy(self._spec.model)  # now, in host memory: what a model keeps of a batch has no copy
        self._learner = self._spec.learner(device=setup.device)
        self._meeting = Rendezvous(urlsplit(server.address).hostname or "", setup.device)
        self._inbox: SimpleQueue[tuple[TrainerMode, PendingBatch] | Request | BaseException] = SimpleQueue()
        hints = self._rows.hints
        self._loader = LoaderService(fetch_source, None if hints is None else hints.send)
        self._fetcher = BatchFetcher(role, wire, self._loader)
        self._evaluation = EvaluationService(setup, evaluated, wire, self._fetcher)
        self._seen = SeenGrants()
        self._open: TrainerMode | None = None  # between two modes
        self._scores = ScoreCollector(self._spec.task)
        self._computation = BatchComputation(self._rows, self._scores)
        self._stopping = False

    def serve(self) -> None:
        """Work until a `Stop` message."""
        torch.set_num_threads(self._setup.role.threads)
        listening = threading.Thread(target=self._listen, name="trainer-server", daemon=True)
        listening.start()
        try:
            while not self._stopping:
                self._take(self._inbox.get())
                while not self._stopping and self._inbox.empty() and (opened := self._open) and opened.computable:
                    task = opened.take_next()
                    reply_errors(task.request, partial(self._computation.compute, opened, task))
        finally:
            self._leave_mode()
            self._server.stop()
            listening.join()
            self._fetcher.close()
            self._evaluation.close()
            self._loader.close()
            self._meeting.close()

    # In the server's thread.

    def _listen(self) -> None:
        try:
            self._server.serve(self._handle, lambda message, _: self._loader.take(message))
        except BaseException as error:  # this trainer cannot be reached any more: it ends with the error
            self._inbox.put(error)

    def _handle(self, request: Request) -> None:
        match request.message:
            case BatchRequest() as work:
                self._check_new(work.grant)
                opened = self._opened()
                if work.at is None:
                    self._begin_work(opened, work, request, _batch_of(work, request))
                else:
                    begin = partial(self._begin_work, opened, work, request)
                    self._fetcher.fetch(request, work.at, begin, ids=work.sample is None)
                self._seen.add(work.grant)
            case ForgetLoader(loader):
                self._fetcher.forget(loader)
                request.reply(Done())
            case message if self._loader.handles(message):
                self._loader.handle(request)
            case message if self._evaluation.handles(message):
                self._evaluation.handle(request)
            case Query("meeting"):
                request.reply(QueryReply(str(self.role), {"port": float(self._meeting.listen())}))
            case LeaveMeeting(meeting):  # the thread that computes may wait there
                self._meeting.abandon(meeting)
                request.reply(Done())
            case Query():
                request.reply(QueryReply(str(self.role), self.figures()))
            case Meet(number, None):
                self._wire.forget(peer_name(number))
                request.reply(Done())
            case Meet(number, str(address)):
                self._wire.connect(peer_name(number), address, near=True)
                request.reply(Done())
            case ShardAt(name, address, incarnation):
                self._wire.reconnect(name, address)
                self._rows.set_incarnation(name, incarnation)
                self._evaluation.set_incarnation(name, incarnation)
                request.reply(Done())
            case GiveDense() as give:
                self._give_or_queue(give, request)
            case CollectScores(number):
                request.reply(*pack_sketch(self._scores.take(number)))
            case FlushCache() as flush:
                self._flush(request, flush)
            case CutStep():  # at once: the thread that computes may wait for rows that lost ranks have to update
                self._opened().fail(CUT)
                self._inbox.put(request)
            case Begin() | CloseStep() | Regroup() | Settle() | Stop():
                self._inbox.put(request)
            case other:
                raise InputError(f"a trainer does not handle {type(other).__name__}")

    def _flush(self, request: Request, flush: FlushCache) -> None:
        """In a thread of its own: the one that computes may be waiting for ranks that have no batch yet, and this one
        has to hear of a shard that is started again meanwhile."""

        def act() -> None:
            request.reply(self._rows.flush(flush))

        threading.Thread(target=reply_errors, args=(request, act), name="cache-flush", daemon=True).start()

    def _give_or_queue(self, give: GiveDense, request: Request) -> None:
        """At once where the step is complete: the thread that computes may be waiting for ranks that have no batch yet.

        A collective that fails leaves the parameters of the step before.

        Else it is queued before the step completes, and so answered before the next batch is computed.
        """
        opened = self._open
        if opened is None or not isinstance(opened.dense, AllReduceDense):
            self._inbox.put(request)
            return
        with opened.dense.changing:
            if opened.dense.step < give.step:
                self._inbox.put(request)
                return
            answer = self._give_dense(opened.dense, optimizer=give.optimizer)
        request.reply(*answer)

    def _check_new(self, grant: int) -> None:
        """A batch counts once. The server repeats its reply, unless that was too large to be kept."""
        if grant in self._seen:
            message = f"grant={grant}: was computed before a connection broke, and its reply is not kept"
            raise InputError(f"{message}: resume from the last checkpoint")

    def _begin_work(self, opened: TrainerMode, work: BatchRequest, request: Request, batch: Batch) -> None:
        """Also in the thread of the fetcher; `opened`: when the batch was requested."""
        epoch = self._rows.epoch  # before the check: a mode ends before it rises
        if opened is not self._open:
            raise _mode_ended(work)
        began = time.perf_counter()
        lookup, looked_step = self._rows.prepare_lookup(opened.mode, work, batch, epoch)
        busy_s = time.perf_counter() - began
        task = PendingBatch(work.token, work.grant, work, request, batch, lookup, busy_s, looked_step)
        opened.look_up(task)
        self._inbox.put((opened, task))

    def figures(self) -> dict[str, float]:
        """Counters by name."""
        return {
            **self._computation.figures(),
            **self._rows.figures(),
            **self._loader.figures(),
            **{f"asks.{name}": float(count) for name, count in asdict(self._wire.counts).items()},
        }

    # In the thread that computes.

    def _take(self, item: tuple[TrainerMode, PendingBatch] | Request | BaseException) -> None:
        if isinstance(item, BaseException):
            raise item
        if isinstance(item, Request):
            reply_errors(item, lambda: item.reply(*self._dispatch(item)))
            return
        opened, task = item
        if opened is self._open:
            opened.add(task)
        else:
            _refuse(task)

    def _dispatch(self, request: Request) -> tuple[Any, Sequence[Any]]:
        match request.message:
            case Begin() as begin:
                self._enter_mode(begin, joined(request.frames))
            case CloseStep() as close:
                opened = self._opened()
                opened.together(partial(opened.working().close_step, close))
            case CutStep():
                opened = self._opened()
                opened.leave_group(CUT)
                return StepCut(opened.dense.step), ()
            case Regroup(meeting, rank, ranks):
                opened = self._opened()
                opened.dense.forget_step()
                self._meeting.init(meeting, rank, ranks)
                opened.mend()
            case Settle() as settle:
                opened = self._opened()
                opened.together(partial(opened.working().settle, settle))
            case GiveDense(optimizer):
                return self._give_dense(self._opened().dense, optimizer=optimizer)
            case Stop():
                self._stopping = True
        return Done(), ()

    def _give_dense(self, dense: DenseStrategy, *, optimizer: bool) -> tuple[DenseGiven, list[memoryview]]:
        spec = self._spec
        own = spec.optimizer if optimizer else None
        tensors, settings = dense_state.to_bytes(spec.model, own, dense.before_the_step)
        return DenseGiven(dense.step, settings), cut([tensors], self._server.limits.frame_bytes)

    def _opened(self) -> TrainerMode:
        """In either thread."""
        if (opened := self._open) is None:
            raise InputError("no mode has begun: send Begin first")
        return opened

    def _enter_mode(self, begin: Begin, tensors: bytes) -> None:
        self._leave_mode()
        torch.manual_seed(begin.seed)
        self._rows.begin_mode(begin.ranks)
        spec, mode = self._spec, mode_of(json.loads(begin.mode))
        dense_state.from_bytes(tensors, begin.optimizer, spec.model, spec.optimizer)
        if mode.dense != "server":
            if begin.meeting is None:
                raise InputError(f"meeting=None: in {mode.name} ranks meet, send the address of the first one")
            self._meeting.init(begin.meeting, begin.rank, begin.ranks)
        dense = open_dense(mode, begin, self._setup, self._learner, self._wire)
        self._open = TrainerMode(mode, dense, self._rows.client, self._meeting)

    def _leave_mode(self) -> None:
        """End the mode. Batches that it did not come to are not computed in the next one."""
        opened, self._open = self._open, None
        uncomputed = [] if opened is None else opened.close()
        self._meeting.destroy()
        for task in uncomputed:
            _refuse(task)


def _batch_of(work: BatchRequest, request: Request) -> Batch:
    if work.batch is None:
        raise InputError(f"grant={work.grant}: came without a batch, and without the loader that has it")
    return unpack_batch(work.batch, request.frames, ids=work.sample is None)


def _refuse(task: PendingBatch) -> None:
    task.request.reply(fault_of(_mode_ended(task.work)))


def _mode_ended(work: BatchRequest) -> InputError:
    return InputError(f"grant={work.grant}: its mode ended before it was computed")
