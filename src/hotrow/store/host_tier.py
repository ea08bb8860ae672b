"""A tier in memory or on disk as the tier below a working set in GPU memory.

Rows in GPU memory carry the fields that only the lower tier uses, but for `last_seen`: a row counts as seen when it is
read and when it comes down. Values go up and down as they are: a row that became infinite in training stays so, as in
memory.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotrow.config import HBM_BUCKET, Table
from hotrow.errors import ConfigError
from hotrow.store.hbm.rows import HbmRows
from hotrow.store.hbm.spec import KEPT_FIELDS, HbmSpec
from hotrow.store.native_spec import row_fields
from hotrow.store.ram import RamTier

SEEN = "last_seen"
TICK = 1024  # samples: the unit of `last_seen` in a table without expiry, as in native/store/life.h


class HostTier:
    """The rows of a `RamTier` or `TieredTier`, as tensors."""

    def __init__(self, tier: RamTier) -> None:
        if tier.table.admission is not None:
            raise ConfigError(
                "Table.admission is set: rows in GPU memory are those of every id of a batch, leave admission out"
            )
        if tier.table.expiry is not None:
            raise ConfigError(
                "Table.expiry is set: rows in GPU memory are not seen by the tier below and would expire there, leave "
                "expiry out"
            )
        self.tier = tier

    def spec(self, capacity: int, **settings: Any) -> HbmSpec:
        """Of a table in GPU memory with `capacity` of these rows."""
        return _spec(self.tier.table, self.tier.fields, capacity, **settings)

    def read(self, keys: Tensor, samples: int) -> HbmRows:
        """Whole rows of distinct keys in their order; absent ones are made. `samples`: all samples trained so far."""
        wanted = keys.numpy().view(np.uint64)
        plan = self.tier.find_or_init(wanted, samples=samples)
        rows = self._whole_rows(keys)
        del plan  # rows of a plan in use stay in memory, where they are read
        return rows

    def find(self, keys: Tensor) -> HbmRows:
        """Whole rows of those of distinct keys that have one, in their order. None is made or seen."""
        rows = self._whole_rows(keys)
        there = rows.fields["version"] != 0
        return rows if bool(there.all()) else rows.select(there)

    def _whole_rows(self, keys: Tensor) -> HbmRows:
        rows = self.tier.whole_rows(keys.numpy().view(np.uint64))
        fields = {name: torch.from_numpy(column.view(np.int32)) for name, column in rows.fields.items() if name != SEEN}
        return HbmRows(keys, torch.from_numpy(rows.values), torch.from_numpy(rows.state), fields)

    def write(self, rows: HbmRows) -> None:
        """Overwrite whole rows."""
        fields = {name: column.numpy().view(np.uint32) for name, column in rows.fields.items()}
        if SEEN in self.tier.fields:
            fields[SEEN] = np.full(len(rows), self.tier.samples // TICK, np.uint32)
        state = rows.state.numpy() if rows.state.shape[1] else None
        self.tier.put(rows.keys.numpy().view(np.uint64), rows.values.numpy(), state, fields)


def row_bytes(table: Table) -> int:
    """What a row of the table takes in GPU memory above its tier."""
    return _spec(table, row_fields(table), HBM_BUCKET).row_bytes


def _spec(table: Table, fields: Iterable[str], capacity: int, **settings: Any) -> HbmSpec:
    kept = tuple(name for name in fields if name in KEPT_FIELDS and name != SEEN)
    exact = {"calls_per_tick": 1} | settings  # a call is a large batch: its rows are newer than those before it
    return HbmSpec.of(table, capacity, kept_fields=kept, track_changes=True, **exact)
