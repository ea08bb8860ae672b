"""Real gradients in virtual time: the server and the learner of production, called by the cluster.

There is one model. Gradients are computed at the moment of the pull, so it never has to be copied: the push waits for
its virtual time. Only KStep has a copy per worker.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hotrow.client.local import LocalLookup, LocalTables
from hotrow.data.batch import Batch
from hotrow.modes import Mode
from hotrow.modes.base import Apply, Effect, Event, Grant, Group, RunFacts
from hotrow.server.core import ApplyResult, ParameterServer
from hotrow.server.replicas import LocalParameters, ReplicatedParameters
from hotrow.server.step_window import early_rows
from hotrow.sim.leases import SimLease
from hotrow.sim.work import BatchBytes
from hotrow.store.shards import shard_of
from hotrow.worker.core import Gradients, Learner


class RealWork:
    """A model that is trained. It observes the cluster, to know the active mode."""

    def __init__(self, server: ParameterServer, tables: LocalTables, learner: Learner, shards: int = 1) -> None:
        """`tables`: those of the server, which stand for so many shards."""
        self._shards = shards
        self._server, self._tables, self._learner = server, tables, learner
        self._pulled: dict[int, tuple[int, Batch, LocalLookup]] = {}  # grant -> worker, what it looked up
        self._arrived: set[int] = set()  # grants that are parked at the servers
        self._lost = 0  # pushes whose rows were lost with a shard, not yet reported
        self._versions = False
        self._parameters: LocalParameters = server
        self._learners: list[Learner] = []  # one for each worker, in KStep
        self._dense_bytes = sum(each.numel() * each.element_size() for each in learner.parameters)

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        """A mode starts; everything is at rest."""
        self._versions = mode.late is not None and mode.late.by == "version"
        self._server.late = mode.late
        if mode.dense == "local":
            replicas = ReplicatedParameters(self._server, facts.workers)
            self._parameters, self._learners = replicas, [self._learner.like(model) for model in replicas.copies]
        else:
            self._parameters, self._learners = self._server, []

    def cut(self, time_s: float) -> None:
        """A shard was lost. In KStep the copies of all workers are merged before they begin again."""
        if self._learners:
            self._parameters.apply(Apply("dense", 0, ()), samples=0)

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        """No effect: the work is done in the other calls."""

    def pull_early(self, grant: Grant, lease: SimLease, in_hand: Sequence[SimLease]) -> int:
        """Only counted. `pull` reads the values of all rows: those that could be read early have not changed since."""
        theirs = [_keys(each) for each in in_hand]
        size = 0
        for table, keys in _keys(lease).items():
            early = early_rows(keys, [each[table] for each in theirs if table in each])
            size += int(early.sum()) * (8 + 4 * self._tables.tiers[table].dim)
        return size

    def pull(self, grant: Grant, lease: SimLease, *, rest: bool = False) -> BatchBytes:
        assert lease.batch is not None
        handle = self._tables.lookup(lease.batch, learn=True, versions=self._versions)
        self._pulled[grant.grant] = (grant.worker, lease.batch, handle)
        row_bytes = self._row_bytes(handle)
        return BatchBytes(row_bytes, self._dense_bytes, row_bytes, lease.samples)

    def compute(self, grant: Grant) -> None:
        worker, batch, handle = self._computable(grant)
        self._parameters.settle()
        learner = self._learners[worker] if self._learners else self._learner
        self._park(grant, learner.learn(batch, handle, self._tables), worker)

    def _row_bytes(self, handle: LocalLookup) -> int:
        tiers = self._tables.tiers
        return sum(plan.unique * (8 + 4 * tiers[table].dim) for table, plan in handle.plans.items())

    def _computable(self, grant: Grant) -> tuple[int, Batch, LocalLookup]:
        """The worker of a batch that was pulled, and its rows."""
        return self._pulled.pop(grant.grant)

    def _park(self, grant: Grant, gradients: Gradients, worker: int) -> None:
        self._parameters.park(grant.grant, gradients, worker)

    def arrive(self, grant: int, group: Group) -> None:
        """Gradients are parked from the time when they are computed; here they are parked for a shard to lose them."""
        if self._server.parks(grant):  # not a copy that came too late
            self._arrived.add(grant)

    def lose_shard(self, shard: int) -> None:
        for grant in self._arrived:
            self._lost += self._server.lose_rows(grant, lambda keys: shard_of(keys, self._shards) == shard)

    def apply(self, effect: Apply, samples: int) -> ApplyResult:
        if effect.group != "dense":
            self._arrived.difference_update(part.grant for part in effect.parts)
        applied = self._parameters.apply(effect, samples=samples)
        lost, self._lost = self._lost, 0
        return replace(applied, undone={**applied.undone, "lost_pushes": lost}) if lost else applied

    def discard(self, grant: int) -> None:
        self._arrived.discard(grant)
        self._pulled.pop(grant, None)
        self._parameters.discard(grant)


def _keys(lease: SimLease) -> dict[str, NDArray[np.int64]]:
    """The distinct keys of a batch, by table."""
    assert lease.batch is not None
    by_table: dict[str, list[NDArray[np.int64]]] = {}
    for part in lease.batch.parts:
        by_table.setdefault(part.table, []).append(part.keys)
    return {table: np.unique(np.concatenate(keys)) for table, keys in by_table.items()}
