"""Hybrid (PERSIA): dense parameters as in Sync, embeddings as in Async.

Embedding gradients are applied as they come. A worker looks up to `max_in_flight` batches ahead, so its rows may miss
that many of its own updates and as many of each other worker. Dense gradients of a global batch are put together, and
nobody computes past a dense step that is not applied: the token of a grant is the dense step its gradient belongs to.

Each step has as many places as the global batch has local ones. They are dealt step by step, evenly to the live
workers, so only the last step before a drain is short. Places of a lost worker are dealt again first. Where the running
step lacks one while later steps are dealt, it goes to one that waits, or unasked to whoever holds least, which may then
hold a grant more than `max_in_flight`: all could be waiting for that very step, with their hands full.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from pydantic import Field, field_validator

from hotrow.modes.base import (
    Apply,
    Discipline,
    Drain,
    Drop,
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
    part,
)
from hotrow.modes.mode import Dense, Mode
from hotrow.sizes import Whole
from hotrow.staleness.decay import Staleness


class Hybrid(Mode):
    """Dense synchronous, embeddings on arrival.

    `scale="global"` applies a worker's embedding gradient times its share of the global batch, so that the arrivals of
    a step add up to what Sync applies at once; `"local"` applies it as it is, as PERSIA's code does.
    """

    name: Literal["hybrid"] = "hybrid"
    max_in_flight: Whole = Field(default=4, ge=1, le=1_000)
    scale: Literal["global", "local"] = "global"
    staleness: Staleness | None = None

    @field_validator("staleness")
    @classmethod
    def _dense_gradients_are_never_late(cls, value: Staleness | None) -> Staleness | None:
        if value is not None and (value.groups == "dense" or value.movement is not None):
            raise ValueError("its dense gradients are never late: give groups='embedding' and no movement")
        return value

    @property
    def dense(self) -> Dense:
        return "all-reduce"

    @property
    def late(self) -> Staleness | None:
        return self.staleness

    @property
    def most_in_flight(self) -> int:
        return self.max_in_flight

    def start(self, facts: RunFacts) -> Discipline:
        self.check(facts)
        share = 0 if self.scale == "local" else facts.global_batch
        grants = Grants(groups=("embedding", "dense"), given=facts.grants)
        return DenseInStep(
            facts.parts,
            self.max_in_flight,
            share,
            step=facts.step,
            grants=grants,
            samples_per_step=facts.global_batch,
        )


@dataclass(slots=True)
class DenseInStep:
    """Hybrid at work."""

    places: int  # in a step
    max_in_flight: int
    global_batch: int  # that embedding gradients are a share of; 0: they are applied as they are
    step: int = 0
    grants: Grants = field(default_factory=lambda: Grants(groups=("embedding", "dense")))
    live: set[int] = field(default_factory=set)
    waiting: list[int] = field(default_factory=list)  # a worker stands there as often as it asked
    dealt: dict[int, dict[int, int]] = field(default_factory=dict)  # open step -> {grant: worker}, pushed ones too
    buffer: dict[int, list[Pushed]] = field(default_factory=dict)  # open step -> dense pushes
    samples_per_step: int = 0  # that were promised; a step with fewer is short, as one with fewer parts is
    draining: bool = False
    short_steps: int = 0
    rows_twice: int = 0  # batches whose rows were applied before their worker was lost: their data come again
    rows_missing: int = 0  # batches whose worker was lost after its dense push and before that of the rows

    @property
    def counts(self) -> dict[str, int]:
        """What went otherwise than planned."""
        halves = {"rows_applied_twice": self.rows_twice, "rows_never_pushed": self.rows_missing}
        return {**self.grants.counts, **halves, "short_steps": self.short_steps}

    def on(self, event: Event) -> list[Effect]:
        """Take an event in and say what is to be done."""
        effects: list[Effect] = []
        match event:
            case Joined(worker):
                self.live.add(worker)
            case Ready(worker):
                self.live.add(worker)
                self.waiting.append(worker)
                return self._deal() or [Park(worker)]
            case Pushed() as push:
                effects = self._take(push)
            case Lost(worker):
                effects = self._lose(worker)
            case Ended(worker):
                self._leave(worker)
            case Drain():
                self.draining = True
            case Resume():
                self.draining = False
        effects += self._close()
        return effects + self._deal()

    def _take(self, push: Pushed) -> list[Effect]:
        if not self.grants.take(push):
            return []
        if push.group == "dense":
            self.buffer.setdefault(self._step_of(push.grant), []).append(push)
            return []
        weight = push.samples / self.global_batch if self.global_batch else 1.0
        return [Apply("embedding", self.step, (part(push, weight),))]

    def _step_of(self, grant: int) -> int:
        return next(step for step, holders in self.dealt.items() if grant in holders)

    def _lose(self, worker: int) -> list[Effect]:
        halves = {grant: to_come for grant, (_, to_come) in self.grants.out.items() if len(to_come) == 1}
        given_up = [drop for drop in self.grants.lose(worker) if isinstance(drop, Drop)]
        dropped = [drop for drop in given_up if halves.get(drop.grant) != ("embedding",)]  # a dense push counts
        self.rows_missing += len(given_up) - len(dropped)
        self.rows_twice += sum(drop.grant in halves for drop in dropped)
        for holders in self.dealt.values():
            for drop in dropped:
                holders.pop(drop.grant, None)
        while self.dealt and not self.dealt[last := max(self.dealt)]:  # nobody is ahead there any more
            del self.dealt[last]
        self._leave(worker)
        return list(dropped)

    def _leave(self, worker: int) -> None:
        self.live.discard(worker)
        self.waiting = [each for each in self.waiting if each != worker]

    def _deal(self) -> list[Effect]:
        granted: list[Effect] = []
        while not self.draining and (worker := self._next_in_turn()) is not None:
            if worker in self.waiting:
                self.waiting.remove(worker)
            granted.append(self._grant(worker, self._step_with_room()))
        return granted

    def _next_in_turn(self) -> int | None:
        """The first that waits with a hand free and without its share of the step that is dealt.

        A place of the running step that a loss left behind the front goes to anybody: its data came back for it, and
        those who could ask may be waiting for this step.
        """
        step = self._step_with_room()
        behind = bool(self.live) and step == self.step and any(later > step for later in self.dealt)
        if not self.waiting and not behind:
            return None
        share = -(-self.places // len(self.live))
        held = Counter(worker for worker, _ in self.grants.out.values())
        holders = Counter(self.dealt.get(step, {}).values())
        for worker in self.waiting:
            if held[worker] < self.max_in_flight and holders[worker] < share:
                return worker
        if not behind:
            return None
        return self.waiting[0] if self.waiting else min(self.live, key=lambda each: (held[each], each))

    def _step_with_room(self) -> int:
        return next(step for step in count(self.step) if len(self.dealt.get(step, {})) < self.places)

    def _grant(self, worker: int, step: int) -> Grant:
        given = self.grants.give(worker, token=step)
        self.dealt.setdefault(step, {})[given.grant] = worker
        return given

    def _close(self) -> list[Effect]:
        closed: list[Effect] = []
        while self.step in self.dealt:
            pushes = self.buffer.get(self.step, [])
            full = len(pushes) == self.places
            if not full and not (self.draining and len(pushes) == len(self.dealt[self.step])):
                break
            parts = tuple(part(push, 1.0) for push in sorted(pushes, key=lambda push: push.grant))
            whole = Apply("dense", self.step, parts)
            self.short_steps += not full or whole.samples < self.samples_per_step
            closed.append(whole)
            self.buffer.pop(self.step, None)
            del self.dealt[self.step]
            self.step += 1
        return closed
