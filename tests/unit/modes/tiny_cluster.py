"""A made-up cluster around one discipline: workers that keep the engines' contract, a pool of leases, and checks.

Whoever drives it says what happens next: somebody asks, pushes, is lost, comes back. What the discipline answers is
checked at once, and `finish` checks what must hold at the end. Nothing here looks into a discipline.
"""

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from heapq import heapify, heappop, heappush
from typing import Any

from hotrow.modes import MODES, Mode
from hotrow.modes.base import (
    Apply,
    Drain,
    Drop,
    Effect,
    Ended,
    Event,
    Grant,
    Group,
    Joined,
    LookAhead,
    Lost,
    Park,
    Pushed,
    Ready,
    Resume,
    RunFacts,
)


@dataclass(slots=True)
class Batch:
    """What one grant lets a worker compute."""

    grant: Grant
    lease: int
    pulled_step: int
    to_push: list[Group]


@dataclass(slots=True)
class Worker:
    """One that is there."""

    asks: int = 0  # Ready, and no grant yet
    batches: dict[int, Batch] = field(default_factory=dict)  # by grant
    ended: bool = False


def groups_of(mode: Mode) -> list[Group]:
    """The pushes that a batch brings."""
    match mode.name:
        case "hybrid":
            return ["embedding", "dense"]
        case "k_step":
            return ["embedding"]
        case _:
            return ["both"]


def closes(mode: Mode, effect: Effect) -> bool:
    """Whether an effect is a step of the run: in KStep rows move at every step, dense parameters at merges."""
    return isinstance(effect, Apply) and effect.group == ("embedding" if mode.name == "k_step" else groups_of(mode)[-1])


