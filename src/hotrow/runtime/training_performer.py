"""Performs the effects of a mode on parameters: granted batches, applied steps, dropped batches."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease
from hotrow.modes import Mode
from hotrow.modes.base import Apply, Drop, Effect, Event, Grant, value
from hotrow.runtime.clock import Elapsed
from hotrow.runtime.executors import BatchResult
from hotrow.runtime.interrupts import defer_every_sigint
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.observer import ModeObserver, notify
from hotrow.runtime.state import RunState
from hotrow.server.core import NOTHING_NEW, ApplyResult
from hotrow.server.replicas import Parameters
from hotrow.staleness import Statistics


@value
class TrainedBatch:
    """A batch whose gradients were applied."""

    batch: Batch
    loss: float
    output: Tensor | None  # of the model, before the update; None: its scores are in the sketches of `take_scores`


@value
class StepResult:
    """A dense step that was applied; in Hybrid the rows were before."""

    step: int
    samples: int
    batches: tuple[TrainedBatch, ...]
    refused: int  # rows whose gradient was not finite


class TrainingPerformer:
    """The performer of a mode that trains. `steps` are applied and not yet taken."""

    def __init__(
        self,
        mode: Mode,
        parameters: Parameters,
        leases: LeaseQueue,
        state: RunState,
        statistics: Statistics,
        observer: ModeObserver | None,
    ) -> None:
        self.parameters, self.observer = parameters, observer
        self.granted: deque[tuple[Grant, Batch]] = deque()  # by the current event, not submitted yet
        self.steps: deque[StepResult] = deque()
        self._leases, self._state, self._statistics = leases, state, statistics
        self._last_group, self._replicated = mode.groups[-1], mode.dense == "local"
        self._unpushed: dict[int, tuple[Grant, tuple[Lease, Batch]]] = {}  # by number
        self._pushed: dict[int, tuple[Lease, TrainedBatch]] = {}  # by grant, not all gradients are applied
        self._rows_ahead: set[int] = set()  # grants whose rows are applied, and whose dense gradients are not
        self._unanswered: set[int] = set()  # grants of a step that counts, whose workers were lost
        self._applying = False
        self._refused = 0
        self._together = False  # effects of several events are settled at once

    @property
    def half_applied(self) -> bool:
        """Whether rows and dense parameters would be of different steps if the mode ended now."""
        return self._applying or bool(self._rows_ahead)

    @property
    def open_grants(self) -> list[int]:
        """Granted, and neither applied nor dropped."""
        return sorted([*self._pushed, *self._unpushed])

    @property
    def samples_granted(self) -> int:
        """Of all batches that were granted and not dropped, in modes that apply rows and dense parameters together."""
        arrived = sum(len(trained.batch) for _, trained in self._pushed.values())
        return self._state.samples + arrived + sum(len(batch) for _, (_, batch) in self._unpushed.values())

    def observe(self, event: Event, effects: Sequence[Effect]) -> None:
        if self.observer is not None:
            notify(self.observer, event)

    def begin(self, grant: Grant, lease: tuple[Lease, Batch]) -> None:
        self._unpushed[grant.grant] = (grant, lease)
        self.granted.append((grant, lease[1]))

    def pushed(self, result: BatchResult) -> None:
        """The gradients of a batch arrived; its mode has not decided on them."""
        grant = result.grant.grant
        _, (lease, batch) = self._unpushed.pop(grant)
        self._pushed[grant] = lease, TrainedBatch(batch, result.loss, result.output)

    def apply(self, effect: Apply, samples: int) -> None:
        """Parameters, counters and position change together; a fault in between leaves `half_applied`."""
        state, ends_step = self._state, effect.group == self._last_group
        self._applying = True
        with defer_every_sigint():
            applied = self.parameters.apply(effect, samples=state.samples + samples, lr_scale=state.lr_scale)
            state.advance(samples, dense_step=ends_step)
            if applied is not NOTHING_NEW:
                self.count(applied)
            if ends_step:
                self.steps.append(self._step_result(effect))
            self._applying = False
            self._note_rows_ahead(effect)

    def drop(self, effect: Drop) -> int | None:
        """Count a batch that came too late for its mode as trained; one that was not pushed is dealt again."""
        self.parameters.discard(effect.grant)
        if effect.reason == "late":
            self._leases.done(self._pushed.pop(effect.grant)[0])
            return None
        grant, lease = self._unpushed.pop(effect.grant)
        self._leases.give_back(lease)
        return grant.worker

    def unanswered(self, step: int) -> list[BatchResult]:
        """Batches of a step that counts, of workers that were lost before they answered.

        Their losses are not known: the mean of the others leaves that of the step as it is.
        """
        known = [trained.loss for _, trained in self._pushed.values()]
        loss = sum(known) / len(known) if known else float("nan")
        lost = [(grant, batch) for grant, (_, batch) in self._unpushed.values() if grant.token == step]
        self._unanswered.update(grant.grant for grant, _ in lost)
        self._statistics.add_counts({"pushes_unanswered": len(lost)})
        return [BatchResult(grant, step, step, len(batch), loss, None, Elapsed(0.0, 0.0)) for grant, batch in lost]

    def give_back(self) -> int:
        """Return the leases of all batches that are not applied, to be dealt again; returns their number.

        The mode ends without them, and their gradients are discarded.
        """
        leases = {number: lease for number, (_, lease) in self._unpushed.items()}
        leases |= {number: (lease, trained.batch) for number, (lease, trained) in self._pushed.items()}
        applied = [lease.samples for number, (lease, _) in leases.items() if number in self._rows_ahead]
        lost = [lease.samples for number, (lease, _) in leases.items() if number not in self._rows_ahead]
        self._state.take_back(sum(applied))  # their rows are applied, and they are trained again
        if applied:
            self._statistics.add_counts({"applied_batches_dealt_again": len(applied)})
        self._statistics.drop("lost", lost)
        self._unpushed.clear()
        self._pushed.clear()
        self._rows_ahead.clear()
        for number, lease in leases.items():
            self.parameters.discard(number)
            self._leases.give_back(lease)
        return len(leases)

    def samples_of(self, grant: int) -> int:
        return len(self._unpushed[grant][1][1])

    def settle(self) -> None:
        if not self._together:
            self.parameters.settle()

    @contextmanager
    def settled_together(self) -> Iterator[None]:
        """Settle the effects of all events inside at the end; after an error too, since they are decided."""
        self._together = True
        try:
            yield
        finally:
            self._together = False
            self.parameters.settle()

    def count(self, applied: ApplyResult) -> None:
        """Count what parameters have told of performed effects."""
        self._statistics.add_ids(applied.ids)
        self._statistics.correct_weights(applied.weights)
        self._statistics.add_counts(applied.undone)
        self._refused += applied.refused

    def take_refused(self) -> int:
        """Rows whose gradient was not finite, since the last call."""
        refused, self._refused = self._refused, 0
        return refused

    def _note_rows_ahead(self, effect: Apply) -> None:
        if effect.group == "embedding":
            self._rows_ahead.update(part.grant for part in effect.parts)
        elif self._replicated:  # a merge is of all that was done since the last one
            self._rows_ahead.clear()
        elif self._rows_ahead:
            self._rows_ahead.difference_update(part.grant for part in effect.parts)

    def _step_result(self, effect: Apply) -> StepResult:
        batches, samples = [], 0
        for part in effect.parts:
            samples += part.samples
            lease, trained = self._pushed.pop(part.grant)
            self._leases.done(lease)
            if part.grant in self._unanswered:  # its loss is not known
                self._unanswered.remove(part.grant)
            else:
                self._state.note_loss(trained.loss, lease.epoch, lease.index)
            batches.append(trained)
        return StepResult(effect.step, samples, tuple(batches), self.take_refused())
