"""BoundedStaleness (Hop-BS in the GBA paper): nobody starts a batch more than `bound` ahead of the slowest.

Gradients are applied as they come. A newcomer starts level with the slowest, or it would hold everyone back; who is
lost or has no more data holds nobody back.
"""

from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from hotrow.modes.base import (
    Apply,
    Discipline,
    Drain,
    Effect,
    Ended,
    Event,
    Grants,
    Joined,
    Lost,
    Park,
    Pushed,
    Ready,
    Resume,
    RunFacts,
    part,
)
from hotrow.modes.mode import Mode
from hotrow.sizes import Whole
from hotrow.staleness.decay import Staleness


class BoundedStaleness(Mode):
    """At most `bound` batches between the fastest and the slowest; 0 is lock-step."""

    name: Literal["bounded_staleness"] = "bounded_staleness"
    bound: Whole = Field(default=2, ge=0, le=2**31)
    staleness: Staleness | None = None

    @property
    def late(self) -> Staleness | None:
        return self.staleness

    def samples_per_step(self, facts: RunFacts) -> int:
        return facts.local_batch

    def check(self, facts: RunFacts) -> None:
        """Any local batch will do."""

    def start(self, facts: RunFacts) -> Discipline:
        return Bounded(
            self.bound,
            self.late,
            step=facts.step,
            grants=Grants(given=facts.grants),
            samples_per_step=self.samples_per_step(facts),
        )


@dataclass(slots=True)
class Bounded:
    """BoundedStaleness at work."""

    bound: int
    late: Staleness | None = None
    step: int = 0
    grants: Grants = field(default_factory=Grants)
    done: dict[int, int] = field(default_factory=dict)  # live worker -> batches finished
    waiting: list[int] = field(default_factory=list)
    samples_per_step: int = 0  # that were promised; a step with fewer is short
    draining: bool = False
    short_steps: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """What went otherwise than planned."""
        return {**self.grants.counts, "short_steps": self.short_steps}

    def on(self, event: Event) -> list[Effect]:
        """Take an event in and say what is to be done."""
        effects: list[Effect] = []
        match event:
            case Joined(worker):
                self._join(worker)
            case Ready(worker):
                self._join(worker)
                self.waiting.append(worker)
                return self._let_go() or [Park(worker)]
            case Pushed() as push:
                if not self.grants.take(push):
                    return []
                if push.worker in self.done:  # a push may outlive its worker's stay: it counts, and moves no bound
                    self.done[push.worker] += 1
                effects = [Apply("both", self.step, (part(push, self._weight(push)),))]
                self.short_steps += push.samples < self.samples_per_step
                self.step += 1
            case Lost(worker):
                effects = self.grants.lose(worker)
                self._leave(worker)
            case Ended(worker):
                self._leave(worker)
            case Drain():
                self.draining = True
            case Resume():
                self.draining = False
        return effects + self._let_go()

    def _join(self, worker: int) -> None:
        self.done.setdefault(worker, min(self.done.values(), default=0))

    def _leave(self, worker: int) -> None:
        self.done.pop(worker, None)
        self.waiting = [each for each in self.waiting if each != worker]

    def _let_go(self) -> list[Effect]:
        if self.draining or not self.waiting:
            return []
        slowest = min(self.done.values())
        free = [worker for worker in self.waiting if self.done[worker] - slowest <= self.bound]
        self.waiting = [worker for worker in self.waiting if self.done[worker] - slowest > self.bound]
        return [self.grants.give(worker, token=self.step) for worker in free]

    def _weight(self, push: Pushed) -> float:
        return 1.0 if self.late is None else self.late.dense_weight(max(0, self.step - push.token))
