"""Lookups of a table in GPU memory: rows that are found, seen, made and pooled."""

from collections.abc import Sequence

import torch
from torch import Tensor

from hotrow.errors import InputError
from hotrow.kernels.pool import Mode, check_offsets, check_output, pool_checked
from hotrow.kernels.unique import unique
from hotrow.store.hbm.allocator import RowAllocator
from hotrow.store.hbm.arguments import as_keys, as_matrix, check_usable, distinct
from hotrow.store.hbm.columns import RowColumns
from hotrow.store.hbm.rows import ABSENT, TURNED_AWAY, HbmPlan, HbmRows, KeyBatch
from hotrow.store.hbm.spec import HbmSpec
from hotrow.store.hbm.table import HashTable

Keys = Tensor | KeyBatch | HbmPlan  # of a plan the keys: they are looked up anew


class HbmLookups:
    """Opens the table and finds its rows. `HbmTier` changes them."""

    def __init__(self, spec: HbmSpec, device: torch.device | str = "cuda") -> None:
        self.spec, self.device = spec, torch.device(device)
        check_usable(self.device)
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._table = HashTable(spec, self.device)
        self._columns = RowColumns(spec, self.device)
        self._period = 0  # latest SWAP period that a call gave
        self._allocator = RowAllocator(self._table, self._columns)
        self._counts = torch.zeros(3, dtype=torch.int64, device=self.device)  # by updates: refused, absent, turned away
        self._updated = self._columns.rows(self._counts[:1])

    def batch(self, keys: Keys) -> KeyBatch:
        """Keys with their duplicates folded: lookups and the update after them share it."""
        batch = self._batch("batch", keys, fold=True)
        assert batch.folded is not None
        return KeyBatch(batch.keys, batch.folded.with_order())  # now: the host waits at the next lookup

    def find(self, keys: Keys, out: Tensor | None = None) -> HbmPlan:
        """Copy rows into `out`, NaN where a key has none. Rows do not count as seen."""
        batch = self._batch("find", keys)
        buffer = self._output("find", out, len(batch))
        plan, _ = self._look_up(batch, buffer, seen=False, fill=float("nan"))
        return plan

    def touch(self, keys: Keys) -> HbmPlan:
        """Mark rows as seen, as a lookup does."""
        batch = self._batch("touch", keys, fold=True)
        self._table.begin_call()
        plan, _ = self._look_up(batch, None, seen=True)
        return plan

    def find_or_init(
        self,
        keys: Keys,
        out: Tensor | None = None,
        *,
        samples: int = 0,
        pinned: Sequence[HbmPlan] = (),
    ) -> HbmPlan:
        """As `find`, but absent rows are made with their first values, and all rows count as seen.

        A key that is turned away gives zeros. `samples` counts all samples trained so far (SWAP's clock).
        """
        # With LFU a row is seen once by a call, however often its key occurs.
        batch = self._batch("find_or_init", keys, fold=self.spec.eviction == "lfu")
        buffer = self._output("find_or_init", out, len(batch))
        check_looked_up("find_or_init: pinned", pinned)
        self._advance(samples)
        self._table.begin_call()
        plan, missed = self._look_up(batch, buffer, seen=True)
        if int(missed):
            self._make_rows(plan, pinned)
            if buffer is not None:
                self._columns.read_values(plan.slots_of_keys(), buffer)
        plan.evicted = self.take_evicted()
        return plan

    def pool(
        self,
        plan: HbmPlan,
        offsets: Tensor | None = None,
        mode: Mode = "sum",
        dtype: torch.dtype = torch.float32,
        *,
        positions: slice = slice(None),
        out: Tensor | None = None,
    ) -> Tensor:
        """Rows of a plan that was looked up, pooled over bags as `hotrow.kernels.pool.pool` does.

        `positions`: those keys of the plan alone, which `offsets` count from 0. `out`: where the vectors go.
        """
        check_looked_up("pool", [plan])
        self._refresh(plan)
        check_output("pool", mode, dtype)
        slots, inverse = plan.slots, None
        if plan.folded is None:
            slots = slots[positions].contiguous()
        else:
            inverse = plan.folded.inverse[positions].contiguous()
        if offsets is not None:
            check_offsets("pool", offsets, len(slots if inverse is None else inverse))
        if out is not None:
            bags = len(slots if inverse is None else inverse) if offsets is None else len(offsets) - 1
            as_matrix("pool: out", out, bags, self.spec.dim, self.device, dtype)
        return pool_checked(self._columns.values, slots, inverse, offsets, mode, dtype, out)

    def _batch(self, who: str, keys: Keys, *, fold: bool = False) -> KeyBatch:
        if isinstance(keys, KeyBatch | HbmPlan):
            batch = KeyBatch(keys.keys, keys.folded)
        else:
            batch = KeyBatch(as_keys(who, keys, self.device), None)
        if fold and batch.folded is None:
            return KeyBatch(batch.keys, unique(batch.keys, self.spec.deterministic))
        return batch

    def _look_up(
        self,
        batch: KeyBatch,
        out: Tensor | None,
        *,
        seen: bool,
        fill: float = 0.0,
        bucket_full: Tensor | None = None,
    ) -> tuple[HbmPlan, Tensor]:
        """Find rows; returns also how many of the keys (or distinct keys, if they are folded) have none.

        With `bucket_full` they are not counted.
        """
        values, folded = self._columns.values, batch.folded
        if folded is None:
            slots, missed = self._table.find(batch.keys, values, out, seen=seen, bucket_full=bucket_full)
        else:
            slots, missed = self._table.find(
                folded.keys, values, None, seen=seen, size=folded.size, bucket_full=bucket_full
            )
        plan = HbmPlan(batch.keys, slots, self._allocator.moves, folded=folded)
        if folded is not None and out is not None:
            self._columns.read_values(plan.slots_of_keys(), out, fill)
        return plan, missed

    def _refresh(self, plan: HbmPlan) -> None:
        """Look a plan up again if rows have gone since. Keys that were turned away stay so until they have a row."""
        if plan.moves != self._allocator.moves:
            now, _ = self._look_up(KeyBatch(plan.keys, plan.folded), None, seen=False)
            turned_away = (plan.slots == TURNED_AWAY) & (now.slots < 0)
            plan.slots, plan.moves = now.slots.masked_fill_(turned_away, TURNED_AWAY), now.moves

    def _pinned_slots(self, pinned: Sequence[HbmPlan]) -> list[Tensor]:
        """Where the rows of plans are now: those that have gone since must not keep slots from others."""
        for plan in pinned:
            self._refresh(plan)
        return [plan.slots for plan in pinned]

    def _make_rows(
        self,
        plan: HbmPlan,
        pinned: Sequence[HbmPlan],
        *,
        make: bool = True,
        distinct_keys: bool = False,
        bucket_full: Tensor | None = None,
    ) -> Tensor:
        """Give the keys that a lookup missed their rows, fresh ones with `make`; returns the new slots.

        `bucket_full` is what the lookup has set.
        """
        used = [plan.slots, *self._pinned_slots(pinned)]
        if plan.folded is not None:
            keys, slots, size, which = plan.folded.keys, plan.slots, plan.folded.size, None
        elif distinct_keys:
            keys, slots, size, which = plan.keys, plan.slots, None, None
        else:
            missing = (plan.slots < 0).nonzero().squeeze(1)
            keys, which = distinct(plan.keys[missing])
            slots, size, bucket_full = torch.full_like(keys, ABSENT), None, None
        period = self._period if make else None
        made, plan.turned_away = self._allocator.place(keys, slots, size, bucket_full, used, period)
        if which is not None:
            plan.slots[missing] = slots[which]
        plan.moves = self._allocator.moves
        return made

    def take_evicted(self) -> HbmRows | None:
        """Rows that calls displaced and, because they failed, did not return. The next call that makes rows does."""
        return self._allocator.take_evicted()

    def keep_evicted(self, rows: HbmRows) -> None:
        """Rows that were returned and not used: `take_evicted` or a later call returns them again."""
        self._allocator.displaced.append(rows)

    def _output(self, who: str, out: Tensor | None, rows: int) -> Tensor | None:
        return None if out is None else as_matrix(f"{who}: out", out, rows, self.spec.dim, self.device)

    def _advance(self, samples: int) -> None:
        if samples < 0:
            raise InputError(f"samples={samples}: must be 0 or more")
        self._period = max(self._period, self.spec.rule.period_at(samples))


def check_looked_up(what: str, plans: Sequence[HbmPlan]) -> None:
    for plan in plans:
        if not isinstance(plan, HbmPlan):
            raise InputError(f"{what} has a {type(plan).__name__}: give the plan of a lookup, as find returns it")
