"""A table in pinned host memory whose hash table is in GPU memory: no processor touches a row.

The hash table takes 10 bytes of GPU memory for each slot. Values, state and counters are columns in host memory; a
kernel reads the rows of a batch from there, and writes them back, at the speed of the link. It is the tier below a
`WorkingSet` that is fastest, for tables that fit into the memory of the node.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hotrow.errors import InputError
from hotrow.kernels.launch import launch
from hotrow.store.hbm.arguments import check_usable
from hotrow.store.hbm.columns import RowColumns
from hotrow.store.hbm.pinned_kernels import pinned_rows
from hotrow.store.hbm.pinned_memory import PinnedMemory
from hotrow.store.hbm.rows import HbmRows
from hotrow.store.hbm.spec import HbmSpec
from hotrow.store.hbm.table import ClaimBuffers, HashTable, tile_width

PROGRAMS = 128  # of a launch: half a megabyte of reads under way, more than the link needs to be busy
BLOCK, WARPS = 32, 4
FILL_MAX = 0.7  # buckets fill unevenly: beyond this share one of 256 slots may be full
GROUPS = 8


class PinnedTier:
    """All rows of a table, for one `WorkingSet` whose thread makes all calls.

    `table.capacity` is the number of rows; a table has slots for 1 / 0.7 of them. Rows never leave it: new rows that
    find no slot are refused.
    """

    on_device = True  # keys come and rows go as tensors of the GPU

    def __init__(self, table: HbmSpec, device: torch.device | str = "cuda") -> None:
        self.device = torch.device(device)
        check_usable(self.device)
        if self.device.type == "cuda" and self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.table = replace(table, track_changes=False)
        buckets = -(-int(table.capacity / FILL_MAX) // (GROUPS * table.group_slots))
        slots = buckets * GROUPS * table.group_slots
        self._slots = HashTable(replace(self.table, capacity=slots, groups=GROUPS), self.device)
        self._no_values = torch.empty(1, device=self.device)  # lookups of the hash table alone
        self._memory = PinnedMemory(self.device)
        # Value, state and counters of a row side by side: each place that a kernel reads costs the link a page.
        self._widths = table.dim, table.state_dim, len(table.fields)
        self._host = self._memory.zeros(slots, sum(self._widths), torch.int32)
        self._rows = self._period = 0

    def spec(self, capacity: int, **settings: Any) -> HbmSpec:
        """Of a table in GPU memory with `capacity` of these rows."""
        return replace(self.table, **{"capacity": capacity, "track_changes": True, "calls_per_tick": 1, **settings})

    def __len__(self) -> int:
        return self._rows

    @property
    def device_bytes(self) -> int:
        return self._slots.bytes

    @property
    def host_bytes(self) -> int:
        return self._memory.bytes

    def read(self, keys: Tensor, samples: int) -> HbmRows:
        """Whole rows of distinct keys in their order; absent ones are made. `samples`: all samples trained so far."""
        self._period = max(self._period, self.table.rule.period_at(samples))
        slots, fresh = self._place(keys)
        if len(fresh):
            with self._erased_on_failure(slots[fresh]):
                self._write(slots[fresh], self._first_rows(keys[fresh]))
        return self._read(keys, slots)

    def write(self, rows: HbmRows) -> None:
        """Overwrite whole rows."""
        slots, fresh = self._place(rows.keys)
        with self._erased_on_failure(slots[fresh]):
            self._write(slots, rows)

    @contextmanager
    def _erased_on_failure(self, slots: Tensor) -> Iterator[None]:
        """Where the block fails, new keys at these slots have no row again: nothing was written for them."""
        try:
            yield
        except BaseException:
            self._slots.erase(slots)
            self._rows -= len(slots)
            raise

    def export(self, rows: int = 65_536) -> Iterator[HbmRows]:
        """All rows in chunks of about `rows`, on the host."""
        lines = max(1, rows // self.table.group_slots)
        for first in range(0, self._slots.lines, lines):
            slots = self._slots.live_slots(first, min(first + lines, self._slots.lines))
            yield self._read(self._slots.stored[slots], slots).to("cpu")

    def _place(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Slots of distinct keys, and which of them are new."""
        slots, missed = self._slots.find(keys, self._no_values, None, seen=False)
        if not int(missed):
            return slots, slots[:0]
        buffers = ClaimBuffers.of(keys)
        try:
            claimed = self._slots.claim(keys, slots, buffers, None, None)
            if full := claimed.displaced + claimed.turned_away:
                raise InputError(
                    f"{full:,} of {claimed.made + claimed.turned_away:,} new rows find no slot in host memory: the "
                    f"table has {self._rows:,} of {self.table.capacity:,} rows, raise its capacity"
                )
            self._slots.unlock([slots])
        except BaseException:
            self._slots.undo(keys, buffers, copied=False)
            raise
        self._rows += claimed.made
        return slots, (buffers.made >= 0).nonzero().squeeze(1)

    def _first_rows(self, keys: Tensor) -> HbmRows:
        """New rows, on the device."""
        places = torch.arange(len(keys), device=self.device)
        room = max(len(keys), self.table.bucket_slots) + self.table.bucket_slots
        columns = RowColumns(replace(self.table, capacity=room), self.device)
        columns.make(keys, places, self._period)
        return columns.read(keys, places)

    def _read(self, keys: Tensor, slots: Tensor) -> HbmRows:
        rows = torch.empty(len(keys), sum(self._widths), dtype=torch.int32, device=self.device)
        self._copy(slots, rows, into=False)
        values, state, counters = rows.split(self._widths, 1)
        fields = dict(zip(self.table.fields, counters.t().contiguous(), strict=True))
        return HbmRows(keys, _floats(values), _floats(state), fields)

    def _write(self, slots: Tensor, rows: HbmRows) -> None:
        counters = torch.stack([rows.fields[name] for name in self.table.fields], 1)
        whole = torch.cat([rows.values.view(torch.int32), rows.state.view(torch.int32), counters], 1)
        self._copy(slots, whole, into=True)

    def _copy(self, slots: Tensor, rows: Tensor, *, into: bool) -> None:
        programs, width = min(PROGRAMS, -(-len(slots) // BLOCK)), rows.shape[1]
        sizes = {"DIM": width, "WIDTH": tile_width(width), "BLOCK": BLOCK, "num_warps": WARPS}
        launch(pinned_rows, programs, slots, self._host, slots.argsort(), rows, len(slots), INTO=into, **sizes)


def _floats(columns: Tensor) -> Tensor:
    return columns.contiguous().view(torch.float32)
