"""Tables of this process with caches in front of them, one for each worker: the rule of a cluster, without its network.

What a worker reads and when its updates reach the table is as on a cluster whose messages take no time.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hotrow.cache.cache import CacheCounts, CachedBatch, RowCache, counts_since
from hotrow.cache.exchange import add_changes, read_rows
from hotrow.cache.table_vectors import HostVectors
from hotrow.client.aggregate import Average, RowGradients, RowPart, TableGradients
from hotrow.client.local import LocalTables
from hotrow.client.local_lookup import LocalLookup
from hotrow.config import Table
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.staleness import Histogram, Staleness
from hotrow.store import Applied
from hotrow.store.shards import sharded


@dataclass(frozen=True, slots=True, eq=False)
class CachedUse:
    """Rows of one cached table that a batch uses."""

    cache: RowCache
    batch: CachedBatch
    vectors: HostVectors


@dataclass(frozen=True, slots=True, eq=False)
class CachedLocalLookup(LocalLookup):
    """One lookup; plans are of the tables without a cache."""

    cached: dict[str, CachedUse] = field(default_factory=dict)  # by table


@dataclass(frozen=True, slots=True, eq=False)
class CachedGradients(RowGradients):
    """Of a cached table: a gradient for each distinct id, with its weight."""

    use: CachedUse | None = None


class CachedLocalTables(LocalTables):
    """Tables in the memory of this process, with a cache for each worker where a table has one."""

    def __init__(self, tables: Mapping[str, Table], *, threads: int | None = None, attach: bool = True) -> None:
        super().__init__(tables, threads=threads, attach=attach)
        self._lock = threading.Lock()  # workers look up in threads of their own
        self._caches: dict[str, list[RowCache]] = {}
        self._counts = {name: CacheCounts() for name, table in self.specs.items() if table.cache is not None}
        self._taken: dict[str, CacheCounts] = {}
        self.open_caches(1)

    def open_caches(self, workers: int) -> None:
        """A mode begins, with empty caches. The one before has flushed its own when it ended, unless it failed."""
        with self._lock:
            for cache in (cache for caches in self._caches.values() for cache in caches):
                cache.close()
            self._caches = {
                name: [
                    RowCache(table, table.cache, workers=workers, threads=self.threads, counts=self._counts[name])
                    for _ in range(workers)
                ]
                for name, table in self.specs.items()
                if table.cache is not None
            }

    def caches(self, table: str) -> Sequence[RowCache]:
        """Of all workers."""
        return self._caches[table]

    def lookup(self, batch: Batch, *, learn: bool, versions: bool = False, worker: int = 0) -> LocalLookup:
        """Vectors for all ids of a batch. Where it does not learn, the tables get all changes first, and are read."""
        if not learn:
            self.flush()
            return super().lookup(batch, learn=False, versions=versions)
        parts: dict[str, list[FeatureBlock]] = {}
        for part in batch.parts:
            if part.table in self._caches:
                parts.setdefault(part.table, []).append(part)
        others = replace(batch, parts=tuple(part for part in batch.parts if part.table not in parts))
        plain = super().lookup(others, learn=True, versions=versions)
        outputs = {id(output.part): output for output in plain.outputs}
        cached = {}
        for table, mine in parts.items():
            cached[table] = self._look_up_cached(table, mine, len(batch), worker)
            outputs.update({id(each.part): each for each in cached[table].vectors.outputs})
        ordered = tuple(outputs[id(part)] for part in batch.parts)
        return CachedLocalLookup(len(batch), ordered, plain.plans, plain.versions, cached)

    def _look_up_cached(self, table: str, parts: Sequence[FeatureBlock], samples: int, worker: int) -> CachedUse:
        ids = sharded(np.concatenate([part.keys for part in parts]), 1, self.threads)
        tier, cache = self.tiers[table], self._caches[table][worker]
        with self._lock:
            batch = cache.begin(ids.keys, samples=self.samples)
            add_changes(tier, batch.request, cache.cache, step=0)
            cache.receive(batch, read_rows(tier, batch.request, cache.cache, samples=self.samples))
            rows = cache.read(batch)
        return CachedUse(cache, batch, HostVectors(parts, ids, rows, samples, self.threads))

    def gradients(self, handle: LocalLookup) -> dict[str, TableGradients]:
        """The gradients that backward left in the outputs, by table."""
        found = super().gradients(handle)
        for table, use in (handle.cached if isinstance(handle, CachedLocalLookup) else {}).items():
            keys = use.batch.keys
            weights = np.ones(len(keys), np.float32)
            if (summed := use.vectors.sums()) is None:  # its rows are released when the push is applied
                sums, weights[:] = np.zeros((len(keys), self.specs[table].dim), np.float32), 0
            else:
                sums, used = summed
                if used is not None:
                    weights[~used] = 0
            found[table] = CachedGradients(keys.view(np.int64), use.batch.plan, sums, weights=weights, use=use)
        return found

    def apply(
        self,
        parts: Sequence[RowPart],
        *,
        step: int,
        samples: int,
        lr_scale: float = 1.0,
        average: Average = "batch",
        late: Staleness | None = None,
        staleness: Histogram | None = None,
    ) -> dict[str, Applied]:
        """Apply a push to the rows of its worker's caches, and to the tables that have none."""
        applied: dict[str, Applied] = {}
        plain = []
        for part in parts:
            rows: dict[str, TableGradients] = {}
            for table, given in part.rows.items():
                if isinstance(given, CachedGradients):
                    applied[table] = self._apply_cached(given, part.factor, max(self.samples, samples), lr_scale)
                else:
                    rows[table] = given
            plain.append(replace(part, rows=rows))
        times = {"step": step, "samples": samples}
        return applied | super().apply(
            plain, **times, lr_scale=lr_scale, average=average, late=late, staleness=staleness
        )

    def _apply_cached(self, given: CachedGradients, factor: float, samples: int, lr_scale: float) -> Applied:
        use = given.use
        if use is None or given.weights is None:
            raise AssertionError("gradients of a cached table name its rows and have weights")
        weights = given.weights * np.float32(factor)
        with self._lock:
            applied = use.cache.apply(use.batch, given.gradients, weights, samples=samples, lr_scale=lr_scale)
            use.cache.finish(use.batch)
        return applied

    def take_counts(self) -> dict[str, int]:
        """What the caches of all workers counted since the last call."""
        with self._lock:
            now = {name: replace(counts) for name, counts in self._counts.items()}
        taken, self._taken = self._taken, now
        return counts_since(taken, now)

    def settle(self) -> None:
        """Perform updates that were left for later, and write all changes of cached rows back."""
        self.flush()
        super().settle()

    def flush(self) -> None:
        """Write all changes of cached rows back."""
        with self._lock:
            for table, caches in self._caches.items():
                for cache in caches:
                    for request in cache.take_all_changes(samples=self.samples):
                        add_changes(self.tiers[table], request, cache.cache, step=0)
