"""Real gradients in virtual time: the server and the learner of production, called when the cluster says so.

There is one model. Gradients are computed at the moment of the pull, so it never has to be copied: what waits is the
push. Only KStep has a copy per worker.
"""

from collections.abc import Sequence

from hotrow.client.local import LocalHandle
from hotrow.data.batch import Batch
from hotrow.modes import Mode
from hotrow.modes.base import Apply, Effect, Event, Grant, RunFacts
from hotrow.server.core import ParameterServer
from hotrow.server.replicas import Replicas
from hotrow.sim.leases import Lease
from hotrow.sim.work import Wire
from hotrow.worker.core import Gradients, Learner


class RealWork:
    """A model that is trained. It watches the cluster, to know which mode is at work."""

    def __init__(self, server: ParameterServer, learner: Learner) -> None:
        self.server, self.learner = server, learner
        self._pulled: dict[int, tuple[int, Batch, LocalHandle]] = {}  # grant -> worker, what it looked up
        self._workers: dict[int, int] = {}  # grant that is parked -> worker, where there are copies
        self._versions = False
        self._replicas: Replicas | None = None
        self._learners: list[Learner] = []
        self._dense_bytes = sum(each.numel() * each.element_size() for each in learner.parameters)

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        """Everything is at rest, and goes on in this mode."""
        self.server.late = mode.late
        self._versions = mode.late is not None and mode.late.by == "version"
        self._replicas = Replicas(self.server, facts.workers) if mode.dense == "local" else None
        self._learners = [self.learner.like(model) for model in self._replicas.models] if self._replicas else []

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        """What is to be done comes by the other calls."""

    def pull(self, grant: Grant, lease: Lease) -> Wire:
        assert lease.batch is not None
        handle = self.server.client.lookup(lease.batch, learn=True, versions=self._versions)
        self._pulled[grant.grant] = (grant.worker, lease.batch, handle)
        row_bytes = sum(
            plan.unique * (8 + 4 * self.server.client.tiers[table].dim) for table, plan in handle.plans.items()
        )
        return Wire(row_bytes, self._dense_bytes, row_bytes, lease.samples)

    def compute(self, grant: Grant) -> None:
        worker, batch, handle = self._pulled.pop(grant.grant)
        if self._replicas is not None:
            self._replicas.settle()
            self._workers[grant.grant] = worker
        learner = self._learners[worker] if self._learners else self.learner
        self.server.park(grant.grant, learner.learn(batch, handle, self.server.client))

    def apply(self, effect: Apply, samples: int) -> None:
        if self._replicas is not None and effect.group == "dense":
            self._replicas.merge()
            return
        self.server.apply(effect, samples=samples)
        if self._replicas is not None:
            moved: dict[int, list[Gradients]] = {}
            for part in effect.parts:
                moved.setdefault(self._workers.pop(part.grant), []).append(self.server.take_dense(part.grant))
            self._replicas.moves(moved, lr_scale=1.0)

    def discard(self, grant: int) -> None:
        self._pulled.pop(grant, None)
        self._workers.pop(grant, None)
        self.server.discard(grant)
