"""The executor of one worker: the calling thread computes, and a background thread reads a step ahead.

A batch that is granted before the open one is applied (its token is ahead of the step) is looked up early. While batch
t is computed, the background thread performs what is left of the update of batch t-1, and then begins the lookup of
batch t+1. Both are over when the result of batch t is returned, so nothing runs in the background between two results.
The update of batch t is applied to the rows that batch t+1 needs, then these are read, and batch t+1 is computed.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from hotrow.client.local import NO_PLANS
from hotrow.client.local_lookup import EarlyLookup
from hotrow.data.batch import Batch
from hotrow.modes.base import Grant
from hotrow.runtime.background import BackgroundThread
from hotrow.runtime.executors import BatchResult, LocalWork, NoLosses, Task
from hotrow.store import LookupPlan
from hotrow.worker.core import Learner


@dataclass(slots=True, eq=False)
class _GrantedAhead:
    """A batch of the step after the open one."""

    grant: Grant
    batch: Batch
    lookup: EarlyLookup | Exception | None = None  # None: not begun


class InlineExecutor(NoLosses):
    """The calling thread computes the batches of all workers, in the order of their tokens, on the server's model."""

    has_result = False  # a batch is computed when its result is asked for

    def __init__(self, work: LocalWork, learner: Learner, step: int) -> None:
        self._work, self._learner, self._step = work, learner, step
        self._submitted: list[Task] = []
        self._ahead: deque[_GrantedAhead] = deque()
        self._in_use: Mapping[str, LookupPlan] = NO_PLANS  # of the batch before
        self._background = BackgroundThread("look-ahead")
        self._looks_ahead = work.mode.looks_ahead
        self.lock: AbstractContextManager[object] = nullcontext()

    @property
    def runs_ahead(self) -> bool:
        """This thread is the loop's."""
        return False

    def submit(self, grant: Grant, batch: Batch) -> None:
        if self._looks_ahead and grant.token > self._step:
            self._ahead.append(_GrantedAhead(grant, batch))
            return
        task = self._work.look_up(grant, batch, self._step, self._in_use)
        if self._looks_ahead:
            self._in_use = task.rows.plans
        self._submitted.append(task)

    def set_step(self, step: int) -> None:
        self._step = step

    def next_result(self) -> BatchResult:
        self._background.wait()  # of an attempt that was interrupted
        task = min(self._submitted) if self._submitted else self._finish_lookup()
        self._start_background(task)
        try:
            computed = self._work.compute(task, self._step, self._learner)
        finally:
            self._background.wait()
        self._submitted.remove(task)  # not before: an interrupted batch is computed again
        return self._work.park(computed)

    def close(self, *, failed: bool = False) -> None:
        """End the background thread, and perform what is left of the last update."""
        try:
            self._background.close()
        finally:
            self._work.tables.settle()

    def _finish_lookup(self) -> Task:
        """The next batch, whose lookup was begun early and whose step is open now."""
        ahead = self._ahead[0]
        if isinstance(ahead.lookup, Exception):
            raise ahead.lookup
        if ahead.lookup is None:
            task = self._work.look_up(ahead.grant, ahead.batch, self._step, self._in_use)
        else:
            task = self._work.finish_lookup(ahead.grant, ahead.batch, self._step, ahead.lookup)
        self._ahead.popleft()
        self._in_use = task.rows.plans
        self._submitted.append(task)
        return task

    def _start_background(self, task: Task) -> None:
        tables, ahead = self._work.tables, self._ahead[0] if self._ahead else None
        if ahead is None or ahead.lookup is not None:
            if tables.unsettled:
                self._background.start(tables.settle)
            return

        def look_ahead() -> None:
            tables.settle()
            try:
                ahead.lookup = tables.look_ahead(ahead.batch, task.rows)
            except Exception as fault:  # of the next batch: this one is computed and applied first
                ahead.lookup = fault

        self._background.start(look_ahead)
