"""Runs a discipline over parameters, wherever they are: events go in, applied steps and grants come out.

It knows leases, and no thread.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease
from hotrow.modes import Mode
from hotrow.modes.base import Apply, Drop, Event, Grant, Pushed, RunFacts
from hotrow.runtime.executors import BatchResult
from hotrow.server.core import ApplyResult
from hotrow.server.replicas import Parameters
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
class StepResult:
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
class EventResult:
    """What an event came to."""

    grants: list[Grant] = field(default_factory=list)
    steps: list[StepResult] = field(default_factory=list)


class Coordinator:
    """One mode at work on one server."""

    def __init__(
        self,
        mode: Mode,
        facts: RunFacts,
        parameters: Parameters,
        account: Account,
        done: Callable[[Lease], None],
        statistics: Statistics,
    ) -> None:
        self.mode, self.facts = mode, facts
        self.discipline = mode.start(facts)
        self.statistics = statistics
        self.parameters = parameters
        self.granted = facts.grants  # numbers used so far
        self._account, self._done = account, done
        self._out: dict[int, _Out] = {}
        self._refused = 0

    @property
    def outstanding(self) -> int:
        """Grants without gradients."""
        return sum(out.gradients is None for out in self._out.values())

    def attach(self, grant: Grant, lease: Lease, batch: Batch) -> None:
        """The data of a grant."""
        self._out[grant.grant] = _Out(grant.worker, lease, batch)

    def close(self, *, failed: bool = False) -> None:
        """Another mode comes, or nobody: what was not applied is forgotten, also by those who keep it."""
        for grant in self._out:
            self.parameters.discard(grant)
        if self._out and not failed:
            self.parameters.settle()
        self.statistics.told(self.discipline.counts, last=True)

    def rest(self) -> None:
        """Nothing is outstanding: wait until all that was decided is done."""
        self._count(self.parameters.rest())

    def take_refused(self) -> int:
        """Rows whose gradient was not finite, since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def pushed(self, finished: BatchResult) -> EventResult:
        """Gradients are in."""
        grant, gradients = finished.grant, finished.gradients
        out = self._out[grant.grant]
        out.gradients = gradients
        self.parameters.park(grant.grant, gradients, out.worker)
        performed = EventResult()
        for group in self.mode.groups:
            pulled = finished.looked_step if group == "embedding" else finished.pulled_step
            self._perform(Pushed(group, out.worker, grant.grant, grant.token, pulled, gradients.samples), performed)
        return performed

    def on(self, event: Event) -> EventResult:
        """Anything but a push."""
        performed = EventResult()
        self._perform(event, performed)
        return performed

    def _perform(self, event: Event, performed: EventResult) -> None:
        effects = self.discipline.on(event)
        self.statistics.take(event, effects)
        self.statistics.told(self.discipline.counts)
        for effect in effects:
            match effect:
                case Grant():
                    self.granted = effect.grant
                    performed.grants.append(effect)
                case Apply():
                    self._apply(effect, performed)
                case Drop():
                    self._drop(effect)
        self.parameters.settle()

    def _apply(self, effect: Apply, performed: EventResult) -> None:
        groups = self.mode.groups
        ends_step = effect.group == groups[-1]
        samples, scale = self._account(effect.samples if effect.group == groups[0] else 0, ends_step)
        self._count(self.parameters.apply(effect, samples=samples, lr_scale=scale))
        if ends_step:
            performed.steps.append(self._stepped(effect))

    def _count(self, changed: ApplyResult) -> None:
        self.statistics.add_ids(changed.ids)
        self.statistics.add_counts(changed.in_vain)
        self._refused += changed.refused

    def _stepped(self, effect: Apply) -> StepResult:
        batches = []
        for part in effect.parts:
            out = self._out.pop(part.grant)
            self._done(out.lease)
            assert out.gradients is not None
            batches.append(TrainedBatch(out.batch, out.gradients.loss, out.gradients.output))
        return StepResult(effect.step, effect.samples, tuple(batches), self.take_refused())

    def _drop(self, effect: Drop) -> None:
        """Too late for its mode: its data count as trained. In one process nobody is lost."""
        assert effect.reason == "late"
        self.parameters.discard(effect.grant)
        self._done(self._out.pop(effect.grant).lease)
