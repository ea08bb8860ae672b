"""Sync: a step is one global batch, cut into slices; the next begins when it is applied.

A step starts when every live worker is ready, so rank r trains slice r and results do not depend on who is fast. Slices
that a lost worker held, and those of a cluster with fewer workers than slices, go to whoever is free: the global batch
stays what it is. A newcomer takes part from the next step on.
"""

from dataclasses import dataclass, field
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
    part,
)
from hotrow.modes.mode import Dense, Mode


class Sync(Mode):
    """All workers together, as one worker with the global batch."""

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
class Synchronous:
    """Sync at work."""

    slices: int  # in a step
    step: int = 0
    grants: Grants = field(default_factory=Grants)
    live: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)  # live, asked, not granted
    dealt: int = 0  # slices of this step that are out or in
    buffer: list[Pushed] = field(default_factory=list)
    samples_per_step: int = 0  # that were promised; a step with fewer is short, as one with fewer parts is
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
                self.live.add(worker)
            case Ready(worker):
                self.live.add(worker)
                self.waiting.add(worker)
                return self._deal() or [Park(worker)]
            case Pushed() as push:
                if not self.grants.take(push):
                    return []
                self.buffer.append(push)
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
        effects += self._close_full_or_drained()
        return effects + self._deal()

    def _leave(self, worker: int) -> None:
        self.live.discard(worker)
        self.waiting.discard(worker)

    def _deal(self) -> list[Effect]:
        """Slices to those who wait, by rank. A step begins only when all are there."""
        if self.draining or (self.dealt == 0 and self.waiting != self.live):
            return []
        granted: list[Effect] = []
        for worker in sorted(self.waiting)[: self.slices - self.dealt]:
            granted.append(self.grants.give(worker, token=self.step))
            self.waiting.discard(worker)
        self.dealt += len(granted)
        return granted

    def _close_full_or_drained(self) -> list[Effect]:
        full = len(self.buffer) == self.slices
        drained = self.draining and bool(self.buffer) and not self.grants.out
        if not full and not drained:
            return []
        parts = tuple(part(push, 1.0) for push in sorted(self.buffer, key=lambda push: push.grant))
        whole = Apply("both", self.step, parts)
        self.short_steps += not full or whole.samples < self.samples_per_step
        closed = self._closed(whole)
        self.buffer.clear()
        self.dealt = 0
        self.step += 1
        return closed

    def _closed(self, step: Apply) -> list[Effect]:
        return [step]
