"""What a worker's cache and the server of a table send each other, and the server's half.

One request has the changes of rows that leave the cache or are too far ahead, the clocks of cached rows, and the keys
of absent ones. The server adds the changes first, so that rows which are read after them contain them.
"""

from dataclasses import dataclass

import numpy as np

from hotrow.cache.changes import Changes
from hotrow.cache.clocks import after_write_back, is_valid
from hotrow.config import Cache
from hotrow.store import Applied, RamTier, Rows
from hotrow.store.arrays import Flags, Integers, Keys

NO_ROW = np.uint32(2**32 - 1)  # the clock of a key to which the server gave no row


@dataclass(frozen=True, slots=True, eq=False)
class CacheRequest:
    """Of one table and batch. A key is checked or fetched, not both."""

    changes: Changes  # their state is of the SWAP period of `samples`
    samples: int
    checked: Keys
    clocks: Integers  # current ones of the checked rows
    fetched: Keys

    @property
    def nbytes(self) -> int:
        """The size on the wire."""
        changes = self.changes
        keys = 16 * len(changes) + 12 * len(self.checked) + 8 * len(self.fetched)  # with clocks and updates
        return changes.values.nbytes + changes.state.nbytes + keys


@dataclass(frozen=True, slots=True, eq=False)
class CacheReply:
    """Rows in the order of the checked keys that are invalid, then of the fetched keys; fields: clock, period."""

    invalid: Flags  # of each checked key
    rows: Rows

    @property
    def nbytes(self) -> int:
        """The size on the wire."""
        rows = self.rows
        fields = sum(column.nbytes for column in rows.fields.values())
        return -(-len(self.invalid) // 8) + rows.values.nbytes + rows.state.nbytes + fields


def add_changes(tier: RamTier, request: CacheRequest, cache: Cache, *, step: int) -> Applied:
    """Add the changes of a request to the rows."""
    changes = request.changes
    if not len(changes):
        return Applied(0, 0, 0)
    server = tier.clocks(changes.keys).astype(np.int64)
    clocks = after_write_back(cache.clock, server, changes.clocks.astype(np.int64), changes.updates.astype(np.int64))
    return tier.add(changes.keys, changes.values, changes.state, step=step, samples=request.samples, clocks=clocks)


def read_rows(tier: RamTier, request: CacheRequest, cache: Cache, *, samples: int) -> CacheReply:
    """Check the clocks of cached rows; the rows of those that are not valid, and of the fetched keys.

    Absent rows are created. A cached row that the server has evicted is not valid: it begins again.
    """
    there = tier.versions(request.checked) > 0
    clocks = tier.clocks(request.checked).astype(np.int64)
    invalid: Flags = ~(there & is_valid(clocks, request.clocks.astype(np.int64), cache.staleness))
    tier.find_or_init(np.concatenate([request.checked, request.fetched]), samples=samples)
    found = tier.whole_rows(np.concatenate([request.checked[invalid], request.fetched]))
    fields = {"clock": np.where(found.fields["version"] > 0, found.fields["clock"], NO_ROW)}
    if "period" in found.fields:
        fields["period"] = found.fields["period"]
    return CacheReply(invalid, Rows(found.keys, found.values, found.state, fields))
