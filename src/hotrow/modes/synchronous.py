"""Sync: a step is one global batch, cut into slices; the next begins when it is applied.

A step starts when every live worker is ready, so rank r trains slice r and results do not depend on the speed of
workers. Slices of a lost worker, and those of a cluster with fewer workers than slices, go to the next free worker: the
global batch does not change. A new worker takes part from the next step on.

With look-ahead the slices of the next step are dealt while a step is computed, all at once: its ids are known then, and
rows that the step before does not change are read early. Only grants are early. A worker computes none of them before
the step before is applied, so the results are the same.
"""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

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
    LookAhead,
    Lost,
    Park,
    Pushed,
    Ready,
    Resume,
    RunFacts,
)
from hotrow.modes.mode import Dense, LookAheadMode
from hotrow.modes.stepping import Stepping

grant_of = attrgetter("grant")


class Sync(LookAheadMode):
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
            facts.parts,
            step=facts.step,
            grants=Grants(given=facts.grants),
            samples_per_step=facts.global_batch,
            ahead=self.first_look_ahead,
        )


@dataclass(slots=True)
class StepSlices:
    """A step whose slices are being dealt, or whose gradients come in."""

    out: set[int] = field(default_factory=set)  # grants
    pushes: list[Pushed] = field(default_factory=list)  # in the order of the grants

    @property
    def dealt(self) -> int:
        """Slices that are out or in."""
        return len(self.out) + len(self.pushes)


@dataclass(slots=True)
class Synchronous(Stepping):
    """The discipline of Sync."""

    slices: int  # in a step
    live: set[int] = field(default_factory=set)
    waiting: dict[int, int] = field(default_factory=dict)  # live worker -> batches requested, not granted; none is 0
    dealt: dict[int, StepSlices] = field(default_factory=dict)  # by number; none is empty
    ahead: int = 0  # steps that are dealt before the open one is applied

    def on(self, event: Event) -> list[Effect]:
        """Change the state by an event, and return the effects to perform."""
        effects: list[Effect] = []
        match event:
            case Joined(worker):
                self.live.add(worker)
            case Ready(worker):
                self.live.add(worker)
                self.waiting[worker] = self.waiting.get(worker, 0) + 1
                return self._deal() or [Park(worker)]
            case Pushed() as push:
                if not self.grants.take(push):
                    return []
                step = self.dealt[push.token]
                step.out.remove(push.grant)
                insort(step.pushes, push, key=grant_of)
            case Lost(worker):
                effects = self.grants.lose(worker)
                self._take_back(effects)
                self._leave(worker)
            case Ended(worker):
                self._leave(worker)
            case LookAhead(steps):
                self.ahead = steps
            case Drain():
                self.draining = True
            case Resume():
                self.draining = False
        effects += self._close()
        return effects + self._deal()

    def _leave(self, worker: int) -> None:
        self.live.discard(worker)
        self.waiting.pop(worker, None)

    def _take_back(self, dropped: Sequence[Effect]) -> None:
        """The slices of dropped grants can be dealt again."""
        gone = {drop.grant for drop in dropped if isinstance(drop, Drop)}
        for step in self.dealt.values():
            step.out -= gone
        self.dealt = {number: step for number, step in self.dealt.items() if step.dealt}

    def _deal(self) -> list[Effect]:
        """Grant slices to waiting workers, by rank, step by step."""
        if self.draining or not self.waiting:
            return []
        granted: list[Effect] = []
        for number in range(self.step, self.step + self.ahead + 1):
            granted += self._deal_step(number)
            if number not in self.dealt or self.dealt[number].dealt < self.slices:
                break
        return granted

    def _deal_step(self, number: int) -> list[Effect]:
        if number not in self.dealt and not self._may_begin(number):
            return []
        granted: list[Effect] = []
        step = self.dealt.setdefault(number, StepSlices())
        while self.waiting and (left := self.slices - step.dealt):
            for worker in sorted(self.waiting)[:left]:
                granted.append(self.grants.give(worker, token=number))
                step.out.add(self.grants.given)
                self._one_request_less(worker)
        return granted

    def _may_begin(self, step: int) -> bool:
        """A step begins only when all are ready; one that is ahead only as a whole, so that no drain makes it short."""
        if self.waiting.keys() != self.live:
            return False
        return step == self.step or sum(self.waiting.values()) >= self.slices

    def _one_request_less(self, worker: int) -> None:
        self.waiting[worker] -= 1
        if not self.waiting[worker]:
            del self.waiting[worker]

    def _close(self) -> list[Effect]:
        """Steps that are full; in a drain, as soon as no more can come. A step ahead may have to wait for this one."""
        effects: list[Effect] = []
        while (step := self.dealt.get(self.step)) is not None:
            full = len(step.pushes) == self.slices
            if not full and (step.out or not self.draining):
                return effects
            del self.dealt[self.step]
            effects += self._closed(self._close_step("both", step.pushes, full=full))
        return effects + self._give_up_unreachable()

    def _closed(self, step: Apply) -> list[Effect]:
        """What follows from a step; `self.step` is the next one already."""
        return [step]

    def _give_up_unreachable(self) -> list[Effect]:
        """In a drain, steps ahead of one whose slices are all lost are never reached: their grants are given up."""
        if not self.draining or not self.dealt:
            return []
        given_up = self.grants.give_up(sorted(self.grants.out), "rollback")
        self._take_back(given_up)
        return given_up
