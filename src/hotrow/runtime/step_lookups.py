"""The lookups of a mode with look-ahead, in the order of the grants, in one process.

A batch of the open step is looked up at once or when it is due. A batch of the next step, which was granted before the
open one is applied, is looked up early: its lookup begins when those of the open step have, and is finished when the
open step is applied. Rows of a step and of the one before are not evicted, whether a lookup is early or not, so that
both ways evict the same rows.
"""

from collections import deque
from dataclasses import dataclass

from hotrow.client.local import Plans
from hotrow.client.local_lookup import BatchKeys, BegunLookup, plans_by_table
from hotrow.data.batch import Batch
from hotrow.modes.base import Grant
from hotrow.runtime.clock import NO_TIME, Elapsed
from hotrow.runtime.executors import LocalWork, Task


@dataclass(slots=True, eq=False)
class _GrantedBatch:
    """A batch that was not handed out to be computed."""

    grant: Grant
    batch: Batch
    lookup: BegunLookup | Exception | None = None  # None: not begun
    busy: Elapsed = NO_TIME  # of beginning it
    task: Task | None = None  # once its lookup is finished


class StepLookups:
    """The batches that were granted, and the keys of those that were looked up. Use it in one thread at a time."""

    def __init__(self, work: LocalWork, step: int) -> None:
        self.step = step  # the open one
        self._work = work
        self._granted: deque[_GrantedBatch] = deque()  # in the order of the grants
        self._keys: dict[int, list[BatchKeys]] = {}  # by step: of lookups that have begun
        self._split: int | None = None  # the step whose update is split

    def add(self, grant: Grant, batch: Batch) -> None:
        """A batch of the open step, or of the next one."""
        self._granted.append(_GrantedBatch(grant, batch))

    @property
    def due(self) -> int:
        """Batches of the open step that were not taken."""
        return sum(each.grant.token <= self.step for each in self._granted)

    @property
    def not_begun(self) -> int:
        """Batches whose lookups have not begun, and can."""
        if any(isinstance(each.lookup, Exception) for each in self._granted):
            return 0
        return sum(each.lookup is None for each in self._granted)

    def take(self) -> Task:
        """The first batch of the open step, with its rows."""
        task = self._finish(self._granted[0])
        self._granted.popleft()
        return task

    def prepare(self, count: int) -> None:
        """While batches are computed: finish the lookup of the next one, if it is due, and begin `count` others.

        A lookup that fails is raised by `take`: the batches before it are computed and applied first.
        """
        self._work.tables.settle()
        for each in list(self._granted)[:1]:
            if each.grant.token <= self.step and isinstance(each.lookup, BegunLookup):
                try:
                    self._finish(each)
                except Exception as fault:
                    each.lookup = fault
                    return
        for each in [each for each in self._granted if each.lookup is None][:count]:
            try:
                self._begin(each)
            except Exception as fault:
                each.lookup = fault
                return

    def _finish(self, granted: _GrantedBatch) -> Task:
        if granted.task is None:
            begun = granted.lookup
            if isinstance(begun, Exception):
                raise begun
            if begun is None:
                begun = self._begin(granted)
            grant, batch = granted.grant, granted.batch
            granted.task = self._work.finish_lookup(grant, batch, self.step, begun, granted.busy)
        return granted.task

    def _begin(self, granted: _GrantedBatch) -> BegunLookup:
        step, tables, began = granted.grant.token, self._work.tables, self._work.clock.moment()
        if step <= self.step:
            begun = tables.begin(granted.batch, self._in_use(step))
        else:
            if self._split != self.step:
                tables.open_step(self._keys[self.step])
                self._split = self.step
            begun = tables.look_ahead(granted.batch, self._in_use(step))
        granted.lookup, granted.busy = begun, self._work.clock.moment().since(began)
        self._keys.setdefault(step, []).append(begun.keys)
        self._keys = {number: keys for number, keys in self._keys.items() if number >= step - 1}
        return begun

    def _in_use(self, step: int) -> Plans:
        return plans_by_table(keys for number in (step - 1, step) for keys in self._keys.get(number, ()))
