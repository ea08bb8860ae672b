"""Hybrid (PERSIA): dense parameters as in Sync, embeddings as in Async.

Embedding gradients are applied on arrival. A worker looks up to `max_in_flight` batches ahead, so its rows may miss
that many of its own updates and as many of each other worker. Dense gradients of a global batch are combined, and no
worker computes past a dense step that is not applied: the token of a grant is the dense step of its gradient.

Each step has as many places as the global batch has local ones. They are granted step by step, evenly to the live
workers, so only the last step before a drain is short. Places of a lost worker are granted again first. Where the
current step lacks one while later steps are granted, it goes to a waiting worker, or without a request to the worker
with the fewest grants, which may then hold one more than `max_in_flight`: all workers could be waiting for that step.
"""

from dataclasses import dataclass, field
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
    Group,
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
from hotrow.modes.stepping import Stepping
from hotrow.sizes import Whole
from hotrow.staleness.decay import Staleness


class Hybrid(Mode):
    """Dense synchronous, embeddings on arrival.

    `scale="global"` applies a worker's embedding gradient times its share of the global batch, so that the arrivals of
    a step add up to what Sync applies at once; `"local"` applies it as it is, as PERSIA's code does.

    Example:
        >>> import hotrow as hr
        >>> hr.Hybrid(max_in_flight=2).dense
        'all-reduce'
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
    def groups(self) -> tuple[Group, ...]:
        return ("embedding", "dense")

    @property
    def dense(self) -> Dense:
        return "all-reduce"

    @property
    def late(self) -> Staleness | None:
        return self.staleness

    @property
    def most_in_flight(self) -> int:
        return self.max_in_flight

    def on_arrival(self, facts: RunFacts, samples: int) -> float | None:
        return samples / facts.global_batch if self.scale == "global" else 1.0

    def start(self, facts: RunFacts) -> Discipline:
        self.check(facts)
        share = 0 if self.scale == "local" else facts.global_batch
        grants = Grants(groups=self.groups, given=facts.grants)
        return DenseInStep(
            facts.parts,
            self.max_in_flight,
            share,
            step=facts.step,
            grants=grants,
            samples_per_step=facts.global_batch,
        )


@dataclass(slots=True)
class OpenStep:
    """A dense step whose places are being dealt, or whose gradients come in."""

    holders: dict[int, int] = field(default_factory=dict)  # grant -> worker, pushed ones too
    shares: dict[int, int] = field(default_factory=dict)  # worker -> places that it got; no entry is 0
    pushes: list[Pushed] = field(default_factory=list)  # dense ones

    def deal(self, grant: int, worker: int) -> None:
        """A place is taken."""
        self.holders[grant] = worker
        self.shares[worker] = self.shares.get(worker, 0) + 1

    def free(self, grant: int) -> None:
        """A place that was given up, if it was one of this step."""
        worker = self.holders.pop(grant, None)
        if worker is not None:
            self.shares[worker] -= 1


@dataclass(slots=True)
class DenseInStep(Stepping):
    """The discipline of Hybrid. Between two events all possible grants are given, except in a drain."""

    places: int  # in a step
    max_in_flight: int
    global_batch: int  # embedding gradients are scaled by their share of it; 0: not scaled
    grants: Grants = field(default_factory=lambda: Grants(groups=("embedding", "dense")), kw_only=True)
    live: set[int] = field(default_factory=set)
    waiting: list[int] = field(default_factory=list)  # a worker is in it once per request
    held: dict[int, int] = field(default_factory=dict)  # worker -> grants that are out; no entry is 0
    dealt: dict[int, OpenStep] = field(default_factory=dict)  # by number
    full_below: int = 0  # no step before this one has room
    rows_twice: int = 0  # batches whose rows were applied before their worker was lost: they are trained again
    rows_missing: int = 0  # batches whose worker was lost after its dense push and before that of the rows

    @property
    def counts(self) -> dict[str, int]:
        """Counts of irregularities."""
        halves = {"rows_applied_twice": self.rows_twice, "rows_never_pushed": self.rows_missing}
        return {**self.grants.counts, **halves, "short_steps": self.short_steps}

    def on(self, event: Event) -> list[Effect]:
        """Change the state by an event, and return the effects to perform."""
        effects: list[Effect] = []
        match event:
            case Ready(worker):
                return self._ask(worker) or [Park(worker)]
            case Pushed() as push:
                effects = self._take(push)
                closed = self._close()
                if not closed and (push.grant in self.grants.out or not self._waits_no_more(push.worker)):
                    return effects
                effects += closed
            case Joined(worker):
                self.live.add(worker)
            case Lost(worker):
                effects = [*self._lose(worker), *self._close()]
            case Ended(worker):
                self._leave(worker)
            case Drain():
                self.draining = True
                return self._close()
            case Resume():
                self.draining = False
        return effects + self._deal()

    def _ask(self, worker: int) -> list[Effect]:
        """A worker that joins again is granted before waiting ones, which have no turn."""
        known, step = worker in self.live, self._front()
        self.live.add(worker)
        if known and not self.draining and self._has_turn(worker, step):
            granted = self._grant(worker, step)
            return [granted] if self._room(step) else [granted, *self._deal()]
        self.waiting.append(worker)
        return [] if known else self._deal()

    def _take(self, push: Pushed) -> list[Effect]:
        if not self.grants.take(push):
            return []
        if push.grant not in self.grants.out:
            self.held[push.worker] -= 1
        if push.group == "dense":
            next(step for step in self.dealt.values() if push.grant in step.holders).pushes.append(push)
            return []
        weight = push.samples / self.global_batch if self.global_batch else 1.0
        return [Apply("embedding", self.step, (part(push, weight),))]

    def _lose(self, worker: int) -> list[Effect]:
        halves = {grant: to_come for grant, (_, to_come) in self.grants.out.items() if len(to_come) == 1}
        given_up = [drop for drop in self.grants.lose(worker) if isinstance(drop, Drop)]
        dropped = [drop for drop in given_up if halves.get(drop.grant) != ("embedding",)]  # a dense push counts
        self.rows_missing += len(given_up) - len(dropped)
        self.rows_twice += sum(drop.grant in halves for drop in dropped)
        for step in self.dealt.values():
            for drop in dropped:
                step.free(drop.grant)
        while self.dealt and not self.dealt[last := max(self.dealt)].holders:  # no worker is ahead there any more
            del self.dealt[last]
        self.full_below = self.step
        self.held.pop(worker, None)
        self._leave(worker)
        return list(dropped)

    def _leave(self, worker: int) -> None:
        self.live.discard(worker)
        self.waiting = [each for each in self.waiting if each != worker]

    def _deal(self) -> list[Effect]:
        """Grant places, step by step, to the workers whose turn it is.

        A place of the current step that a loss freed goes to any worker: its data was returned, and workers that could
        request it may be waiting for this step.
        """
        granted: list[Effect] = []
        while not self.draining and self.live:
            step = self._front()
            granted += self._deal_in_turn(step)
            if not self._room(step):
                continue
            if step != self.step or all(each <= step for each in self.dealt):
                break
            worker = self.waiting.pop(0) if self.waiting else min(self.live, key=lambda each: (self._holds(each), each))
            granted.append(self._grant(worker, step))
        return granted

    def _deal_in_turn(self, step: int) -> list[Effect]:
        granted: list[Effect] = []
        room = self._room(step)
        asked, self.waiting = self.waiting, []
        for worker in asked:
            if len(granted) < room and self._has_turn(worker, step):
                granted.append(self._grant(worker, step))
            else:
                self.waiting.append(worker)
        return granted

    def _front(self) -> int:
        """The first step with room."""
        self.full_below = max(self.full_below, self.step)
        while not self._room(self.full_below):
            self.full_below += 1
        return self.full_below

    def _room(self, step: int) -> int:
        return self.places - len(self.dealt[step].holders) if step in self.dealt else self.places

    def _has_turn(self, worker: int, step: int) -> bool:
        """Whether a worker may hold another grant, and does not have its share of a step."""
        if self._holds(worker) >= self.max_in_flight:
            return False
        share = -(-self.places // len(self.live))
        return step not in self.dealt or self.dealt[step].shares.get(worker, 0) < share

    def _waits_no_more(self, worker: int) -> bool:
        """Whether a push gave a worker that waits its turn."""
        return worker in self.live and self._has_turn(worker, self._front()) and worker in self.waiting

    def _holds(self, worker: int) -> int:
        return self.held.get(worker, 0)

    def _grant(self, worker: int, step: int) -> Grant:
        given = self.grants.give(worker, token=step)
        self.held[worker] = self._holds(worker) + 1
        self.dealt.setdefault(step, OpenStep()).deal(given.grant, worker)
        return given

    def _close(self) -> list[Effect]:
        closed: list[Effect] = []
        while (running := self.dealt.get(self.step)) is not None:
            full = len(running.pushes) == self.places
            if not full and not (self.draining and len(running.pushes) == len(running.holders)):
                break
            del self.dealt[self.step]
            in_order = sorted(running.pushes, key=lambda push: push.grant)
            closed.append(self._close_step("dense", in_order, full=full))
        return closed
