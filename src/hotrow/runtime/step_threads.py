"""One thread per worker, in a mode with look-ahead: the loop's thread looks up rows, the workers compute."""

from collections.abc import Sequence

from hotrow.data.batch import Batch
from hotrow.modes.base import Grant
from hotrow.runtime.executors import BatchResult, LocalWork, Pull, ThreadExecutor
from hotrow.runtime.interrupts import defer_every_sigint
from hotrow.runtime.step_lookups import StepLookups
from hotrow.worker.core import Learner


class StepThreadExecutor(ThreadExecutor):
    """Rows are looked up in the order of the grants, so that results do not depend on the speed of workers.

    A worker computes as soon as its own rows are there. While all compute, the loop's thread performs what is left of
    the update of the step before, and looks up the next step where that is granted.
    """

    def __init__(self, work: LocalWork, learners: Sequence[Learner], pull: Pull, step: int) -> None:
        self._lookups = StepLookups(work, step)
        super().__init__(work, learners, pull, step)

    def submit(self, grant: Grant, batch: Batch) -> None:
        self._lookups.add(grant, batch)

    def set_step(self, step: int) -> None:
        self._lookups.step = step
        super().set_step(step)

    def next_result(self) -> BatchResult:
        lookups = self._lookups
        with defer_every_sigint():  # a lookup counts ids: it must not be begun twice
            while lookups.due:
                task = lookups.take()
                self._inboxes[task.grant.worker].put(task)
            lookups.prepare(lookups.not_begun)
        return super().next_result()

    def close(self, *, failed: bool = False) -> None:
        """End all workers, and perform what is left of the last update."""
        try:
            super().close(failed=failed)
        finally:
            self._work.tables.settle()
