"""A working set whose lookups are those of a trainer: batches overlap, and rows of batches in flight stay.

`WorkingSet` has one large batch at a time. Here a lookup pulls the rows that its batch lacks, and rows of plans that
are still in use keep their place, so that a gradient which comes later finds its row. Rows of the batch after it are
read ahead where the tier below has them; new ones are made when they are looked up, as without this tier.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from hotrow.errors import InputError
from hotrow.store.applied import Applied
from hotrow.store.hbm.lower import LowerTier
from hotrow.store.hbm.rows import HbmPlan, HbmRows, KeyBatch, joined_rows
from hotrow.store.hbm.tier import HbmTier
from hotrow.store.hbm.working_set import WorkingSet


class LowerRows(LowerTier, Protocol):
    """A tier below that can be read without making rows."""

    def find(self, keys: Tensor) -> HbmRows:
        """Whole rows of those of distinct keys that have one, in their order. None is made or seen."""


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A batch whose missing rows are on their way, those that the tier below has."""

    batch: KeyBatch
    generation: int  # of the table when it was asked what it lacks
    missing: Tensor
    rows: "Future[HbmRows] | None"  # None: it lacks none


class BatchWorkingSet(WorkingSet[HbmPlan]):
    """Tables of one GPU above a tier that holds all rows. One thread at a time."""

    upper: HbmTier

    def __init__(self, upper: HbmTier, lower: LowerRows) -> None:
        super().__init__(upper, lower)
        self._rows_below = lower
        self._ahead: _Ahead | None = None
        self._changed = False  # since the last flush
        self._looked_up = torch.zeros(1, dtype=torch.int64, device=upper.device)

    @property
    def looked_up(self) -> int:
        """Distinct keys of all lookups; those whose rows were not there are in `moved.up`. Waits for the device."""
        return int(self._looked_up)

    def look_up(self, batch: KeyBatch, *, samples: int = 0, pinned: Sequence[HbmPlan] = ()) -> HbmPlan:
        """The rows of a folded batch, pulled where GPU memory lacks them; rows of pinned plans are not displaced.

        `samples` counts all samples trained so far. New rows start in the SWAP period of it.
        """
        self._settle()
        generation, plan = self.upper.generation, self.upper.touch(batch)
        self._looked_up += plan.fold(deterministic=False).size
        ahead, self._ahead = self._ahead, None
        if ahead is not None and (ahead.batch is not batch or ahead.generation != generation):
            ahead = None
            self.moved.reread += 1
        rows = self._read_missing(plan, samples) if ahead is None else self._completed(ahead, samples)
        if rows is None:
            return plan
        self._put(rows, plan, pinned)
        return self.upper.find(batch)

    def _read_missing(self, plan: HbmPlan, samples: int) -> HbmRows | None:
        """The rows that a plan lacks; None where it lacks none."""
        missing = plan.absent_keys()
        return self._thread.submit(self._read, missing.cpu(), None, samples).result() if len(missing) else None

    def _completed(self, ahead: _Ahead, samples: int) -> HbmRows | None:
        """What was read ahead, and the rows that were not there to be read."""
        if ahead.rows is None:
            return None
        rows = self._copies.record_use(ahead.rows.result())
        self.moved.up_ahead += len(rows)
        if len(rows) == len(ahead.missing):
            return rows
        fresh = ahead.missing[~torch.isin(ahead.missing, rows.keys)]
        made = self._copies.record_use(self._thread.submit(self._read, fresh.cpu(), None, samples).result())
        return joined_rows([rows, made])

    def _put(self, rows: HbmRows, plan: HbmPlan, pinned: Sequence[HbmPlan]) -> None:
        """Rows from below take the places of others, which go down."""
        rows = self._copies.record_use(rows)
        state = rows.state if rows.state.shape[1] else None
        put = self.upper.put_and_evict(
            rows.keys, rows.values, state, rows.fields, saved=True, distinct=True, pinned=[plan, *pinned]
        )
        self._write_evicted(put.evicted)
        self.moved.up += len(rows) - put.turned_away
        if put.turned_away:
            raise InputError(
                f"table {self.upper.spec.name!r}: {put.turned_away:,} of {len(rows):,} rows found no room in GPU "
                f"memory, which holds {self.upper.spec.slots:,} in buckets of {self.upper.spec.bucket_slots}, beside "
                f"those of {len(pinned):,} batches in flight: give the table more hbm, or take smaller batches or "
                "fewer workers"
            )

    def prefetch_batch(self, batch: KeyBatch) -> None:
        """Begin to read the rows of the next batch that GPU memory lacks. Its lookup has to be the next one."""
        self._settle()
        missing = self.upper.find(batch).absent_keys()
        rows = self._thread.submit(self._read_there, missing.cpu()) if len(missing) else None
        self._ahead = _Ahead(batch, self.upper.generation, missing, rows)

    def _read_there(self, keys: Tensor) -> HbmRows:
        self._queue.write_all()  # as in `_read`
        return self._copies.up(self._rows_below.find(keys))

    def apply_sums(self, plan: HbmPlan, sums: Tensor, *, only: Tensor | None = None, **when: Any) -> Applied:
        """As `HbmTier.apply_sums`."""
        self._changed = True
        applied = self.upper.apply_sums(plan, sums, only=only, **when)
        if applied is None or applied.absent or applied.unadmitted:
            raise AssertionError(f"{applied}: rows of batches in flight are not displaced")
        return applied

    def wait_written(self) -> None:
        """Until the tier below has all rows that were displaced: then it has those that GPU memory lacks."""
        self._write_evicted(self.upper.take_evicted())
        if len(self._queue):
            self._thread.submit(self._queue.write_all).result()

    def flush(self) -> None:
        """As `WorkingSet.flush`, if anything has changed since the last one."""
        if self._changed:
            super().flush()
            self._changed = False

    def end(self) -> None:
        """End the thread. What was not flushed is lost with the tables."""
        self._thread.shutdown()

    def empty(self) -> None:
        """Flush, and hold no row any more: those below are about to be replaced, maybe by earlier ones."""
        self.flush()
        self.wait_written()
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.rows is not None:
            ahead.rows.result()
        self.upper.clear()
