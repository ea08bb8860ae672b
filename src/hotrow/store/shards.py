"""Which shard has a key; a batch's keys as they go to the shards; and what a shard holds of a table.

A key's shard depends on its hash and on the number of shards alone, so everybody works it out without asking.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotrow import _native
from hotrow.admission import FILTER_BYTES_MIN
from hotrow.config import AtLeast, Segment, Table
from hotrow.errors import InputError
from hotrow.spec import whole_number
from hotrow.store.arrays import ArrayLike, Integers, Keys, as_keys
from hotrow.store.ram import RamTier
from hotrow.store.rows import Rows
from hotrow.store.tiered import TieredTier

SHARDS_MOST = 1024  # ten bits of the hash


class Sharded(NamedTuple):
    """The keys of a batch, each once. Shard s has keys[bounds[s]:bounds[s + 1]], in order of first occurrence."""

    keys: Keys
    bounds: NDArray[np.int64]  # [shards + 1]
    inverse: Integers  # for every key of the batch its place in `keys`


def shard_of(keys: ArrayLike, shards: int, threads: int = 1) -> Integers:
    """The shard of each key (uint64, or int64 read as its bits)."""
    batch = as_keys("shard_of: keys", keys)
    out = np.empty(batch.size, np.uint32)
    _native.shard_of(batch, _shards(shards), out, _threads(threads))
    return out


def sharded(keys: ArrayLike, shards: int, threads: int = 1) -> Sharded:
    """The keys of a batch without duplicates, those of one shard together. `threads` never changes the result."""
    batch = as_keys("sharded: keys", keys)
    found, inverse = np.empty(batch.size, np.uint64), np.empty(batch.size, np.uint32)
    bounds = np.empty(_shards(shards) + 1, np.int64)
    size = _native.sharded(batch, shards, found, bounds, inverse, _threads(threads))
    return Sharded(found[:size], bounds, inverse)


def share_of(table: Table, number: int, shards: int) -> Table:
    """What shard `number` holds of a table: its part of the capacity, in a segment of its own.

    First values stay the same, since they depend on seed, name and key.
    """
    changed: dict[str, Any] = {}
    if table.capacity_rows is not None:
        changed["capacity"] = -(-table.capacity_rows // shards)
    elif table.capacity_bytes is not None:
        changed["capacity"] = f"{max(1, table.capacity_bytes // shards)}B"
    if table.disk_bytes is not None:
        changed["disk"] = f"{max(1, table.disk_bytes // shards)}B"
        if table.path is not None and table.segment is None:  # else the name of the segment tells the shards apart
            changed["path"] = table.path / f"hotrow-{number}-of-{shards}"
    if isinstance(table.admission, AtLeast) and table.admission.filter_bytes is not None:
        size = max(FILTER_BYTES_MIN, table.admission.filter_bytes // shards)
        changed["admission"] = AtLeast(count=table.admission.count, filter=size)
    if table.segment is not None:  # a run with another number of shards must not take these rows for its own
        settings = table.segment.model_dump()
        changed["segment"] = Segment(**{**settings, "run": f"{table.segment.run}-{number}-of-{shards}"})
    return Table(**{**{name: getattr(table, name) for name in Table.model_fields}, **changed})


def export_from(tier: RamTier, cursor: int, most: int) -> tuple[Rows, int]:
    """At most so many whole rows from a cursor on, 0 at first, and the next cursor; 0: there are no more."""
    whole_number("most", most, 1, 2**32, InputError)
    if isinstance(tier, TieredTier):
        return tier.export_from(cursor, most)
    rows = tier._empty_rows(most)
    count, after = tier._native.export_rows(cursor, rows.keys, rows.values, rows.state, rows.fields)
    fields = {name: column[:count] for name, column in rows.fields.items()}
    return Rows(rows.keys[:count], rows.values[:count], rows.state[:count], fields), after if count == most else 0


def _shards(shards: int) -> int:
    return whole_number("shards", shards, 1, SHARDS_MOST, InputError)


def _threads(threads: int) -> int:
    return whole_number("threads", threads, 1, 1024, InputError)
