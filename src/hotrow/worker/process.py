"""A trainer: batches arrive at its server, rows and gradients are exchanged by its client, the calling thread computes.

Rows are requested as soon as a batch arrives, in the thread that receives it. Batches are computed in the order of
their tokens, none before its dense step. The gradients of one batch and the lookup of another share one request where
neither has to wait for it.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch

from hotrow.checkpoint import dense as dense_state
from hotrow.client.pooled import PooledTables, RemoteTables, peer_name
from hotrow.client.sharded import PushFacts, ShardedTables
from hotrow.errors import HotrowError, InputError
from hotrow.modes import Mode, mode_of
from hotrow.server.pushes import SeenGrants
from hotrow.transport.batches import unpack_batch
from hotrow.transport.client import RpcClient
from hotrow.transport.faults import fault_of
from hotrow.transport.messages import (
    Arrival,
    BatchReply,
    BatchRequest,
    Begin,
    CloseStep,
    DenseGiven,
    Done,
    Fault,
    GiveDense,
    Meet,
    Query,
    QueryReply,
    Settle,
    Stop,
)
from hotrow.transport.server import Request, RpcServer
from hotrow.transport.tensors import cut, joined
from hotrow.types import RoleId
from hotrow.worker.all_reduce_dense import AllReduceDense
from hotrow.worker.dense_strategy import DenseStrategy, Learned, LearningRates
from hotrow.worker.exchange_queue import ExchangeQueue, PendingBatch, when_all
from hotrow.worker.local_dense import LocalDense
from hotrow.worker.rendezvous import Rendezvous
from hotrow.worker.server_dense import ServerDense
from hotrow.worker.setup import TrainerSetup, check_device

_log = logging.getLogger("hotrow.worker")


class TrainerProcess:
    """One worker of a run."""

    def __init__(self, setup: TrainerSetup, role: RoleId, server: RpcServer, wire: RpcClient) -> None:
        self.role = role
        self._setup, self._server, self._wire = setup, server, wire
        self._client: RemoteTables = (
            PooledTables(setup.spec.tables, wire, values=setup.values, threads=setup.threads)
            if setup.pooled
            else ShardedTables(setup.spec.tables, wire, setup.shards, values=setup.values, threads=setup.threads)
        )
        check_device(setup.device)
        self._learner = setup.spec.learner(device=setup.device)
        self._outgoing = ExchangeQueue(self._client)
        self._meeting = Rendezvous(urlsplit(server.address).hostname or "", setup.device)
        self._inbox: SimpleQueue[PendingBatch | Request | BaseException] = SimpleQueue()
        self._begun: list[PendingBatch] = []
        self._seen = SeenGrants()
        self._mode: Mode | None = None
        self._dense: DenseStrategy | None = None
        self._stopping = False
        self._fault: str | None = None  # of a collective step: no further step is possible after it
        self.batches = self.samples = 0
        self.computed_s = self.waited_s = 0.0

    def serve(self) -> None:
        """Work until a `Stop` message."""
        torch.set_num_threads(self._setup.threads)
        listening = threading.Thread(target=self._listen, name="trainer-server", daemon=True)
        listening.start()
        try:
            while not self._stopping:
                self._take(self._inbox.get())
                while not self._stopping and self._inbox.empty() and self._computable():
                    self._reply_errors(self._next().request, self._compute)
        finally:
            self._leave_mode()
            self._server.stop()
            listening.join()
            self._meeting.close()

    # In the server's thread.

    def _listen(self) -> None:
        try:
            self._server.serve(self._handle)
        except BaseException as error:  # this trainer cannot be reached any more: it ends with the error
            self._inbox.put(error)

    def _handle(self, request: Request) -> None:
        match request.message:
            case BatchRequest() as work:
                self._check_new(work.grant)
                self._inbox.put(self._begin_work(work, request))
                self._seen.add(work.grant)
            case Query("meeting"):
                request.reply(QueryReply(str(self.role), {"port": float(self._meeting.listen())}))
            case Query():
                request.reply(QueryReply(str(self.role), self.figures()))
            case Meet(number, None):
                self._wire.forget(peer_name(number))
                request.reply(Done())
            case Meet(number, str(address)):
                self._wire.connect(peer_name(number), address, near=True)
                request.reply(Done())
            case GiveDense() as give:
                self._give_or_queue(give, request)
            case Begin() | CloseStep() | Settle() | Stop():
                self._inbox.put(request)
            case other:
                raise InputError(f"a trainer does not handle {type(other).__name__}")

    def _give_or_queue(self, give: GiveDense, request: Request) -> None:
        """At once where the step is complete: the thread that computes may be waiting for ranks that have no batch yet.

        Else it is queued before the step completes, and so answered before the next batch is computed.
        """
        dense = self._dense
        if not isinstance(dense, AllReduceDense):
            self._inbox.put(request)
            return
        with dense.changing:
            if dense.step < give.step:
                self._inbox.put(request)
                return
            answer = self._give_dense(give.optimizer)
        request.reply(*answer)

    def _check_new(self, grant: int) -> None:
        """A batch counts once. The server repeats its reply, unless that was too large to be kept."""
        if grant in self._seen:
            message = f"grant={grant}: was computed before a connection broke, and its reply is not kept"
            raise InputError(f"{message}: resume from the last checkpoint, with smaller batches")

    def _begin_work(self, work: BatchRequest, request: Request) -> PendingBatch:
        mode, dense = self._mode, self._dense
        if mode is None or dense is None:
            raise InputError("a batch came before a mode began: send Begin first")
        began = time.perf_counter()
        batch = unpack_batch(work.batch, request.frames, ids=work.sample is None)
        self._client.samples = work.trained
        versions = mode.late is not None and mode.late.by == "version"
        lookup = self._client.prepare_lookup(batch, learn=True, versions=versions, after=work.after, sample=work.sample)
        busy_s = time.perf_counter() - began
        task = PendingBatch(work.token, work.grant, work, request, batch, lookup, busy_s, work.step)
        self._outgoing.look_up(task, may_wait=mode.most_in_flight > 1)
        dense.prefetch(work)
        return task

    def figures(self) -> dict[str, float]:
        """Counters by name."""
        traffic = self._client.traffic
        return {
            "batches": self.batches,
            "samples": self.samples,
            "computed_s": self.computed_s,
            "waited_s": self.waited_s,
            "bytes_sent": traffic.sent,
            "bytes_received": traffic.received,
            "bytes_plain": traffic.plain,
            **{f"asks.{name}": float(count) for name, count in asdict(self._wire.counts).items()},
        }

    # In the thread that computes.

    def _take(self, item: PendingBatch | Request | BaseException) -> None:
        if isinstance(item, BaseException):
            raise item
        if isinstance(item, PendingBatch):
            self._begun.append(item)
            return
        self._reply_errors(item, lambda: item.reply(*self._dispatch(item)))

    def _dispatch(self, request: Request) -> tuple[Any, Sequence[Any]]:
        match request.message:
            case Begin() as begin:
                self._enter_mode(begin, joined(request.frames))
            case CloseStep() as close:
                self._at_work().close_step(close)
            case Settle() as settle:
                self._at_work().settle(settle)
            case GiveDense(optimizer):
                return self._give_dense(optimizer)
            case Stop():
                self._stopping = True
        return Done(), ()

    def _give_dense(self, optimizer: bool) -> tuple[DenseGiven, list[memoryview]]:
        spec, dense = self._setup.spec, self._at_work()
        own = spec.optimizer if optimizer else None
        tensors, settings = dense_state.to_bytes(spec.model, own, dense.before_the_step)
        return DenseGiven(dense.step, settings), cut([tensors], self._server.limits.frame_bytes)

    def _at_work(self) -> DenseStrategy:
        if self._dense is None:
            raise InputError("no mode has begun: send Begin first")
        if self._fault is not None:
            raise InputError(f"step {self._dense.step} has failed here: {self._fault}")
        return self._dense

    def _computable(self) -> bool:
        if not self._begun or self._dense is None:
            return False
        return self._fault is not None or self._dense.may_compute(min(self._begun).token)

    def _next(self) -> PendingBatch:
        return min(self._begun)

    def _compute(self) -> None:
        task = self._next()
        self._begun.remove(task)
        dense = self._at_work()
        asked = self._outgoing.needed(task)
        began = time.perf_counter()
        handle = asked.handle()
        looked = time.perf_counter()
        learned = dense.learn(task.work, task.batch, handle)
        facts = PushFacts(
            task.work.grant, task.work.worker, task.token, self._pulled(task, learned), self._arrival(task.work)
        )
        pushed = self._outgoing.push(self._client.gradients(handle, facts))
        ended = time.perf_counter()
        others = dense.sent(task.work)
        self.batches += 1
        self.samples += len(task.batch)
        self.waited_s += looked - began
        self.computed_s += ended - looked
        tell = partial(self._pushed, task, learned, ended - began)
        when_all([*pushed.asked, *others], lambda fault: self._reply_errors(task.request, partial(tell, fault)))
        self._finish(dense, task.work)

    def _finish(self, dense: DenseStrategy, work: BatchRequest) -> None:
        """The reply to the batch is sent before: the driver may have to close the step for trainers without a batch."""
        try:
            dense.finish(work)
        except Exception as error:  # of a collective: the next request gets the error
            _log.exception("a step failed")
            self._fault = f"{type(error).__name__}: {error}"

    def _pulled(self, task: PendingBatch, learned: Learned) -> int:
        """The step of the rows where they are looked up before the dense parameters, else that of both."""
        return task.looked_step if self._mode is not None and self._mode.groups != ("both",) else learned.pulled_step

    def _arrival(self, work: BatchRequest) -> Arrival | None:
        return None if work.factor is None else Arrival(work.trained, work.lr_scale, work.factor)

    def _pushed(self, task: PendingBatch, learned: Learned, busy_s: float, fault: BaseException | None) -> None:
        """All gradients of a batch are on their servers. Runs in the client's thread."""
        if fault is not None:
            task.request.reply(Fault.of("internal", str(fault)))
            return
        output = np.ascontiguousarray(learned.output.numpy(), np.float32)
        worked = BatchReply(
            task.work.grant,
            task.looked_step,
            learned.pulled_step,
            len(task.batch),
            task.busy_s + busy_s,
            float(learned.loss),
            output.shape,
        )
        task.request.reply(worked, [output])

    def _enter_mode(self, begin: Begin, tensors: bytes) -> None:
        self._leave_mode()
        self._fault = None
        torch.manual_seed(begin.seed)
        setup, spec, mode = self._setup, self._setup.spec, mode_of(json.loads(begin.mode))
        dense_state.from_bytes(tensors, begin.optimizer, spec.model, spec.optimizer)
        rates = None if spec.optimizer is None else LearningRates(spec.optimizer, setup.base_lrs)
        if mode.dense != "server":
            if begin.meeting is None:
                raise InputError(f"meeting=None: in {mode.name} ranks meet, send the address of the first one")
            self._meeting.init(begin.meeting, begin.rank, begin.ranks)
        match mode.dense:
            case "all-reduce":
                self._dense = AllReduceDense(
                    self._learner,
                    rates,
                    share=begin.share,
                    local_batch=begin.local_batch,
                    step=begin.step,
                    trained=begin.trained,
                    clip=spec.clip,
                )
            case "local":
                assert rates is not None
                self._dense = LocalDense(self._learner, rates, step=begin.step, clip=spec.clip)
            case "server":
                self._dense = ServerDense(self._learner, self._wire, setup.places, setup.shards[0], step=begin.step)
        self._mode = mode

    def _leave_mode(self) -> None:
        """End the mode. Batches that it did not come to are not computed in the next one."""
        if self._dense is not None:
            self._dense.close()
        self._meeting.destroy()
        self._dense = self._mode = None
        begun, self._begun = self._begun, []
        self._outgoing = ExchangeQueue(self._client)
        for task in begun:
            task.request.reply(Fault.of("input", f"grant={task.work.grant}: its mode ended before it was computed"))

    def _reply_errors(self, request: Request, act: Callable[[], None]) -> None:
        """Answer the request with the error where the action fails."""
        try:
            act()
        except HotrowError as error:
            request.reply(fault_of(error))
        except Exception as error:  # of the user's model, or of a collective: the driver gets it
            _log.exception("a trainer failed")
            request.reply(Fault.of("internal", f"{type(error).__name__}: {error}"))
