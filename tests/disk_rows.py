"""Rows for tests of the disk tier: every number of a row follows from its key and a stamp, so a mixed row shows."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hotrow import Table
from hotrow.store import Rows
from hotrow.store.ssd import SsdTier

FIELDS = ("version", "last_update")
DIM, STATE_DIM = 200, 8  # slots of 864 bytes: 75 in an extent of 64 KiB
EXTENT, SLOTS = 64 << 10, 75
CAPACITY = 32 * EXTENT


def make_rows(keys: Iterable[int], stamp: int, dim: int = DIM, state_dim: int = STATE_DIM) -> Rows:
    named = np.array(list(keys), np.uint64)
    first = (named % 64).astype(np.float32)[:, None]
    values = np.repeat(first + stamp % 512, dim, axis=1)  # whole numbers that 16 bits hold
    state = np.repeat(first * 2 + stamp, state_dim, axis=1)
    fields = {"version": np.full(len(named), stamp, np.uint32), "last_update": (named % 97).astype(np.uint32)}
    return Rows(named, values, state, fields)


def stamps(rows: Rows) -> dict[int, int]:
    """Key -> stamp, after a check of every number."""
    expected = make_rows([int(key) for key in rows.keys], 0, rows.values.shape[1], rows.state.shape[1])
    stamp = rows.fields["version"]
    assert (rows.values == expected.values + (stamp % 512)[:, None]).all()
    assert (rows.state == expected.state + stamp[:, None]).all()
    assert (rows.fields["last_update"] == expected.fields["last_update"]).all()
    found = dict(zip(rows.keys.tolist(), stamp.tolist(), strict=True))
    assert len(found) == len(rows.keys), "a key occurs twice"
    return found


def open_tier(path: Path, table: Table | None = None, **settings: Any) -> SsdTier:
    given: dict[str, Any] = {
        "capacity_bytes": CAPACITY,
        "dim": DIM,
        "state_dim": STATE_DIM,
        "fields": FIELDS,
        "write_behind": 0,  # two extents: rows of the others are read from the file
    } | settings
    return SsdTier(table or Table(dim=given["dim"]), path, **given)


def contents(tier: SsdTier) -> dict[int, int]:
    """All rows that are not shadowed."""
    found: dict[int, int] = {}
    for chunk in tier.export(100):
        more = stamps(chunk)
        assert not found.keys() & more.keys(), "a key is exported twice"
        found |= more
    return found


def as_keys(keys: Iterable[int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return np.array(list(keys), np.uint64)