class TinyCluster:
    """A discipline, its workers and its data. Leases are numbered in the order of the data."""

    def __init__(self, mode: Mode, facts: RunFacts, samples: list[int]) -> None:
        self.mode, self.facts, self.samples = mode, facts, samples
        self.discipline = mode.start(facts)
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.steps: list[Apply] = []
        self.merged_steps: list[int] = []  # in KStep: how many steps there were at each merge
        self.workers: dict[int, Worker] = {}
        self.done: Counter[int] = Counter()  # leases
        self.resting = False
        self.look_ahead = mode.first_look_ahead
        self.most_held = mode.most_held(facts, self.look_ahead)
        self.ghosts: list[Pushed] = []  # of workers that were lost, still under way
        self.sent: list[Pushed] = []
        self.duplicates = self.after_loss = self.lost = self.half_lost = self.late = 0
        self._free = list(range(len(samples)))  # leases that nobody holds, reserved ones too
        self._reserved = 0
        self._held: dict[int, int] = {}  # grant -> lease

    # What may happen.

    def join(self, worker: int) -> None:
        """A worker comes, or comes back."""
        if worker not in self.workers:
            self.workers[worker] = Worker()
            self._take(Joined(worker))

    def ask(self, worker: int) -> bool:
        """A worker that has a hand free asks for a batch, or hears that there are no more data."""
        here = self.workers.get(worker)
        if here is None or here.asks + len(here.batches) >= self.most_held:
            return False
        if len(self._free) > self._reserved:
            if here.ended:
                here.ended = False
                self._take(Joined(worker))
                if len(self._free) == self._reserved:  # it was granted one at once
                    return True
            self._reserved += 1
            here.asks += 1
            self._take(Ready(worker))
            return True
        if here.ended or here.asks:
            return False
        here.ended = True
        self._take(Ended(worker))
        return True

    def push(self, worker: int) -> bool:
        """A worker sends the next gradients of its first batch, if it can be computed."""
        here = self.workers.get(worker)
        if here is None or not here.batches:
            return False
        batch = min(here.batches.values(), key=lambda each: (each.grant.token, each.grant.grant))
        if self.mode.dense != "server":
            if batch.grant.token > self.discipline.step:
                return False
            batch.pulled_step = self.discipline.step
        push = self._pushed(worker, batch, batch.to_push.pop(0))
        if not batch.to_push:
            del here.batches[batch.grant.grant]
        self.sent.append(push)
        self._take(push)
        return True

    def push_again(self, which: int) -> None:
        """A push that was sent before arrives once more: nothing may come of it."""
        if self.sent:
            self.duplicates += 1
            assert self.discipline.on(self.sent[which % len(self.sent)]) == []

    def lose(self, worker: int) -> None:
        """A worker is gone; what it was computing may still arrive."""
        here = self.workers.pop(worker, None)
        if here is None:
            return
        self._reserved -= here.asks
        for batch in here.batches.values():
            self.half_lost += batch.to_push != groups_of(self.mode)
            self.ghosts += [self._pushed(worker, batch, group) for group in batch.to_push]
        self._take(Lost(worker))

    def push_after_loss(self) -> None:
        """What a lost worker was computing arrives: nothing may come of it."""
        if self.ghosts:
            self.after_loss += 1
            assert self.discipline.on(self.ghosts.pop(0)) == []

    def change_look_ahead(self) -> None:
        """Grant ahead from now on, or no more."""
        if self.mode.looks_ahead:
            self.look_ahead = 1 - self.look_ahead
            self.most_held = max(self.most_held, self.mode.most_held(self.facts, self.look_ahead))
            self._take(LookAhead(self.look_ahead))

    def drain(self) -> None:
        """Come to rest, without waiting for it."""
        self.resting = True
        self._take(Drain())

    def resume(self) -> None:
        """Go on, once nothing is outstanding."""
        while any(self.push(worker) for worker in sorted(self.workers)):
            pass
        self.check_rest()
        self.resting = False
        self._take(Resume())

    # What must hold.

    @property
    def outstanding(self) -> int:
        return sum(len(worker.batches) for worker in self.workers.values())

    def check_rest(self) -> None:
        """After a drain nothing is out, and every batch that was pushed is applied or dropped."""
        assert self.resting
        assert self.outstanding == 0, "somebody cannot push what it holds"
        assert self._held == {}, "something stays buffered"

    def finish(self) -> None:
        """Let whoever is there train the rest of the data, and judge the whole."""
        if self.resting:
            self.resume()
        self.join(0)
        while True:
            moved = [self.ask(worker) for worker in sorted(self.workers)]
            moved += [self.push(worker) for worker in sorted(self.workers)]
            if not any(moved):
                break
        assert self._free == [], "workers wait for each other, and data are left"
        self.drain()
        self.resume()
        assert dict(self.done) == dict.fromkeys(range(len(self.samples)), 1)
        self.judge()

    def judge(self) -> None:
        """What the effects so far must add up to."""
        granted = [effect.grant for effect in self.effects if isinstance(effect, Grant)]
        assert granted == list(range(self.facts.grants + 1, self.facts.grants + 1 + len(granted)))
        assert [step.step for step in self.steps] == list(range(self.facts.step, self.discipline.step))
        finished = [part.grant for step in self.steps for part in step.parts]
        finished += [effect.grant for effect in self.effects if isinstance(effect, Drop)]
        assert sorted(finished + list(self._held)) == granted, "granted = applied + dropped + under way"
        promised = self.promised_parts
        short = [step for step in self.steps if len(step.parts) != promised or step.samples < self.promised_samples]
        assert all(len(step.parts) <= promised for step in self.steps)
        expected = {"duplicate_pushes": self.duplicates, "pushes_after_loss": self.after_loss}
        if self.mode.name in MODES:  # a mode of a user's own need not count them
            expected["short_steps"] = len(short)
        if self.mode.name == "hybrid":
            expected |= {"rows_applied_twice": self.half_lost, "rows_never_pushed": 0}  # rows are pushed first here
        assert self.discipline.counts == expected

    @property
    def promised_samples(self) -> int:
        """Of a step."""
        return self.facts.global_batch if self.mode.name == "k_step" else self.mode.samples_per_step(self.facts)

    @property
    def promised_parts(self) -> int:
        return self.promised_samples // self.facts.local_batch

    # How it is done.

    def _pushed(self, worker: int, batch: Batch, group: Group) -> Pushed:
        grant = batch.grant
        return Pushed(group, worker, grant.grant, grant.token, batch.pulled_step, self.samples[batch.lease])

    def _take(self, event: Event) -> None:
        self.events.append(event)
        effects = self.discipline.on(event)
        self.effects += effects
        for effect in effects:
            match effect:
                case Grant():
                    self._start(effect)
                case Apply():
                    self._apply(effect)
                case Drop():
                    self._drop(effect, event)
                case Park(worker):
                    assert self.workers[worker].asks

    def _start(self, grant: Grant) -> None:
        assert not self.resting, "granted during a drain"
        here = self.workers[grant.worker]
        if here.asks:
            here.asks -= 1
            self._reserved -= 1
        else:
            assert self.mode.name == "hybrid", "granted to somebody who did not ask"
        lease = heappop(self._free)
        assert len(self._free) >= self._reserved, "somebody was promised data that another one got"
        here.batches[grant.grant] = Batch(grant, lease, self.discipline.step, groups_of(self.mode))
        self._held[grant.grant] = lease

    def _apply(self, effect: Apply) -> None:
        assert all(part.pulled_step <= effect.step for part in effect.parts)
        if self.mode.name == "k_step" and effect.group == "dense":
            self._merge(effect)
            return
        assert all(self.samples[self._held[part.grant]] == part.samples for part in effect.parts)
        if closes(self.mode, effect):
            self.steps.append(effect)
            for part in effect.parts:
                self.done[self._held.pop(part.grant)] += 1

    def _merge(self, effect: Apply) -> None:
        """In KStep: with the step just made, or by itself before a rest."""
        if effect.parts:
            assert (effect.step, effect.parts) == (self.steps[-1].step, self.steps[-1].parts)
        else:
            assert self.resting
            assert effect.step == self.discipline.step
        self.merged_steps.append(len(self.steps))

    def _drop(self, effect: Drop, event: Event) -> None:
        lease = self._held.pop(effect.grant)
        if effect.reason == "lost":
            assert isinstance(event, Lost)
            self.lost += 1
            heappush(self._free, lease)
        elif effect.reason == "rollback":  # ahead of a step that a drain leaves without a batch
            assert self.resting
            assert isinstance(event, Lost | Drain)
            for worker in self.workers.values():
                if (batch := worker.batches.pop(effect.grant, None)) is not None:
                    assert batch.grant.token > self.discipline.step
            heappush(self._free, lease)
        else:
            assert isinstance(event, Pushed)
            assert event.grant == effect.grant
            self.late += 1
            self.done[lease] += 1
        heapify(self._free)


