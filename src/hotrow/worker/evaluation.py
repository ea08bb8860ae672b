"""Evaluations on a trainer: batches are predicted by a copy of the model, in a thread of its own.

The thread that trains may be waiting for other trainers in the middle of a step, and its parameters are those of that
step. An evaluation has the parameters that the driver sends, and rows as an order left them.
"""

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TypeAlias

import torch
from torch import nn

from hotrow.checkpoint import dense as dense_state
from hotrow.client.sharded import PendingExchange, ShardedTables
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import BeginEvaluation, Done, EndEvaluation, EvaluateBatch, EvaluationScores, Message
from hotrow.transport.request import Request
from hotrow.transport.tensors import joined
from hotrow.worker.batch_fetcher import BatchFetcher
from hotrow.worker.core import Learner
from hotrow.worker.evaluator_frames import Frames, pack_evaluator
from hotrow.worker.evaluators import AnyEvaluator
from hotrow.worker.losses import predictions_of
from hotrow.worker.reply_errors import reply_errors
from hotrow.worker.setup import TrainerSetup

JOIN_S = 1.0

Work: TypeAlias = tuple[Request, Callable[[], None]]


class EvaluationService:
    """One evaluation at a time. Batches are added in the order of their requests."""

    def __init__(self, setup: TrainerSetup, model: nn.Module, wire: RpcClient, fetcher: BatchFetcher) -> None:
        """`model`: a copy; it goes to the trainer's device with the first evaluation."""
        self._setup, self._model, self._wire, self._fetcher = setup, model, wire, fetcher
        self._learner: Learner | None = None
        self._tables: ShardedTables | None = None
        self._evaluation, self._after = -1, 0  # in the thread of the server
        self._batches: set[int] = set()  # numbers of those that came
        self._begun, self._evaluator = -1, AnyEvaluator()  # in the thread of evaluations
        self._result: tuple[EvaluationScores, Frames] | None = None  # of the evaluation, once it has ended
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @staticmethod
    def handles(message: Message) -> bool:
        """Whether a request belongs to an evaluation."""
        return isinstance(message, BeginEvaluation | EvaluateBatch | EndEvaluation)

    def handle(self, request: Request) -> None:
        """In the thread of the server."""
        match request.message:
            case BeginEvaluation(number, after):
                self._evaluation, self._after, self._batches = number, after, set()
                self._put(request, partial(self._begin, request, number))
            case EvaluateBatch(number, batch, at):
                self._check_open(number)
                if batch in self._batches:
                    message = f"batch {batch} of evaluation {number}: was predicted before a connection broke"
                    raise InputError(f"{message}, and its reply is not kept: evaluate again")
                self._batches.add(batch)
                self._fetcher.fetch(request, at, partial(self._look_up, request, number), ids=True)
            case EndEvaluation(number):
                self._check_open(number)
                self._put(request, lambda: request.reply(*self._end()))

    def close(self) -> None:
        """A prediction that never ends does so with the process."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(JOIN_S)

    def _check_open(self, number: int) -> None:
        if number != self._evaluation:
            raise InputError(f"evaluation {number}: is not open here, the last one is {self._evaluation}")

    def set_incarnation(self, shard: str, incarnation: int) -> None:
        """A shard was started again."""
        if self._tables is not None:
            self._tables.set_incarnation(shard, incarnation)

    def _put(self, request: Request, act: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="trainer-evaluation", daemon=True)
            self._thread.start()
        self._queue.put((request, act))

    def _look_up(self, request: Request, number: int, batch: Batch) -> None:
        """In the thread of the fetcher: rows come while batches before are predicted."""
        self._check_open(number)
        if (tables := self._tables) is None:
            raise InputError(f"evaluation {number}: has not begun here")
        asked = tables.exchange(None, tables.prepare_lookup(batch, learn=False, after=self._after))
        self._put(request, partial(self._predict, request, number, batch, asked))

    # In the thread of evaluations.

    def _run(self) -> None:
        torch.set_num_threads(self._setup.role.threads)
        while (work := self._queue.get()) is not None:
            reply_errors(*work)

    def _begin(self, request: Request, number: int) -> None:
        setup, spec = self._setup, self._setup.role.spec
        if self._learner is None or self._tables is None:
            self._learner = spec.learner(self._model, device=setup.device)
            self._tables = ShardedTables(
                spec.tables, self._wire, setup.shards, values=setup.role.values, threads=setup.role.threads
            )
        dense_state.from_bytes(joined(request.frames), None, self._model, None)
        self._evaluator = AnyEvaluator(spec.task, predictions_of(self._model, spec.loss, spec.task), sketched=True)
        self._begun, self._result = number, None
        request.reply(Done())

    def _predict(self, request: Request, number: int, batch: Batch, asked: PendingExchange) -> None:
        if self._learner is None or number != self._begun:  # another one has begun since its rows were requested
            raise InputError(f"evaluation {number}: ended before the batch was predicted")
        self._evaluator.add(self._learner.predict(batch, asked.handle()), batch)
        request.reply(Done())

    def _end(self) -> tuple[EvaluationScores, Frames]:
        if self._result is None:
            self._result = pack_evaluator(self._evaluator.chosen)
        return self._result
