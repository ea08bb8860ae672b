"""Rows of a cache on a device: a hit moves no row, and pooling and updates happen there.

Keys, clocks and order of eviction are in host memory (`RowIndex`), with all policies and rules of caches. The rows are
columns on the device (`DeviceColumns`); slots, missing rows and changes travel. What `RowCache` sends and receives is
the same as with rows in host memory.

All calls use torch's current stream, which has to be the same in all threads.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from hotrow.cache.changes import Changes, no_changes
from hotrow.cache.device_columns import DeviceColumns, row_bytes
from hotrow.cache.device_copies import DeviceCopies
from hotrow.cache.row_index import I64, RowIndex
from hotrow.cache.rows import Placed
from hotrow.config import Cache, Table
from hotrow.errors import ConfigError
from hotrow.kernels.update_rule import UpdateRule
from hotrow.store import Applied, LookupPlan, Rows
from hotrow.store.arrays import ArrayLike, Floats, Integers, Keys
from hotrow.store.native_spec import partitions_of_cache


class DeviceRows:
    """Cached rows of one table, which has a capacity. Their gradients are tensors on the same device."""

    def __init__(self, table: Table, cache: Cache, threads: int, device: torch.device) -> None:
        rule = UpdateRule.of(table.optimizer)
        self.dim, self.state_dim = table.dim, rule.state_dim(table.dim)
        rows = _capacity(table, row_bytes(rule, table.dim), threads)
        self.index = RowIndex(table.model_copy(update={"capacity": rows}), cache, threads)
        self.fields = (*self.index.fields, *(("period",) if rule.swap_period else ()))
        self.columns = DeviceColumns(table.dim, rule, cache.workers or 1, rows + self.index.partitions, device)
        self.copies: DeviceCopies | None = self.columns.copies
        self._nothing = no_changes(self.dim, self.state_dim)

    def plan_distinct(self, keys: Keys) -> LookupPlan:
        return self.index.plan_distinct(keys)

    def place(self, plan: LookupPlan, *, use: int = 0, pinned: Sequence[LookupPlan] = ()) -> Placed:
        found = self.index.place(plan, use=use, pinned=pinned)
        return replace(found, changes=self._changes(found.changes))  # before anything is written to their slots

    def values(self, plan: LookupPlan, default: float, out: Tensor | None = None) -> Tensor:
        rows = self.columns.read(self.index.slots(plan).readable, default)
        return rows if out is None else out.copy_(rows)

    def update(
        self, plan: LookupPlan, gradients: Tensor, weights: Floats, *, samples: int, lr_scale: float = 1.0
    ) -> Applied:
        slots = np.where(weights != 0, self.index.slots(plan).readable, -1)
        updated = self.columns.update(slots, gradients, weights, samples=samples, lr_scale=lr_scale)
        return self.index.count_updates(plan, weights, (slots >= 0) & ~updated)

    def announce(self, plan: LookupPlan) -> int:
        return self.index.announce(plan)

    def withdraw(self, plan: LookupPlan, use: int) -> None:
        self.index.withdraw(plan, use)

    def take_changes(self, keys: Keys) -> Changes:
        return self._changes(self.index.take_changes(keys))

    def _changes(self, found: Changes) -> Changes:
        """With values and state. Rows that stay count as fetched as they are now."""
        if not len(found):
            return self._nothing
        slots = _known(found.slots)
        values, state, periods = self.columns.changes(slots)
        self.columns.rebase(slots)
        return Changes(found.keys, values, state, found.clocks, found.updates, periods)

    def fill(self, plan: LookupPlan, uniques: Integers, fetched: Rows) -> None:
        slots, versions = self.index.slots(plan, uniques)
        self._reserve(slots)
        if (periods := fetched.fields.get("period")) is not None:
            self.columns.advance(periods)
        rows, here = fetched, slots >= 0
        if not here.all():
            fields = {name: column[here] for name, column in rows.fields.items()}
            rows = Rows(rows.keys[here], rows.values[here], rows.state[here], fields)
        self.columns.fill(slots[here], versions[here] > 1, rows.values, rows.state, rows.fields.get("period"))
        self.index.fill_clocks(plan, uniques, fetched.keys, fetched.fields["clock"])

    @property
    def changed_rows(self) -> int:
        return self.index.changed_rows

    def changed_keys(self) -> Iterator[Keys]:
        return self.index.changed_keys()

    def all_keys(self) -> Iterator[Keys]:
        return self.index.all_keys()

    def versions(self, keys: ArrayLike | LookupPlan) -> Integers:
        return self.index.versions(keys)

    def clocks(self, keys: ArrayLike | LookupPlan) -> Integers:
        return self.index.clocks(keys)

    def erase(self, keys: ArrayLike | LookupPlan) -> int:
        return self.index.erase(keys)

    def export(self) -> Iterator[Rows]:
        """All rows in chunks. Values and state of a row that has not come mean nothing."""
        for chunk in self.index.export():
            slots = self.index.slots(self.index.batch(chunk.keys)).slots
            self._reserve(slots)
            values, state, periods = self.columns.whole(slots)
            fields = {**chunk.fields, "period": periods} if "period" in self.fields else chunk.fields
            yield Rows(chunk.keys, values, state, fields)

    def _reserve(self, slots: I64) -> None:
        self.columns.reserve(int(slots.max(initial=-1)) + 1)

    def __len__(self) -> int:
        return len(self.index)

    def close(self) -> None:
        self.index.close()
        self.columns.release()


def _capacity(table: Table, bytes_of_row: int, threads: int) -> int:
    """In rows. A partition has one more while a batch begins: a row comes in before another goes."""
    if table.capacity_bytes is None:
        return table.capacity_rows or 0
    rows = table.capacity_bytes // bytes_of_row - partitions_of_cache(threads)
    if rows < 1:
        raise ConfigError(f"Cache.capacity={table.capacity!r}: not one row of {bytes_of_row:,} bytes: give more")
    return rows


def _known(slots: I64 | None) -> I64:
    if slots is None:
        raise AssertionError("changes of an index have slots")
    return slots
