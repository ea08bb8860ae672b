"""Executors of one worker, which compute in the calling thread on the server's model."""

from contextlib import AbstractContextManager, nullcontext

from hotrow.data.batch import Batch
from hotrow.modes.base import Grant
from hotrow.runtime.background import BackgroundThread
from hotrow.runtime.executors import BatchResult, LocalWork, NoLosses, Task
from hotrow.runtime.interrupts import defer_every_sigint
from hotrow.runtime.step_lookups import StepLookups
from hotrow.worker.core import Learner


class InlineExecutor(NoLosses):
    """Rows are looked up when a batch is submitted; batches are computed in the order of their tokens."""

    has_result = False  # a batch is computed when its result is asked for

    def __init__(self, work: LocalWork, learner: Learner, step: int) -> None:
        self._work, self._learner, self._step = work, learner, step
        self._submitted: list[Task] = []
        self.lock: AbstractContextManager[object] = nullcontext()

    @property
    def runs_ahead(self) -> bool:
        """This thread is the loop's."""
        return False

    def submit(self, grant: Grant, batch: Batch) -> None:
        self._submitted.append(self._work.look_up(grant, batch, self._step))

    def set_step(self, step: int) -> None:
        self._step = step

    def next_result(self) -> BatchResult:
        task = min(self._submitted)
        computed = self._work.compute(task, self._step, self._learner)
        self._submitted.remove(task)  # not before: an interrupted batch is computed again
        return self._work.park(computed)

    def close(self, *, failed: bool = False) -> None:
        """Nothing runs."""
        self._work.close(failed=failed)


class InlineStepExecutor(NoLosses):
    """Of a mode with look-ahead: a background thread looks up rows while the calling thread computes.

    Each batch of a step leaves its share of the next step's lookups to the background thread, the first one also what
    is left of the update of the step before. All is over when the result of the batch is returned, so nothing runs in
    the background between two results.
    """

    has_result = False  # a batch is computed when its result is asked for

    def __init__(self, work: LocalWork, learner: Learner, step: int) -> None:
        self._work, self._learner = work, learner
        self._lookups = StepLookups(work, step)
        self._task: Task | None = None  # being computed
        self._background = BackgroundThread("look-ahead", lambda: work.binder.bind("store"))
        self.lock: AbstractContextManager[object] = nullcontext()

    @property
    def runs_ahead(self) -> bool:
        """This thread is the loop's."""
        return False

    def submit(self, grant: Grant, batch: Batch) -> None:
        self._lookups.add(grant, batch)

    def set_step(self, step: int) -> None:
        self._lookups.step = step

    def next_result(self) -> BatchResult:
        self._background.wait()  # of an attempt that was interrupted
        if self._task is None:
            with defer_every_sigint():  # a lookup counts ids: it must not be begun twice
                self._task = self._lookups.take()
        self._start_background()
        try:
            computed = self._work.compute(self._task, self._lookups.step, self._learner)
        finally:
            self._background.wait()
        self._task = None  # not before: an interrupted batch is computed again
        return self._work.park(computed)

    def _start_background(self) -> None:
        lookups = self._lookups
        share = -(-lookups.not_begun // (lookups.due + 1))
        if share or lookups.due or self._work.tables.unsettled:
            self._background.start(lambda: lookups.prepare(share))

    def close(self, *, failed: bool = False) -> None:
        """End the background thread, and perform what is left of the last update."""
        try:
            self._background.close()
        finally:
            self._work.tables.settle()
