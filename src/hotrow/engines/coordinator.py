"""Runs a discipline over one server: events go in, applied steps and grants come out.

It knows leases, and no thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease
from hotrow.modes import Mode
from hotrow.modes.base import Apply, Drop, Effect, Event, Grant, Pushed, RunFacts
from hotrow.server.core import ParameterServer
from hotrow.server.replicas import Replicas
from hotrow.staleness import Statistics
from hotrow.worker.core import Gradients

# (samples of an aggregate, whether it is a dense step) -> (samples trained up to and including it, scale of the rates)
Account = Callable[[int, bool], tuple[int, float]]


@dataclass(frozen=True, slots=True, eq=False)
class TrainedBatch:
    """A batch whose gradients were applied."""

    batch: Batch
    loss: Tensor  # one number
    output: Tensor  # of the model, before the update


@dataclass(frozen=True, slots=True, eq=False)
class Stepped:
    """A dense step that was applied; in Hybrid the rows were before."""

    step: int
    samples: int
    batches: tuple[TrainedBatch, ...]
    refused: int  # rows whose gradient was not finite


@dataclass(slots=True, eq=False)
class _Out:
    worker: int
    lease: Lease
    batch: Batch
    gradients: Gradients | None = None


@dataclass(slots=True, eq=False)
class Performed:
    """What an event came to."""

    grants: list[Grant] = field(default_factory=list)
    steps: list[Stepped] = field(default_factory=list)


class Coordinator:
    """One mode at work on one server."""

    def __init__(
        self,
        mode: Mode,
        facts: RunFacts,
        server: ParameterServer,
        account: Account,
        done: Callable[[Lease], None],
        statistics: Statistics,
    ) -> None:
        self.mode, self.facts = mode, facts
        self.discipline = mode.start(facts)
        self.statistics = statistics
        self.replicas = Replicas(server, facts.workers) if mode.dense == "local" else None
        self.granted = facts.grants  # numbers used so far
        self._server, self._account, self._done = server, account, done
        self._out: dict[int, _Out] = {}
        self._refused = 0
        server.late = mode.late

    @property
    def outstanding(self) -> int:
        """Grants without gradients."""
        return sum(out.gradients is None for out in self._out.values())

    def attach(self, grant: Grant, lease: Lease, batch: Batch) -> None:
        """The data of a grant."""
        self.granted = max(self.granted, grant.grant)
        self._out[grant.grant] = _Out(grant.worker, lease, batch)

    def pushed(self, grant: Grant, pulled_step: int, gradients: Gradients) -> Performed:
        """Gradients are in."""
        out = self._out[grant.grant]
        out.gradients = gradients
        self._server.park(grant.grant, gradients)
        performed = Performed()
        groups = ("embedding", "dense") if self.mode.name == "hybrid" else ("both",)
        for group in ("embedding",) if self.replicas is not None else groups:
            push = Pushed(group, out.worker, grant.grant, grant.token, pulled_step, gradients.samples)  # type: ignore[arg-type]
            self._perform(push, performed)
        return performed

    def on(self, event: Event) -> Performed:
        """Anything but a push."""
        performed = Performed()
        self._perform(event, performed)
        return performed

    def _perform(self, event: Event, performed: Performed) -> None:
        effects = self.discipline.on(event)
        self.statistics.take(event, effects)
        self.statistics.told(self.discipline.counts)
        for place, effect in enumerate(effects):
            match effect:
                case Grant():
                    performed.grants.append(effect)
                case Apply():
                    self._apply(effect, effects[place + 1 :], performed)
                case Drop():
                    self._drop(effect)

    def _apply(self, effect: Apply, later: Sequence[Effect], performed: Performed) -> None:
        if self.replicas is not None:
            self._apply_with_replicas(effect, later, performed)
            return
        samples, scale = self._account(0 if effect.group == "dense" else effect.samples, effect.group != "embedding")
        applied = self._server.apply(effect, samples=samples, lr_scale=scale)
        self._refused += sum(each.refused for each in applied.values())
        if effect.group != "embedding":
            performed.steps.append(self._stepped(effect))

    def _apply_with_replicas(self, effect: Apply, later: Sequence[Effect], performed: Performed) -> None:
        """KStep: rows here, then the workers' own parameters, unless the merge beside it moves them."""
        assert self.replicas is not None
        if effect.group == "dense":
            if not effect.parts:  # before a rest
                self.replicas.close({}, merges=True, lr_scale=1.0)
            return
        samples, scale = self._account(effect.samples, True)
        applied = self._server.apply(effect, samples=samples, lr_scale=scale)
        self._refused += sum(each.refused for each in applied.values())
        moved: dict[int, list[Gradients]] = {}
        for part in effect.parts:
            moved.setdefault(self._out[part.grant].worker, []).append(self._server.parked_dense(part.grant))
        merges = any(isinstance(each, Apply) and each.group == "dense" for each in later)
        self.replicas.close(moved, merges=merges, lr_scale=scale)
        performed.steps.append(self._stepped(effect))
        for part in effect.parts:
            self._server.discard(part.grant)

    def _stepped(self, effect: Apply) -> Stepped:
        batches = []
        for part in effect.parts:
            out = self._out.pop(part.grant)
            self._done(out.lease)
            assert out.gradients is not None
            batches.append(TrainedBatch(out.batch, out.gradients.loss, out.gradients.output))
        refused, self._refused = self._refused, 0
        return Stepped(effect.step, effect.samples, tuple(batches), refused)

    def _drop(self, effect: Drop) -> None:
        """Too late for its mode: its data count as trained. In one process nobody is lost."""
        assert effect.reason == "late"
        self._server.discard(effect.grant)
        self._done(self._out.pop(effect.grant).lease)
