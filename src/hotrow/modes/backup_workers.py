"""BackupWorkers (Hop-BW in the GBA paper): the first N - b gradients of a step close it, later ones are dropped.

N is the configured number of workers, however many are present. A step takes only gradients that were granted since the
step before closed, so all are computed from the current parameters and there is no staleness. The price is data:
batches that are dropped as late count as trained and are counted.

A worker that pushed its gradient waits for the next step. It gets a second grant only where the step could not close
otherwise: where fewer than N - b gradients are pushed, granted in this step and open, or expected as the first of a
live worker that neither pushed nor holds a grant. A worker with a grant of an older step is not expected; when that is
dropped and the step is still open, it takes part like the others. Of several waiting workers, the first to request a
batch gets the next grant.
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
)
from hotrow.modes.mode import Mode
from hotrow.modes.stepping import Buffering
from hotrow.sizes import Whole


class BackupWorkers(Mode):
    """Closes a step without the slowest `backups` workers, whose gradients are dropped.

    Example:
        >>> import hotrow as hr
        >>> hr.BackupWorkers(backups=1).samples_per_step(hr.modes.RunFacts(workers=4, local_batch=32, global_batch=128))
        96
    """

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
class Backups(Buffering):
    """The discipline of BackupWorkers. A worker with a grant requests no other."""

    needed: int  # gradients that close a step
    live: set[int] = field(default_factory=set)
    waiting: list[int] = field(default_factory=list)  # they gave, or asked during a drain
    gave: set[int] = field(default_factory=set)  # workers with a gradient in this step
    awaited: set[int] = field(default_factory=set)  # live, with neither a gradient in this step nor a grant
    tokens: dict[int, int] = field(default_factory=dict)  # grant that is out -> its step
    fresh: int = 0  # grants of this step that are out

    def on(self, event: Event) -> list[Effect]:
        """Change the state by an event, and return the effects to perform."""
        match event:
            case Ready(worker):
                self._join(worker)
                if self.draining or (worker in self.gave and self._missing <= 0):
                    self.waiting.append(worker)
                    return [Park(worker)]
                return [self._grant(worker)]
            case Pushed() as push:
                return self._take(push)
            case Joined(worker):
                self._join(worker)
            case Lost(worker):
                dropped = self.grants.lose(worker)
                self.fresh -= sum(
                    self.tokens.pop(drop.grant) == self.step for drop in dropped if isinstance(drop, Drop)
                )
                self._leave(worker)
                return [*dropped, *self._close_full_or_drained(self.needed), *self._let_go()]
            case Ended(worker):
                self._leave(worker)
                return self._let_go()
            case Drain():
                self.draining = True
                return self._close_full_or_drained(self.needed)
            case Resume():
                self.draining = False
                return self._let_go()
        return []

    def _take(self, push: Pushed) -> list[Effect]:
        if not self.grants.take(push):
            return []
        if self.tokens.pop(push.grant) == self.step:
            self.fresh -= 1
            self.buffer.append(push)
            self.gave.add(push.worker)
            closed = self._close_full_or_drained(self.needed)
            return [*closed, *self._let_go()] if closed else []
        if push.worker in self.live and push.worker not in self.gave:
            self.awaited.add(push.worker)
        return [Drop(push.grant, "late"), *self._close_full_or_drained(self.needed)]

    def _join(self, worker: int) -> None:
        if worker not in self.live:
            self.live.add(worker)
            if worker not in self.gave and not self.grants.holds(worker):
                self.awaited.add(worker)

    def _leave(self, worker: int) -> None:
        self.live.discard(worker)
        self.awaited.discard(worker)
        self.waiting = [each for each in self.waiting if each != worker]

    @property
    def _missing(self) -> int:
        """Gradients that the step still lacks when all that it can count on have come."""
        return self.needed - len(self.buffer) - self.fresh - len(self.awaited)

    def _let_go(self) -> list[Effect]:
        """Whoever gave nothing yet; the others only where the step could not close without them."""
        if self.draining or not self.waiting:
            return []
        granted = [self._grant(worker) for worker in self.waiting if worker not in self.gave]
        gave = [worker for worker in self.waiting if worker in self.gave]
        again = max(0, self._missing)
        self.waiting = gave[again:]
        return granted + [self._grant(worker) for worker in gave[:again]]

    def _grant(self, worker: int) -> Effect:
        given = self.grants.give(worker, token=self.step)
        self.tokens[given.grant] = self.step
        self.fresh += 1
        self.awaited.discard(worker)
        return given

    def _closed(self, step: Apply) -> list[Effect]:
        self.gave.clear()
        self.fresh = 0
        self.awaited = self.live - {worker for worker, _ in self.grants.out.values()}
        return [step]
