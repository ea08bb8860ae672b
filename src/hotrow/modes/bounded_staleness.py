"""BoundedStaleness (Hop-BS in the GBA paper): no worker starts a batch more than `bound` ahead of the slowest.

Gradients are applied on arrival. A new worker starts level with the slowest, or it would delay all others; a worker
that is lost or has no more data delays no other.
"""

from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from hotrow.modes.base import (
    Discipline,
    Drain,
    Effect,
    Ended,
    Event,
    Grant,
    Grants,
    Joined,
    Lost,
    Park,
    Pushed,
    Ready,
    Resume,
    RunFacts,
)
from hotrow.modes.mode import Mode
from hotrow.modes.stepping import Buffering
from hotrow.sizes import Whole
from hotrow.staleness.decay import Staleness


class BoundedStaleness(Mode):
    """Keeps at most `bound` batches between the fastest and the slowest worker; 0 is lock-step.

    Example:
        >>> import hotrow as hr
        >>> hr.BoundedStaleness(bound=2).bound
        2
    """

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
            late=self.late,
            step=facts.step,
            grants=Grants(given=facts.grants),
            samples_per_step=self.samples_per_step(facts),
        )


@dataclass(slots=True)
class Bounded(Buffering):
    """The discipline of BoundedStaleness. One push is a step."""

    bound: int
    done: dict[int, int] = field(default_factory=dict)  # live worker -> batches finished
    slowest: int = 0  # the least of them
    at_slowest: int = 0  # workers that finished no more
    waiting: list[int] = field(default_factory=list)  # too far ahead, or asked during a drain

    def on(self, event: Event) -> list[Effect]:
        """Change the state by an event, and return the effects to perform."""
        match event:
            case Ready(worker):
                self._join(worker)
                if self.draining or self._is_ahead(worker):
                    self.waiting.append(worker)
                    return [Park(worker)]
                return [self._grant(worker)]
            case Pushed() as push:
                if not self.grants.take(push):
                    return []
                self.buffer.append(push)
                return [*self._close_full_or_drained(1), *self._finish(push.worker)]
            case Joined(worker):
                self._join(worker)
            case Lost(worker):
                return [*self.grants.lose(worker), *self._leave(worker)]
            case Ended(worker):
                return self._leave(worker)
            case Drain():
                self.draining = True
            case Resume():
                self.draining = False
                return self._let_go()
        return []

    def _join(self, worker: int) -> None:
        if worker not in self.done:
            self.done[worker] = self.slowest
            self.at_slowest += 1

    def _finish(self, worker: int) -> list[Effect]:
        before = self.done.get(worker)
        if before is None:  # a push may outlive its worker's stay: it counts, and moves no bound
            return []
        self.done[worker] = before + 1
        return self._one_less_at(before)

    def _leave(self, worker: int) -> list[Effect]:
        before = self.done.pop(worker, None)
        self.waiting = [each for each in self.waiting if each != worker]
        return [] if before is None else self._one_less_at(before)

    def _one_less_at(self, batches: int) -> list[Effect]:
        """Recompute the minimum only when no worker is left at it: waiting workers may continue only then."""
        self.at_slowest -= batches == self.slowest
        if self.at_slowest:
            return []
        self.slowest = min(self.done.values(), default=0)
        self.at_slowest = sum(each == self.slowest for each in self.done.values())
        return self._let_go()

    def _let_go(self) -> list[Effect]:
        if self.draining:
            return []
        asked, self.waiting = self.waiting, [worker for worker in self.waiting if self._is_ahead(worker)]
        return [self._grant(worker) for worker in asked if not self._is_ahead(worker)]

    def _is_ahead(self, worker: int) -> bool:
        return self.done[worker] - self.slowest > self.bound

    def _grant(self, worker: int) -> Grant:
        return self.grants.give(worker, token=self.step)
