"""What Async, BulkSync and GBA share.

Grants never wait, and a fixed number of pushes closes a step, whoever sent them.
"""

from dataclasses import dataclass, field

from hotrow.modes.base import (
    Apply,
    Drain,
    Effect,
    Ended,
    Event,
    Grant,
    Grants,
    Lost,
    Park,
    Pushed,
    Ready,
    Resume,
    part,
)
from hotrow.staleness.decay import Staleness


@dataclass(slots=True)
class Aggregating:
    """`parts_per_step` pushes make a step. The token is the step at the grant."""

    parts_per_step: int
    late: Staleness | None = None
    step: int = 0
    grants: Grants = field(default_factory=Grants)
    buffer: list[Pushed] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)  # asked during a drain
    samples_per_step: int = 0  # that were promised; a step with fewer is short, as one with fewer parts is
    draining: bool = False
    short_steps: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """What went otherwise than planned."""
        return {**self.grants.counts, "short_steps": self.short_steps}

    def on(self, event: Event) -> list[Effect]:
        """Take an event in and say what is to be done."""
        match event:
            case Pushed() as push:
                if not self._take(push):
                    return []
                self.buffer.append(push)
                return self._close_full_or_drained()
            case Ready(worker):
                if self.draining:
                    self.waiting.append(worker)
                    return [Park(worker)]
                return [self._grant(worker)]
            case Lost(worker):
                self.waiting = [each for each in self.waiting if each != worker]
                return [*self._lose(worker), *self._close_full_or_drained()]
            case Ended(worker):
                self.waiting = [each for each in self.waiting if each != worker]
                return []
            case Drain():
                self.draining = True
                return self._close_full_or_drained()
            case Resume():
                self.draining = False
                asked, self.waiting = self.waiting, []
                return [self._grant(worker) for worker in asked]
            case _:
                return []  # nobody waits for anybody: a newcomer changes nothing

    def _grant(self, worker: int) -> Grant:
        return self.grants.give(worker, token=self.step)

    def _take(self, push: Pushed) -> bool:
        return self.grants.take(push)

    def _lose(self, worker: int) -> list[Effect]:
        return self.grants.lose(worker)

    def _close_full_or_drained(self) -> list[Effect]:
        full = len(self.buffer) == self.parts_per_step
        drained = self.draining and bool(self.buffer) and not self.grants.out
        if not full and not drained:
            return []
        closed = Apply("both", self.step, tuple(part(push, self._weight(push)) for push in self.buffer))
        self.short_steps += not full or closed.samples < self.samples_per_step
        self.buffer.clear()
        self.step += 1
        return [closed]

    def _weight(self, push: Pushed) -> float:
        return 1.0 if self.late is None else self.late.dense_weight(max(0, self.step - push.token))
