"""Announces the ids of batches that are looked up soon to the shards that have their rows, for tables with a disk.

A hint is a one-way message: a shard that gets it brings rows from disk into memory, and results do not depend on it.
The role that has read a batch sends it: the driver, a trainer or a loader.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.store.shards import sharded
from hotrow.store.tiers import named_tables
from hotrow.transport.client import RpcClient
from hotrow.transport.frames import RowBlock, pack
from hotrow.transport.messages import LoadAhead

KEYS_MOST = 2**20  # of one table in one hint; lookups find the rest


def hinted_tables(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Tables whose lookups are announced. Shards see few of the lookups of cached rows, so those are left out."""
    named = named_tables(tables)
    return {name: table for name, table in named.items() if table.disk is not None and table.cache is None}


class RowHints:
    """Sends hints to shards, by connection name. Used by one thread at a time."""

    def __init__(self, tables: Mapping[str, Table], wire: RpcClient, shards: Sequence[str], *, threads: int) -> None:
        self._dims = {name: table.dim for name, table in hinted_tables(tables).items()}
        self._wire, self._shards, self._threads = wire, tuple(shards), threads
        self.sent = 0  # messages

    def send(self, batch: Batch) -> None:
        """Announce the ids of a batch. Never waits; a client that is closed sends nothing."""
        ids = {
            table: sharded(np.concatenate([part.keys for part in parts]), len(self._shards), self._threads)
            for table in self._dims
            if (parts := [part for part in batch.parts if part.table == table])
        }
        for shard, name in enumerate(self._shards):
            mine = []
            for table, found in ids.items():
                first, last = int(found.bounds[shard]), int(found.bounds[shard + 1])
                if last > first:
                    keys = found.keys[first : min(last, first + KEYS_MOST)]
                    mine.append(RowBlock(table, keys=keys, dim=self._dims[table]))
            if mine:
                blocks, frames = pack(mine, "fp32")
                with suppress(InputError):  # the run ends
                    self._wire.send_one_way(name, LoadAhead(blocks), frames)
                    self.sent += 1