def cluster_of(mode: Mode, *, workers: int = 3, parts: int = 3, batches: int = 12, short: int = 0) -> TinyCluster:
    """Local batches of 4 samples; the last one lacks `short` of them."""
    facts = RunFacts(workers=workers, local_batch=4, global_batch=4 * parts)
    sizes = [4] * batches
    if batches:
        sizes[-1] -= short
    return TinyCluster(mode, facts, sizes)


def pushed(grant: Grant, *, samples: int = 4, pulled_step: int | None = None, group: Group = "both") -> Pushed:
    """The push of a grant, as its worker sends it."""
    pulled = grant.token if pulled_step is None else pulled_step
    return Pushed(group, grant.worker, grant.grant, grant.token, pulled, samples)


def grants_of(effects: list[Effect]) -> list[Grant]:
    """The grants among effects."""
    return [effect for effect in effects if isinstance(effect, Grant)]


def facts_of(workers: int, parts: int, **more: int) -> RunFacts:
    """Local batches of 4 samples, `parts` of them in a global one."""
    return replace(RunFacts(workers=workers, local_batch=4, global_batch=4 * parts), **more)


def restored(discipline: Any) -> Any:
    """Another object of nothing but the fields, as a saved one would be."""
    return type(discipline)(**{each.name: deepcopy(getattr(discipline, each.name)) for each in fields(discipline)})
