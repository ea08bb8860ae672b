"""The computation of a batch on a trainer: wait for its rows, forward and backward, send the gradients, reply."""

import logging
import time
from functools import partial

from hotrow.client.pooled import InFlightPush
from hotrow.client.sharded import PushFacts
from hotrow.errors import HotrowError
from hotrow.transport.errors import PeerLost, RemoteFault
from hotrow.transport.futures import when_all
from hotrow.transport.messages import Arrival, BatchReply, BatchRequest, Fault
from hotrow.worker.dense_strategy import Learned
from hotrow.worker.exchange_queue import PendingBatch
from hotrow.worker.reply_errors import reply_errors
from hotrow.worker.scores import ScoreCollector
from hotrow.worker.trainer_mode import TrainerMode
from hotrow.worker.trainer_rows import TrainerRows

WAKE_S = 0.1  # between two looks at whether the step was cut

_log = logging.getLogger("hotrow.worker")


class BatchComputation:
    """Computes batches, one after the other, and counts them."""

    def __init__(self, rows: TrainerRows, scores: ScoreCollector) -> None:
        self._rows, self._scores = rows, scores
        self._batches = self._samples = 0
        self._computed_s = self._waited_s = 0.0

    def compute(self, opened: TrainerMode, task: PendingBatch) -> None:
        """The reply is sent when all gradients are on their servers."""
        dense = opened.working()
        asked = opened.outgoing.needed(task)
        began = time.perf_counter()
        try:
            while not asked.wait(WAKE_S):
                opened.working()
            handle = asked.handle()
        except HotrowError:
            dense.give_up(task.work)
            raise
        looked = time.perf_counter()
        learned = dense.learn(task.work, task.batch, handle)
        pulled_step = opened.pulled_step(task, learned.pulled_step)
        facts = PushFacts(task.work.grant, task.work.worker, task.token, pulled_step, _arrival(task.work))
        pushed = opened.outgoing.push(self._rows.client.gradients(handle, facts))
        ended = time.perf_counter()
        self._scores.add(learned.output, task.batch)  # before the reply: the driver may collect after it
        others = dense.sent(task.work)
        self._batches += 1
        self._samples += len(task.batch)
        self._waited_s += looked - began
        self._computed_s += ended - looked
        tell = partial(self._pushed, task, learned, ended - began, pushed)
        when_all([*pushed.asked, *others], lambda fault: reply_errors(task.request, partial(tell, fault)))
        _finish(opened, task.work)

    def figures(self) -> dict[str, float]:
        """Counters by name."""
        return {
            "batches": self._batches,
            "samples": self._samples,
            "computed_s": self._computed_s,
            "waited_s": self._waited_s,
        }

    def _pushed(
        self, task: PendingBatch, learned: Learned, busy_s: float, push: InFlightPush, fault: BaseException | None
    ) -> None:
        """All gradients of a batch are on their servers. Runs in the client's thread."""
        if fault is not None:
            lost = isinstance(fault, PeerLost) or (isinstance(fault, RemoteFault) and fault.kind == "lost")
            task.request.reply(Fault.of("lost" if lost else "internal", str(fault)))
            return
        worked = BatchReply(
            task.work.grant,
            task.looked_step,
            learned.pulled_step,
            len(task.batch),
            task.busy_s + busy_s,
            float(learned.loss),
            push.changed_rows,
        )
        task.request.reply(worked)


def _finish(opened: TrainerMode, work: BatchRequest) -> None:
    """The reply to the batch is sent before: the driver may have to close the step for trainers without a batch."""
    try:
        opened.together(partial(opened.dense.finish, work))
    except Exception as error:  # of a collective: the next request gets the error
        _log.warning("step %d failed: %s", opened.dense.step, error)


def _arrival(work: BatchRequest) -> Arrival | None:
    return None if work.factor is None else Arrival(work.trained, work.lr_scale, work.factor)
