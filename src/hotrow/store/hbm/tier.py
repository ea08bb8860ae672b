"""A table in GPU memory: rows found, made, updated, put, evicted and erased, in batches of 64-bit keys."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from hotrow.errors import InputError
from hotrow.kernels.backward import update_checked
from hotrow.kernels.pool import Mode
from hotrow.kernels.scatter import bag_gradients
from hotrow.kernels.unique import UniqueKeys
from hotrow.kernels.update import update_slots
from hotrow.kernels.update_rule import StepScalars
from hotrow.store.applied import Applied
from hotrow.store.hbm.arguments import as_columns, as_keys, check_device, check_once, distinct
from hotrow.store.hbm.lookups import HbmLookups, Keys, check_looked_up
from hotrow.store.hbm.rows import ABSENT, TURNED_AWAY, HbmPlan, HbmRows, HbmStats
from hotrow.store.hbm.verify import faults


class HbmTier(HbmLookups):
    """Holds up to `spec.slots` rows of one table on a GPU. All calls go to one stream, and to one thread at a time.

    A call that makes rows in a full bucket evicts those with the lowest score (LRU or LFU) and returns them in
    `plan.evicted`. Rows that the call itself uses, and rows of plans in `pinned`, are not evicted: a key whose bucket
    has no others is turned away and counted.

    On a machine without a GPU the table works with `device="cpu"` in Triton's interpreter (TRITON_INTERPRET=1).
    """

    # Changes

    def apply(
        self,
        keys: Keys,
        gradients: Tensor,
        offsets: Tensor | None = None,
        mode: Mode = "sum",
        *,
        step: int = 0,
        samples: int = 0,
        lr_scale: float = 1.0,
        counted: bool = True,
    ) -> Applied | None:
        """One optimizer update per row, with the sum of the gradients of its keys; absent rows are left out, counted.

        gradients [keys, dim], or [bags, dim] of what `pool` gave for the same offsets and mode. `step` is the dense
        step being applied, from 0; `samples` counts all samples up to and including this batch (SWAP's clock). Without
        `counted` the call does not wait for the GPU and returns None; `stats` has the rows it refused or did not find.
        """
        plan = keys if isinstance(keys, HbmPlan) else self.find(keys)
        check_device("apply: gradients", gradients, self.device)
        self._advance(samples)
        found = plan.fold(deterministic=self.spec.deterministic)
        self._refresh(plan)
        given = bag_gradients("apply", found, gradients, offsets, mode, self.spec.dim)
        before = self._counts.clone() if counted else None
        scalars = self._scalars(step, samples, lr_scale)
        update_checked(self._updated, plan.slots, found, given, scalars, self._counts[1:])
        return self._applied(found, before)

    def apply_sums(
        self,
        plan: HbmPlan,
        sums: Tensor,
        *,
        only: Tensor | None = None,
        step: int = 0,
        samples: int = 0,
        lr_scale: float = 1.0,
        counted: bool = True,
    ) -> Applied | None:
        """As `apply`, with one gradient for each distinct key, in the order of `plan.folded.keys`.

        Rows whose flag in `only` is not set stay as they are, and are counted as weightless.
        """
        self._advance(samples)
        found = plan.fold(deterministic=self.spec.deterministic)
        self._refresh(plan)
        slots = plan.slots if only is None else plan.slots.masked_fill(~only, ABSENT)
        before = self._counts.clone() if counted else None
        update_slots(self._updated, slots, sums, self._scalars(step, samples, lr_scale))
        absent = (plan.slots == ABSENT).sum() - len(plan.slots) + found.size[0]  # slots beyond the keys are ABSENT too
        self._counts[1:] += torch.stack([absent, (plan.slots == TURNED_AWAY).sum()])
        left = torch.zeros_like(absent) if only is None else ((plan.slots >= 0) & ~only).sum()
        return self._applied(found, before, left)

    def _scalars(self, step: int, samples: int, lr_scale: float) -> StepScalars:
        rule = self.spec.rule
        if not 0 <= lr_scale <= 1e30:
            raise InputError(f"lr_scale={lr_scale!r}: must be from 0 to 1e30 (1 leaves the learning rate as it is)")
        return StepScalars.of(rule, step, max(samples, self._period * rule.swap_period), lr_scale)

    def _applied(self, found: UniqueKeys, before: Tensor | None, weightless: Tensor | None = None) -> Applied | None:
        """What an update did, since the counts were `before`; waits for the GPU."""
        if before is None:
            return None
        left = before.new_zeros(1) if weightless is None else weightless.reshape(1)
        counts = torch.cat([found.size.long(), self._counts - before, left]).tolist()
        asked, refused, missing, unadmitted, weightless_rows = counts
        return Applied(asked - sum(counts[1:]), refused, missing, weightless_rows, unadmitted)

    def counters(self, plan: HbmPlan, name: str) -> Tensor:
        """A counter of the row of each distinct key, with the bits of uint32: int32 [keys]; 0 without a row."""
        plan.fold(deterministic=self.spec.deterministic)
        self._refresh(plan)
        return self._columns.fields[name][plan.slots.clamp(min=0)].masked_fill_(plan.slots < 0, 0)

    def put_and_evict(
        self,
        keys: Tensor,
        values: Tensor,
        state: Tensor | None = None,
        fields: Mapping[str, Tensor] | None = None,
        *,
        saved: bool = False,
        distinct: bool = False,
        pinned: Sequence[HbmPlan] = (),
    ) -> HbmPlan:
        """Insert or overwrite whole rows, each key once. The plan has the rows that they displaced.

        A column that is not given keeps its values, or starts as in a new row. The rows count as seen. `saved` says
        that a lower tier has them as they are, `distinct` that no key occurs twice: that is checked without it, and a
        key that occurs twice all the same gets two rows.
        """
        batch = self._batch("put_and_evict", keys, fold=not distinct)
        if batch.folded is not None:
            check_once("put_and_evict", batch.folded)
        rows = as_columns("put_and_evict", self.spec, batch.keys, values, state, fields)
        check_looked_up("put_and_evict: pinned", pinned)
        self._table.begin_call()
        bucket_full = torch.empty_like(batch.keys, dtype=torch.int8)
        plan, _ = self._look_up(batch, None, seen=True, bucket_full=bucket_full)
        whole, created = state is not None or not self.spec.state_dim, self._allocator.created
        made = self._make_rows(plan, pinned, make=not whole, distinct_keys=distinct, bucket_full=bucket_full)
        try:
            slots, fresh = (each if plan.folded is None else each[plan.folded.inverse] for each in (plan.slots, made))
            self._columns.write(slots, rows, fresh if whole else None, self._period, saved=saved)
        except BaseException:  # rows that were made for it have no values
            self._allocator.erase(made, self._allocator.created - created)
            raise
        plan.evicted = self.take_evicted()
        return plan

    def erase(self, keys: Tensor) -> int:
        """Remove rows; returns how many there were."""
        known, _ = distinct(as_keys("erase", keys, self.device))
        slots, absent = self._table.find(known, self._columns.values, None, seen=False)
        self._allocator.erase(slots, len(known) - int(absent))
        return len(known) - int(absent)

    # All rows

    def clear(self) -> None:
        """Remove all rows, displaced ones that no call has returned too, and forget the latest SWAP period.

        As a table in memory, which takes its period from the rows that are put into it when it is empty.
        """
        self._allocator.clear()
        self._period = 0

    def export(self, rows: int = 65_536, *, changed_only: bool = False) -> Iterator[HbmRows]:
        """All rows in chunks of at most `rows`, or those that changed since they were saved."""
        if changed_only and not self.spec.track_changes:
            raise InputError("changed_only=True: the table does not track changes, make it with track_changes=True")
        lines = max(1, rows // self.spec.group_slots)
        for first in range(0, self._table.lines, lines):
            slots = self._table.live_slots(first, min(first + lines, self._table.lines))
            if changed_only:
                slots = slots[self._columns.changed(slots)]
            for part in slots.split(rows):
                if len(part):
                    yield self._read(part)

    def _read(self, slots: Tensor) -> HbmRows:
        return self._columns.read(self._table.stored[slots], slots)

    def keys(self) -> Tensor:
        """The keys of all rows, int64."""
        return self._table.stored[self._table.live_slots(0, self._table.lines)]

    def mark_saved(self, keys: Tensor) -> None:
        """A lower tier has these rows as they are now."""
        slots, _ = self._table.find(as_keys("mark_saved", keys, self.device), self._columns.values, None, seen=False)
        self._columns.mark_saved(slots[slots >= 0])

    def __len__(self) -> int:
        return self._allocator.rows

    @property
    def generation(self) -> int:
        """Changes whenever a row comes or goes."""
        return self._allocator.created + self._allocator.moves

    def stats(self) -> HbmStats:
        """Counts and bytes; waits for the GPU."""
        return HbmStats(
            rows=self._allocator.rows,
            capacity_rows=self.spec.slots,
            bytes=self._table.bytes + self._columns.bytes,
            created=self._allocator.created,
            erased=self._allocator.erased,
            evicted=self._allocator.evicted,
            turned_away=self._allocator.turned_away,
            refused=int(self._counts[0]),
            absent=int(self._counts[1]),
        )

    def verify(self) -> list[str]:
        """Faults of the structure as sentences; none means that digests, keys, locks and counts agree."""
        return faults(self._table, self._columns.fields["version"], self._allocator.rows)
