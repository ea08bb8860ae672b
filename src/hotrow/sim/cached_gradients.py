"""Real gradients of workers that cache rows: production caches, server and learner, called in virtual time.

A worker computes from its own rows as they are when it begins to compute, and updates them when it ends. The driver's
`Apply` then concerns the tables without a cache and the dense parameters alone.
"""

import numpy as np

from hotrow.cache.local import CachedGradients
from hotrow.cache.modes import check_cached_mode
from hotrow.client.local import LocalLookup, LocalTables
from hotrow.data.batch import Batch
from hotrow.modes import Mode
from hotrow.modes.base import Grant, RunFacts
from hotrow.server.core import ParameterServer
from hotrow.sim.cached_tables import SimCachedTables
from hotrow.sim.caches import CacheSend
from hotrow.sim.gradients import RealWork
from hotrow.sim.leases import SimLease
from hotrow.sim.work import BatchBytes
from hotrow.store.shards import Sharded
from hotrow.worker.core import Gradients, Learner


class CachedRealWork(RealWork):
    """A model that is trained by workers with caches."""

    def __init__(self, server: ParameterServer, tables: SimCachedTables, learner: Learner, shards: int = 1) -> None:
        super().__init__(server, tables, learner, shards)
        self._cached = tables
        self._ids: dict[int, tuple[dict[str, Sharded], int]] = {}  # by grant, with the bytes of the request
        self._computed: dict[int, Gradients] = {}  # by grant: not in the cache yet

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        check_cached_mode(self._cached.specs, mode)
        super().started(time_s, mode, facts)
        self._mode, self._facts = mode, facts
        self._cached.sim.reset(facts.workers)

    def request(self, grant: Grant, lease: SimLease) -> CacheSend:
        ids = self._cached.distinct(_batch_of(lease))
        keys = {table: found.keys for table, found in ids.items()}
        send = self._cached.sim.request(grant.grant, grant.worker, keys, self._cached.samples)
        self._ids[grant.grant] = ids, send.size
        return send

    def take(self, send: CacheSend) -> None:
        self._cached.sim.take(send)

    def pull(self, grant: Grant, lease: SimLease, *, rest: bool = False) -> BatchBytes:
        batch = _batch_of(lease)
        down = self._cached.sim.answer(grant.grant, self._cached.samples)
        plain = self._cached.plain_lookup(batch)
        self._pulled[grant.grant] = (grant.worker, batch, plain)
        rows = self._row_bytes(plain)
        return BatchBytes(down + rows, self._dense_bytes, rows, lease.samples, self._ids[grant.grant][1])

    def receive(self, grant: int) -> None:
        self._cached.sim.receive(grant)

    def _computable(self, grant: Grant) -> tuple[int, Batch, LocalLookup]:
        worker, batch, plain = super()._computable(grant)
        ids, _ = self._ids.pop(grant.grant)
        return worker, batch, self._cached.joined_lookup(grant.grant, batch, ids, plain)

    def _park(self, grant: Grant, gradients: Gradients, worker: int) -> None:
        super()._park(grant, gradients, worker)
        self._computed[grant.grant] = gradients

    def push(self, grant: int) -> None:
        gradients = self._computed.pop(grant)
        factor = self._mode.on_arrival(self._facts, gradients.samples)
        assert factor is not None
        mine = {table: rows for table, rows in gradients.rows.items() if isinstance(rows, CachedGradients)}
        gradients.rows = {table: rows for table, rows in gradients.rows.items() if table not in mine}
        scaled = {}
        for table, rows in mine.items():
            assert rows.weights is not None
            scaled[table] = rows.gradients, rows.weights * np.float32(factor)
        self._cached.sim.push(grant, scaled, gradients.samples)

    def flush(self, worker: int) -> CacheSend | None:
        return self._cached.sim.flush(worker, self._cached.samples)

    def lose_worker(self, worker: int) -> int:
        return self._cached.sim.lose(worker)

    def take_counts(self) -> dict[str, int]:
        return self._cached.sim.take_counts()

    def discard(self, grant: int) -> None:
        self._ids.pop(grant, None)
        self._computed.pop(grant, None)
        self._cached.sim.discard(grant)
        super().discard(grant)


def work_of(server: ParameterServer, tables: LocalTables, learner: Learner, shards: int = 1) -> RealWork:
    """The work of a model: with caches, where its tables have them."""
    if isinstance(tables, SimCachedTables):
        return CachedRealWork(server, tables, learner, shards)
    return RealWork(server, tables, learner, shards)


def _batch_of(lease: SimLease) -> Batch:
    assert lease.batch is not None
    return lease.batch
