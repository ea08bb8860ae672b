"""A table in GPU memory: rows found, made, updated, put, evicted and erased, in batches of 64-bit keys."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from hotrow.errors import InputError
from hotrow.kernels.pool import Mode, pool
from hotrow.kernels.scatter import scatter
from hotrow.kernels.unique import unique
from hotrow.kernels.update import update_rows
from hotrow.store.applied import Applied
from hotrow.store.hbm.arguments import as_columns, as_keys, as_matrix, check_device, check_once, check_usable, distinct
from hotrow.store.hbm.columns import RowColumns
from hotrow.store.hbm.rows import ABSENT, TURNED_AWAY, HbmPlan, HbmRows, HbmStats, KeyBatch, joined_rows
from hotrow.store.hbm.spec import HbmSpec
from hotrow.store.hbm.table import HashTable
from hotrow.store.hbm.verify import faults

Keys = Tensor | KeyBatch | HbmPlan  # of a plan the keys: they are looked up anew


class HbmTier:
    """Holds up to `spec.slots` rows of one table on a GPU. All calls go to one stream, and to one thread at a time.

    A call that makes rows in a full bucket evicts those with the lowest score (LRU or LFU) and returns them in
    `plan.evicted`. Rows that the call itself uses, and rows of plans in `pinned`, are not evicted: a key whose bucket
    has no others is turned away and counted.

    On a machine without a GPU the table works with `device="cpu"` in Triton's interpreter (TRITON_INTERPRET=1).
    """

    def __init__(self, spec: HbmSpec, device: torch.device | str = "cuda") -> None:
        self.spec, self.device = spec, torch.device(device)
        check_usable(self.device)
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._table = HashTable(spec, self.device)
        self._columns = RowColumns(spec, self.device)
        self._period = 0  # latest SWAP period that a call gave
        self._moves = 0  # evictions and removals: while it stays, slots of plans hold
        self._rows = self._created = self._erased = self._evicted = self._turned_away = 0
        self._displaced: list[HbmRows] = []  # that no call has returned yet
        self._refused, self._absent = torch.zeros(2, 1, dtype=torch.int64, device=self.device)

    # Lookups

    def batch(self, keys: Keys) -> KeyBatch:
        """Keys with their duplicates folded: lookups and the update after them share it."""
        return self._batch("batch", keys, fold=True)

    def find(self, keys: Keys, out: Tensor | None = None) -> HbmPlan:
        """Copy rows into `out`, NaN where a key has none. Rows do not count as seen."""
        batch = self._batch("find", keys)
        buffer = self._output("find", out, len(batch))
        plan, _ = self._look_up(batch, buffer, seen=False, without=float("nan"))
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
        _check_looked_up("find_or_init: pinned", pinned)
        self._advance(samples)
        self._table.begin_call()
        plan, missed = self._look_up(batch, buffer, seen=True)
        if absent := int(missed):
            self._make_rows(plan, absent, pinned)
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
    ) -> Tensor:
        """Rows of a plan that was looked up, pooled over bags as `hotrow.kernels.pool.pool` does.

        `positions`: those keys of the plan alone, which `offsets` count from 0.
        """
        _check_looked_up("pool", [plan])
        self._refresh(plan)
        if plan.folded is None:
            return pool(self._columns.values, plan.slots[positions], None, offsets, mode, dtype)
        return pool(self._columns.values, plan.slots, plan.folded.inverse[positions], offsets, mode, dtype)

    def _batch(self, who: str, keys: Keys, *, fold: bool = False) -> KeyBatch:
        if isinstance(keys, KeyBatch | HbmPlan):
            known, folded = keys.keys, keys.folded
        else:
            known, folded = as_keys(who, keys, self.device), None
        return KeyBatch(known, unique(known, self.spec.deterministic) if fold and folded is None else folded)

    def _look_up(
        self, batch: KeyBatch, out: Tensor | None, *, seen: bool, without: float = 0.0
    ) -> tuple[HbmPlan, Tensor]:
        """Find rows; returns also how many of the keys (or distinct keys, if they are folded) have none."""
        values, folded = self._columns.values, batch.folded
        if folded is None:
            slots, missed = self._table.find(batch.keys, values, out, seen=seen)
        else:
            slots, missed = self._table.find(folded.keys, values, None, seen=seen, size=folded.size)
        plan = HbmPlan(batch.keys, slots, self._moves, folded=folded)
        if folded is not None and out is not None:
            self._columns.read_values(plan.slots_of_keys(), out, without)
        return plan, missed

    def _refresh(self, plan: HbmPlan) -> None:
        """Look a plan up again if rows have gone since. Keys that were turned away stay so until they have a row."""
        if plan.moves != self._moves:
            now, _ = self._look_up(KeyBatch(plan.keys, plan.folded), None, seen=False)
            turned_away = (plan.slots == TURNED_AWAY) & (now.slots < 0)
            plan.slots, plan.moves = now.slots.masked_fill_(turned_away, TURNED_AWAY), now.moves

    def _pinned_slots(self, pinned: Sequence[HbmPlan]) -> list[Tensor]:
        """Where the rows of plans are now: those that have gone since must not keep slots from others."""
        for plan in pinned:
            self._refresh(plan)
        return [plan.slots for plan in pinned]

    def _make_rows(
        self, plan: HbmPlan, absent: int, pinned: Sequence[HbmPlan], given: frozenset[str] = frozenset()
    ) -> Tensor:
        """Make the rows that a lookup missed; returns their slots.

        The caller writes the columns in `given`, the others start as in new rows.
        """
        used = [plan.slots, *self._pinned_slots(pinned)]
        missing = (plan.slots < 0).nonzero().squeeze(1)
        if plan.folded is None:
            fresh, which = distinct(plan.keys[missing])
        else:  # distinct already; what is beyond their number comes last
            missing = missing[:absent]
            fresh, which = plan.folded.keys[missing], None
        slots, plan.turned_away = self._place(fresh, used, given)
        plan.slots[missing] = slots if which is None else slots[which]
        plan.moves = self._moves
        return slots

    def _place(self, fresh: Tensor, used: list[Tensor], given: frozenset[str]) -> tuple[Tensor, int]:
        """Slots with new rows for distinct absent keys, TURNED_AWAY where all rows of a bucket are in use.

        Where it fails (no memory, an interrupt) no key has a row, nothing is locked, and rows that were displaced are
        kept for `take_evicted`.
        """
        table, kept = self._table, len(self._displaced)
        slots, victims = torch.full_like(fresh, ABSENT), torch.full_like(fresh, ABSENT)
        turned_away = 0
        try:
            for each in used:
                table.lock(each)
            full = table.claim_free(fresh, slots)
            if full:
                turned_away = table.claim_victims(fresh, slots, victims)
                self._displaced.append(self._read(victims[victims >= 0]))  # kept, whatever fails from here on
                table.replace(fresh, victims, slots)
            self._columns.make(fresh, slots, self._period, given)
            for each in (*used, slots):
                table.unlock(each)
        except BaseException:
            table.erase(slots)
            if len(self._displaced) > kept:
                table.erase(victims)
                self._count_evicted(len(self._displaced[-1]))
            table.locks.zero_()
            raise
        if full:
            self._count_evicted(full - turned_away)
        self._rows += len(fresh) - turned_away
        self._created += len(fresh) - turned_away
        self._turned_away += turned_away
        return slots, turned_away

    def _count_evicted(self, rows: int) -> None:
        self._rows -= rows
        self._evicted += rows
        self._moves += rows

    def take_evicted(self) -> HbmRows | None:
        """Rows that calls displaced and, because they failed, did not return. The next call that makes rows does."""
        rows = joined_rows(self._displaced) if sum(map(len, self._displaced)) else None
        self._displaced.clear()
        return rows

    def keep_evicted(self, rows: HbmRows) -> None:
        """Rows that were returned and not used: `take_evicted` or a later call returns them again."""
        self._displaced.append(rows)

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
        sums = scatter(plan.fold(deterministic=self.spec.deterministic), gradients, offsets, mode)
        return self.apply_sums(plan, sums, step=step, samples=samples, lr_scale=lr_scale, counted=counted)

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
        before = self._refused.clone() if counted else None
        update_rows(
            self.spec.rule,
            self._columns.values,
            self._columns.state if self.spec.state_dim else None,
            plan.slots if only is None else plan.slots.masked_fill(~only, ABSENT),
            sums,
            self._columns.counters,
            step=step,
            samples=max(samples, self._period * self.spec.rule.swap_period),
            lr_scale=lr_scale,
            refused=self._refused,
        )
        absent = (plan.slots == ABSENT).sum() - len(plan.slots) + found.size  # slots beyond the keys are ABSENT too
        self._absent += absent
        if before is None:
            return None
        turned_away = (plan.slots == TURNED_AWAY).sum()
        left = torch.zeros_like(turned_away) if only is None else ((plan.slots >= 0) & ~only).sum()
        counts = torch.stack([found.size[0], self._refused[0] - before[0], absent[0], turned_away, left]).tolist()
        keys, refused, missing, unadmitted, weightless = counts
        return Applied(keys - sum(counts[1:]), refused, missing, weightless, unadmitted)

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
        pinned: Sequence[HbmPlan] = (),
    ) -> HbmPlan:
        """Insert or overwrite whole rows, each key once. The plan has the rows that they displaced.

        A column that is not given keeps its values, or starts as in a new row. The rows count as seen. `saved` says
        that a lower tier has them as they are.
        """
        batch = self._batch("put_and_evict", keys, fold=True)
        assert batch.folded is not None
        check_once("put_and_evict", batch.folded)
        rows = as_columns("put_and_evict", self.spec, batch.keys, values, state, fields)
        _check_looked_up("put_and_evict: pinned", pinned)
        self._table.begin_call()
        plan, missed = self._look_up(batch, None, seen=True)
        if absent := int(missed):
            given = {"values", *rows.fields} | ({"state"} if state is not None else set())
            made = self._make_rows(plan, absent, pinned, frozenset(given))
        try:
            self._columns.write(plan.slots_of_keys(), rows, with_state=state is not None, saved=saved)
        except BaseException:  # rows that were made for it have no values
            if absent:
                self._erase(made, absent - plan.turned_away)
            raise
        plan.evicted = self.take_evicted()
        return plan

    def erase(self, keys: Tensor) -> int:
        """Remove rows; returns how many there were."""
        known, _ = distinct(as_keys("erase", keys, self.device))
        slots, absent = self._table.find(known, self._columns.values, None, seen=False)
        self._erase(slots, len(known) - int(absent))
        return len(known) - int(absent)

    def _erase(self, slots: Tensor, rows: int) -> None:
        """Free distinct slots, of which `rows` hold one."""
        self._table.erase(slots)
        self._rows -= rows
        self._erased += rows
        self._moves += rows

    # All rows

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
        return self._rows

    @property
    def generation(self) -> int:
        """Changes whenever a row comes or goes."""
        return self._created + self._moves

    def stats(self) -> HbmStats:
        """Counts and bytes; waits for the GPU."""
        return HbmStats(
            rows=self._rows,
            capacity_rows=self.spec.slots,
            bytes=self._table.bytes + self._columns.bytes,
            created=self._created,
            erased=self._erased,
            evicted=self._evicted,
            turned_away=self._turned_away,
            refused=int(self._refused),
            absent=int(self._absent),
        )

    def verify(self) -> list[str]:
        """Faults of the structure as sentences; none means that digests, keys, locks and counts agree."""
        return faults(self._table, self._columns.fields["version"], self._rows)

    def _output(self, who: str, out: Tensor | None, rows: int) -> Tensor | None:
        return None if out is None else as_matrix(f"{who}: out", out, rows, self.spec.dim, self.device)

    def _advance(self, samples: int) -> None:
        if samples < 0:
            raise InputError(f"samples={samples}: must be 0 or more")
        self._period = max(self._period, self.spec.rule.period_at(samples))


def _check_looked_up(what: str, plans: Sequence[HbmPlan]) -> None:
    for plan in plans:
        if not isinstance(plan, HbmPlan):
            raise InputError(f"{what} has a {type(plan).__name__}: give the plan of a lookup, as find returns it")
