"""BackupWorkers (Hop-BW in the GBA paper): the first N - b gradients close a step, those of the slowest b are dropped.

Every gradient of a step was computed from the parameters as they stand, so there is no staleness. The price is data:
what is dropped as late counts as trained and is counted. A worker that gave its gradient waits for the next step,
unless this one could not close without a second one from it (fewer workers are left than a step needs).
"""

from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from hotrow.errors import ConfigError
from hotrow.modes.base import (
    Apply,
    Discipline,
    Drain,
    Drop,
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


class BackupWorkers(Mode):
    """`backups` of the workers may be late in every step."""

    name: Literal["backup_workers"] = "backup_workers"
    backups: Whole = Field(default=1, ge=0, le=1_000_000)

    def samples_per_step(self, facts: RunFacts) -> int:
        return (facts.workers - self.backups) * facts.local_batch

    def check(self, facts: RunFacts) -> None:
        if self.backups >= facts.workers:
            most = f"must be below the {facts.workers:,} workers" if facts.workers > 1 else "is for several workers"
            raise ConfigError(f"backups={self.backups}: {most}, or no gradient would be left for a step")

    def start(self, facts: RunFacts) -> Discipline:
        self.check(facts)
        return Backups(
            facts.workers - self.backups,
            step=facts.step,
            grants=Grants(given=facts.grants),
            samples_per_step=self.samples_per_step(facts),
        )


@dataclass(slots=True)
class Backups:
    """BackupWorkers at work."""

    needed: int  # gradients that close a step
    step: int = 0
    grants: Grants = field(default_factory=Grants)
    live: set[int] = field(default_factory=set)
    tokens: dict[int, int] = field(default_factory=dict)  # grant that is out -> its step
    waiting: list[int] = field(default_factory=list)
    gave: set[int] = field(default_factory=set)  # workers with a gradient in this step
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
                self.waiting.append(worker)
                return self._let_go() or [Park(worker)]
            case Pushed() as push:
                effects = self._take(push)
            case Lost(worker):
                effects = self.grants.lose(worker)
                self._forget_what_is_not_out()
                self._leave(worker)
            case Ended(worker):
                self._leave(worker)
            case Drain():
                self.draining = True
            case Resume():
                self.draining = False
        effects += self._close_full_or_drained()
        return effects + self._let_go()

    def _take(self, push: Pushed) -> list[Effect]:
        if not self.grants.take(push):
            return []
        if self.tokens.pop(push.grant) < self.step:
            return [Drop(push.grant, "late")]
        self.buffer.append(push)
        self.gave.add(push.worker)
        return []

    def _leave(self, worker: int) -> None:
        self.live.discard(worker)
        self.waiting = [each for each in self.waiting if each != worker]

    def _forget_what_is_not_out(self) -> None:
        self.tokens = {grant: token for grant, token in self.tokens.items() if grant in self.grants.out}

    def _let_go(self) -> list[Effect]:
        """Whoever gave nothing yet; the others only where the step could not close without them."""
        if self.draining or not self.waiting:
            return []
        first = [worker for worker in self.waiting if worker not in self.gave]
        granted = [self._grant(worker) for worker in first]
        missing = self.needed - len(self.buffer) - self._to_come()
        return granted + [self._grant(worker) for worker in self.waiting[: max(0, missing)]]

    def _to_come(self) -> int:
        """Gradients that this step can count on: those that are out, and first ones of workers that will ask soon."""
        busy = {worker for worker, _ in self.grants.out.values()}
        soon = len(self.live - self.gave - busy)
        return sum(token == self.step for token in self.tokens.values()) + soon

    def _grant(self, worker: int) -> Effect:
        self.waiting.remove(worker)
        given = self.grants.give(worker, token=self.step)
        self.tokens[given.grant] = self.step
        return given

    def _close_full_or_drained(self) -> list[Effect]:
        full = len(self.buffer) == self.needed
        drained = self.draining and bool(self.buffer) and not self.grants.out
        if not full and not drained:
            return []
        closed = Apply("both", self.step, tuple(part(push, 1.0) for push in self.buffer))
        self.short_steps += not full or closed.samples < self.samples_per_step
        self.buffer.clear()
        self.gave.clear()
        self.step += 1
        return [closed]
