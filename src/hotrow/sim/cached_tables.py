"""Tables of a simulated cluster whose workers have caches in virtual time (`SimCaches`)."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from hotrow.cache.local import CachedLocalLookup, CachedLocalTables, CachedUse
from hotrow.cache.table_vectors import HostVectors
from hotrow.client.local_lookup import LocalLookup
from hotrow.config import Table
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.sim.caches import SimCaches
from hotrow.store.shards import Sharded, sharded


class SimCachedTables(CachedLocalTables):
    """The tables on the servers; `sim` has the caches. Whatever reads without training sees all changes flushed."""

    def __init__(self, tables: Mapping[str, Table], *, threads: int = 1) -> None:
        super().__init__(tables, threads=threads)
        self.sim = SimCaches(self.specs, self.tiers, threads=threads)

    def distinct(self, batch: Batch) -> dict[str, Sharded]:
        """The distinct ids of a batch, by cached table."""
        return {
            table: sharded(np.concatenate([part.keys for part in parts]), 1, self.threads)
            for table, parts in self._cached_parts(batch).items()
        }

    def plain_lookup(self, batch: Batch) -> LocalLookup:
        """The rows of the tables without a cache."""
        cached = self._cached_parts(batch)
        rest = tuple(part for part in batch.parts if part.table not in cached)
        return super().lookup(replace(batch, parts=rest), learn=True)

    def joined_lookup(self, grant: int, batch: Batch, ids: Mapping[str, Sharded], plain: LocalLookup) -> LocalLookup:
        """The vectors of a batch: cached rows as its worker sees them now, and those of `plain`."""
        outputs = {id(output.part): output for output in plain.outputs}
        uses = {}
        for table, parts in self._cached_parts(batch).items():
            vectors = HostVectors(parts, ids[table], self.sim.values(grant, table), len(batch), self.threads)
            uses[table] = CachedUse(*self.sim.batch(grant, table), vectors)
            outputs.update({id(each.part): each for each in vectors.outputs})
        ordered = tuple(outputs[id(part)] for part in batch.parts)
        return CachedLocalLookup(len(batch), ordered, plain.plans, plain.versions, uses)

    def flush(self) -> None:
        """Write all changes back, in no time: for a prediction in the middle of a run."""
        for worker in list(self.sim.caches):
            send = self.sim.flush(worker, self.samples)
            if send is not None:
                self.sim.take(send)

    def close(self, *, leave: bool = False) -> None:
        """Release all rows, cached ones too."""
        self.sim.close()
        super().close(leave=leave)

    def _cached_parts(self, batch: Batch) -> dict[str, list[FeatureBlock]]:
        parts: dict[str, list[FeatureBlock]] = {}
        for part in batch.parts:
            if part.table in self.sim.settings:
                parts.setdefault(part.table, []).append(part)
        return parts
