"""One evaluation by the trainers of a cluster: the driver hands out the names of batches, and merges sketches."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue

from hotrow.data.loader import Loader
from hotrow.data.reading import BatchName
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.runtime.cluster.dealing import Dealing
from hotrow.runtime.cluster.reading import ClusterReading
from hotrow.runtime.cluster.roles import WAKE_S, Roles
from hotrow.runtime.interrupts import deliver_pending_sigint
from hotrow.runtime.losses import WorkersLost
from hotrow.transport.client import Answer
from hotrow.transport.errors import RemoteFault
from hotrow.transport.messages import BatchAt, BeginEvaluation, EndEvaluation, EvaluateBatch, EvaluationScores
from hotrow.types import RoleId
from hotrow.worker.evaluator_frames import merged_evaluators, unpack_evaluator
from hotrow.worker.evaluators import AnyEvaluator


class ClusterEvaluation:
    """Deals batches to the trainers that the run has when it begins."""

    def __init__(self, roles: Roles, begin: BeginEvaluation) -> None:
        self._roles, self._begin = roles, begin
        self._trainers = list(roles.trainers)
        self._dealing = Dealing(self._trainers)
        self._next_look = 0.0  # at whether all roles are alive
        self._predicted: SimpleQueue[tuple[RoleId, BatchName, Future[Answer]]] = SimpleQueue()

    def run(self, loader: Loader, reading: ClusterReading, dense: Sequence[memoryview]) -> AnyEvaluator:
        """Predict all batches of a loader, which `reading` reads, with the dense parameters."""
        if not self._trainers:  # lost while the evaluation was prepared: no batch could ever be dealt
            raise WorkersLost("no trainer is left that could evaluate")
        held, loader.held, loader.remote = loader.held, None, reading
        try:
            for asked in self._roles.request_all(self._trainers, self._begin, dense):
                self._answer(asked)
            for _, batch in loader:
                if not isinstance(batch, BatchName):  # this process reads what lost roles would have read
                    raise HotrowError("no role is left that reads the data of this evaluation")
                self._deal(batch, reading)
            while self._dealing.open:
                self._finish_next(reading)
            return self._collected()
        finally:
            loader.held, loader.remote = held, None

    def _deal(self, batch: BatchName, reading: ClusterReading) -> None:
        while (dealt := self._dealing.deal(batch.loader, len(batch))) is None:
            self._finish_next(reading)
        trainer, number = dealt
        at = BatchAt(batch.loader, batch.address, batch.reading, batch.epoch, batch.index)
        request = EvaluateBatch(self._begin.evaluation, number, at)
        asked = self._roles.rpc.request(trainer, request, deadline=False)
        asked.add_done_callback(partial(self._put, trainer, batch))

    def _put(self, trainer: RoleId, batch: BatchName, asked: "Future[Answer]") -> None:
        """Runs in the client's thread."""
        self._predicted.put((trainer, batch, asked))

    def _finish_next(self, reading: ClusterReading) -> None:
        """Wait until a trainer has predicted a batch."""
        while True:
            deliver_pending_sigint()
            self._check_alive()
            try:
                trainer, batch, asked = self._predicted.get(timeout=WAKE_S)
                break
            except Empty:
                continue
        self._answer(asked)
        self._dealing.done(trainer)
        reading.release(batch)

    def _check_alive(self) -> None:
        """Regularly, also while replies come: the batches of a lost trainer are never predicted."""
        if (now := time.monotonic()) >= self._next_look:
            self._next_look = now + WAKE_S
            self._roles.check_alive()

    def _collected(self) -> AnyEvaluator:
        asked = self._roles.request_all(self._trainers, EndEvaluation(self._begin.evaluation))
        parts, dealt = [], []
        for name, each in zip(self._trainers, asked, strict=True):
            answer = self._answer(each)
            part = unpack_evaluator(answer.of(EvaluationScores, name), answer.frames)
            if part is not None:
                parts.append(part)
                dealt.append(self._dealing.dealt(name))
        return AnyEvaluator(chosen=merged_evaluators(parts, dealt) if parts else None)

    def _answer(self, asked: "Future[Answer]") -> Answer:
        """A reply; an error as it would be raised here."""
        try:
            return self._roles.answer(asked)
        except RemoteFault as fault:
            kinds: dict[str, type[HotrowError]] = {"input": InputError, "config": ConfigError}
            raise kinds[fault.kind](fault.sentence) if fault.kind in kinds else fault from None
