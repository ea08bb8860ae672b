"""Sync: a step is one global batch, cut into slices; the next begins when it is applied.

A step starts when every live worker is ready, so rank r trains slice r and results do not depend on the speed of
workers. Slices of a lost worker, and those of a cluster with fewer workers than slices, go to the next free worker: the
global batch does not change. A new worker takes part from the next step on.
"""

from bisect import insort
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

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
)
from hotrow.modes.mode import Dense, Mode
from hotrow.modes.stepping import Buffering

grant_of = attrgetter("grant")


class Sync(Mode):
    """Synchronous training: all workers together compute what one worker would with the global batch.

    Example:
        >>> import hotrow as hr
        >>> hr.Sync().samples_per_step(hr.modes.RunFacts(workers=4, local_batch=32, global_batch=128))
        128
    """

    name: Literal["sync"] = "sync"

    @property
    def dense(self) -> Dense:
        return "all-reduce"

    def start(self, facts: RunFacts) -> Discipline:
        self.check(facts)
        return Synchronous(
            facts.parts, step=facts.step, grants=Grants(given=facts.grants), samples_per_step=facts.global_batch
        )


@dataclass(slots=True)
class Synchronous(Buffering):
    """The discipline of Sync. The buffer is in the order of the grants."""

    slices: int  # in a step
    live: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)  # live, asked, not granted
    dealt: int = 0  # slices of this step that are out or in

    def on(self, event: Event) -> list[Effect]:
        """Change the state by an event, and return the effects to perform."""
        effects: list[Effect] = []
        match event:
            case Joined(worker):
                self.live.add(worker)
            case Ready(worker):
                self.live.add(worker)
                self.waiting.add(worker)
                return self._deal() or [Park(worker)]
            case Pushed() as push:
                if not self.grants.take(push):
                    return []
                insort(self.buffer, push, key=grant_of)
            case Lost(worker):
                effects = self.grants.lose(worker)
                self.dealt -= len(effects)
                self._leave(worker)
            case Ended(worker):
                self._leave(worker)
            case Drain():
                self.draining = True
            case Resume():
                self.draining = False
        effects += self._close_full_or_drained(self.slices)
        return effects + self._deal()

    def _leave(self, worker: int) -> None:
        self.live.discard(worker)
        self.waiting.discard(worker)

    def _deal(self) -> list[Effect]:
        """Grant slices to waiting workers, by rank. A step begins only when all are ready."""
        left = self.slices - self.dealt
        if self.draining or not left or (self.dealt == 0 and self.waiting != self.live):
            return []
        ranks = sorted(self.waiting)[:left]
        self.waiting.difference_update(ranks)
        self.dealt += len(ranks)
        return [self.grants.give(worker, token=self.step) for worker in ranks]

    def _closed(self, step: Apply) -> list[Effect]:
        self.dealt = 0
        return [step]
