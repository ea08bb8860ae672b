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
from hotrow.store import RamTier

# What may differ between the module that saved and the one that loads: it shapes no row, only the updates to come.
FREE_SETTINGS = {"lr", "l2", "decay", "clip"}


def save_rows(tier: RamTier) -> dict[str, Any]:
    """Everything a table holds."""
    chunks = list(tier.export())
    names = chunks[0].fields if chunks else {}
    return {
        "table": tier.table.model_dump_json(),
        "keys": _joined([chunk.keys.view(np.int64) for chunk in chunks], (0,), np.int64),
        "values": _joined([chunk.values for chunk in chunks], (0, tier.dim), np.float32),
        "state": _joined([chunk.state for chunk in chunks], (0, tier.state_dim), np.float32),
        "fields": {
            name: _joined([chunk.fields[name].view(np.int32) for chunk in chunks], (0,), np.int32) for name in names
        },
    }


def load_rows(table: Table, saved: Mapping[str, Any], threads: int) -> RamTier:
    """A new tier in plain memory with the saved rows; refuses rows of another kind of table."""
    missing = {"table", "keys", "values", "state", "fields"} - set(saved)
    if missing:
        raise InputError(f"table {table.name!r}: the state has no {', '.join(sorted(missing))}: was it cut?")
    _check_same_kind(table, json.loads(saved["table"]))
    tier = RamTier(table.model_copy(update={"segment": None}), threads=threads)
    if len(saved["keys"]):
        fields = {name: bits.cpu().numpy().view(np.uint32) for name, bits in saved["fields"].items()}
        state = saved["state"].cpu().numpy() if tier.state_dim else None
        tier.put(saved["keys"].cpu().numpy().view(np.uint64), saved["values"].cpu().numpy(), state, fields)
    return tier


def move_rows(source: RamTier, target: RamTier) -> None:
    """Replace all rows of `target` by those of `source`."""
    for chunk in target.export():
        target.erase(chunk.keys)
    for chunk in source.export():
        target.put(chunk.keys, chunk.values, chunk.state if source.state_dim else None, chunk.fields)


def _joined(parts: list[Any], empty_shape: tuple[int, ...], dtype: Any) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(parts) if parts else np.empty(empty_shape, dtype))


def _check_same_kind(table: Table, saved: dict[str, Any]) -> None:
    ours = _kind(table.model_dump(mode="json"))
    theirs = _kind(saved)
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            differ = f"{name} is {theirs.get(name)!r} in the state and {ours.get(name)!r} in this module"
            raise InputError(f"table {table.name!r}: {differ}: make the module with the settings of the state")


def _kind(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that shape rows, flat: {"dim": 16, "optimizer.name": "adagrad", ...}."""
    optimizer = settings["optimizer"]
    # FTRL's z says what the value is only together with lr and l2.
    free = FREE_SETTINGS - {"lr", "l2"} if optimizer["name"] == "ftrl" else FREE_SETTINGS
    kind = {"dim": settings["dim"], "optimizer.name": optimizer["name"]}  # told first, as the rest follows from them
    kind |= {f"optimizer.{name}": value for name, value in optimizer.items() if name not in free}
    apart = {"optimizer", "segment"}  # where rows live does not shape them
    return kind | {name: value for name, value in settings.items() if name not in apart}
