"""The rows of an EmbeddingBag as plain tensors, for state_dict: what torch.load(weights_only=True) accepts.

Ids are stored as the int64 with their bits and the counters of a row as the int32 with theirs, because torch computes
little with unsigned numbers.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hotrow.config import Table
from hotrow.errors import InputError
from hotrow.store import RamTier, Rows
from hotrow.store.saved import check_same_kind, eviction_order


def save_rows(tier: RamTier) -> dict[str, Any]:
    """Everything a table holds, the first to be evicted first."""
    rows = _all_rows(tier)
    return {
        "table": tier.table.model_dump_json(),
        "keys": torch.from_numpy(rows.keys.view(np.int64)),
        "values": torch.from_numpy(rows.values),
        "state": torch.from_numpy(rows.state),
        "fields": {name: torch.from_numpy(column.view(np.int32)) for name, column in rows.fields.items()},
    }


def load_rows(table: Table, saved: Mapping[str, Any], threads: int, owner: RamTier | None = None) -> RamTier:
    """A new tier in plain memory with the saved rows; refuses rows of another kind of table, or that have no room.

    `owner`: the tier in a segment or on disk that the rows will move to, whose room counts.
    """
    missing = {"table", "keys", "values", "state", "fields"} - set(saved)
    if missing:
        raise InputError(f"table {table.name!r}: the state has no {', '.join(sorted(missing))}: was it cut?")
    check_same_kind(table, json.loads(saved["table"]))
    plain = table.model_copy(update={"segment": None, "disk": None, "path": None})
    if owner is not None:  # a file takes bytes of its own, so the same capacity in bytes holds fewer rows there
        plain = plain.model_copy(update={"capacity": owner.capacity_rows or None})
    tier = RamTier(plain, threads=threads, partitions=None if owner is None else owner.partitions)
    if len(saved["keys"]):
        fields = {name: bits.cpu().numpy().view(np.uint32) for name, bits in saved["fields"].items()}
        state = saved["state"].cpu().numpy() if tier.state_dim else None
        tier.put(saved["keys"].cpu().numpy().view(np.uint64), saved["values"].cpu().numpy(), state, fields)
    if lost := len(saved["keys"]) - len(tier):
        room = f"{lost:,} of the {len(saved['keys']):,} rows of the state find no room"
        raise InputError(f"table {table.name!r}: {room} in capacity={table.capacity!r}: give it more")
    return tier


def move_rows(source: RamTier, target: RamTier) -> None:
    """Replace all rows of `target` by those of `source`, which has as many partitions of the same size."""
    for chunk in target.export():
        target.erase(chunk.keys)
    rows = _all_rows(source)
    if len(rows.keys):
        target.put(rows.keys, rows.values, rows.state if source.state_dim else None, rows.fields)


def _all_rows(tier: RamTier) -> Rows:
    """The rows in the order of eviction, where there is one: restored like this they have the same order again."""
    chunks = list(tier.export())
    if not chunks:
        return Rows(
            np.empty(0, np.uint64), np.empty((0, tier.dim), np.float32), np.empty((0, tier.state_dim), np.float32), {}
        )
    keys = np.concatenate([chunk.keys for chunk in chunks])
    take = eviction_order(tier, keys)
    return Rows(
        keys[take],
        np.concatenate([chunk.values for chunk in chunks])[take],
        np.concatenate([chunk.state for chunk in chunks])[take],
        {name: np.concatenate([chunk.fields[name] for chunk in chunks])[take] for name in chunks[0].fields},
    )
