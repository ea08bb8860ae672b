"""Checkers outside the code under test: they record events and effects, and check the promises of each mode.

- Every step holds the promised number of gradients; a short one occurs only in a drain, when nothing is outstanding.
- A step is dealt as a whole before one that is ahead of it.
- A step closes as soon as it can; steps are consecutive; no gradient is applied twice, or without having been pushed.
- None is older than the promise allows, or has another weight than promised.
- A push that arrived before, or whose worker was given up, changes nothing.
- A worker that is lost or has ended gets no grant; a worker that waits, waits for one that is present and computes.
- In the end every grant was applied, dropped as late, or lost, and all samples were trained or dropped as late.

The first broken promise is raised.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hotrow.modes import Mode
from hotrow.modes.base import (
    Apply,
    Drain,
    Drop,
    Effect,
    Ended,
    Event,
    GradientPart,
    Grant,
    Group,
    Joined,
    LookAhead,
    Lost,
    Pushed,
    Ready,
    Resume,
    RunFacts,
)
from hotrow.sim.promises import Promise, promise_of


class BrokenPromise(AssertionError):
    """A discipline did what its mode promised never to do, or did not do what it promised."""


@dataclass(slots=True)
class _Entry:
    """The record of one grant."""

    worker: int
    token: int
    pushed: dict[Group, Pushed] = field(default_factory=dict)
    applied: set[Group] = field(default_factory=set)
    dropped: str | None = None
    given_up: bool = False  # pushes that have not arrived do not count any more
    done: bool = False  # it took part in a step, or was dropped


class Checkers:
    """Checks one run, over all its modes."""

    def __init__(self) -> None:
        self._promise: Promise
        self._mode = ""
        self._time_s = 0.0
        self._books: dict[int, _Entry] = {}
        self._out: set[int] = set()  # grants with pushes to come
        self._pending: dict[int, None] = {}  # pushed for a step and not applied, in order
        self._arrived: int | None = None  # pushed to be applied at once
        self._present: set[int] = set()
        self._ended: set[int] = set()
        self._waiting: dict[int, int] = {}  # worker -> requests without a grant so far
        self._draining = False
        self.samples = 0  # trained or dropped as late

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        self._time_passes(time_s)
        self._require(not self._out and not self._pending, "a mode begins and the one before is not at rest")
        self._promise, self._mode, self._draining = promise_of(mode, facts), mode.name, False
        self._present.clear()
        self._ended.clear()
        self._waiting.clear()

    def cut(self, time_s: float) -> None:
        """A shard was lost: what is not applied is given up, wherever it is."""
        self._time_passes(time_s)
        for grant in self._out | self._pending.keys():
            entry = self._books[grant]
            entry.dropped, entry.done = "cut", True
        self._out.clear()
        self._pending.clear()

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        self._time_passes(time_s)
        if self._see(event):
            for effect in effects:
                match effect:
                    case Grant():
                        self._grant(effect)
                    case Apply():
                        self._apply(effect)
                    case Drop():
                        self._drop(effect, event)
            self._check_progress()
        else:
            self._require(not effects, f"a push of grant {_number(event)} that does not count had effects")
        if isinstance(event, Lost):
            self._see_what_is_left(event.worker)

    def end(self, samples: int) -> None:
        """Check the end of a run of so many samples."""
        self._time_passes(float("inf"))
        open_ = [grant for grant, entry in self._books.items() if not entry.done]
        self._require(not open_, f"grants {open_[:5]} were neither applied nor dropped")
        self._require(not self._waiting, f"workers {sorted(self._waiting)} wait forever")
        self._require(self.samples == samples, f"{self.samples:,} of {samples:,} samples were trained or dropped late")

    # Events

    def _see(self, event: Event) -> bool:
        """Record an event; False where it must not change anything."""
        match event:
            case Joined(worker):
                self._present.add(worker)
                self._ended.discard(worker)
                self._promise.joined(worker)
            case Ready(worker):
                self._require(worker in self._present - self._ended, f"worker {worker} is not present")
                self._waiting[worker] = self._waiting.get(worker, 0) + 1
            case Pushed():
                return self._see_push(event)
            case Lost(worker) | Ended(worker):
                self._waiting.pop(worker, None)
                (self._present.discard if isinstance(event, Lost) else self._ended.add)(worker)
                self._promise.left(worker)
            case LookAhead(steps):
                self._promise.ahead = max(self._promise.ahead, steps)  # grants of before may still be out
            case Drain():
                self._draining = True
            case Resume():
                self._draining = False
        return True

    def _see_push(self, push: Pushed) -> bool:
        entry = self._books[push.grant]
        if entry.dropped or entry.given_up or push.group in entry.pushed:
            return False
        entry.pushed[push.group] = push
        if push.group == self._promise.stepping:
            self._pending[push.grant] = None
        else:
            self._arrived = push.grant
        if len(entry.pushed) == len(self._promise.groups):
            self._out.discard(push.grant)
            self._promise.pushed(entry.worker)
        return True

    def _see_what_is_left(self, lost: int) -> None:
        """A lost worker's grants whose gradient for the step arrived stay; other pushes of them are too late."""
        for grant in [grant for grant in self._out if self._books[grant].worker == lost]:
            entry = self._books[grant]
            self._require(self._promise.stepping in entry.pushed, f"worker {lost} is lost and holds grant {grant}")
            entry.given_up = True
            self._out.discard(grant)

    # Effects

    def _grant(self, grant: Grant) -> None:
        number, worker = grant.grant, grant.worker
        self._require(number > max(self._books, default=0), f"grant {number} was used before")
        self._require(not self._draining, f"grant {number} in a drain")
        self._require(worker in self._present - self._ended, f"grant {number} goes to absent worker {worker}")
        asked = self._waiting.get(worker, 0)
        self._require(asked > 0 or self._promise.unrequested, f"worker {worker} did not request grant {number}")
        if asked > 1:
            self._waiting[worker] = asked - 1
        else:
            self._waiting.pop(worker, None)
        fault = self._promise.grant_fault(worker, grant.token)
        self._require(fault is None, f"grant {number} {fault}")
        if self._promise.ahead and grant.token > self._promise.step:
            self._check_dealt(number, grant.token - 1)
        self._promise.granted(number)
        self._books[number] = _Entry(worker, grant.token)
        self._out.add(number)

    def _apply(self, apply: Apply) -> None:
        promise, group, step = self._promise, apply.group, apply.step
        name = f"step {step} of {group}"
        if group not in (promise.stepping, promise.arriving):
            fault = promise.apply_fault(group, step, self._draining)
            self._require(fault is None, f"{name} {fault}")
            return
        self._require(step == promise.step, f"{name} comes where {promise.step} is next")
        for part in apply.parts:
            self._take(part, apply)
        if group == promise.arriving:
            self._require(len(apply.parts) == 1, f"{name} holds {len(apply.parts)} parts, each comes by itself")
            return
        short = len(apply.parts) < promise.parts
        self._require(len(apply.parts) <= promise.parts, f"{name} holds {len(apply.parts)} of {promise.parts} parts")
        if short:
            awaited = any(self._is_awaited(self._books[grant], step) for grant in self._out)
            passed_over = promise.arriving is not None  # all its batches are lost, and a worker waits ahead of it
            at_the_end = self._draining and not awaited and (bool(apply.parts) or passed_over)
            message = f"{name} holds {len(apply.parts)} of {promise.parts} parts"
            self._require(at_the_end, f"{message}, and it is not the end of a drain")
        promise.closed(at_rest=self._draining and not self._out)

    def _take(self, part: GradientPart, apply: Apply) -> None:
        promise, entry, group = self._promise, self._books.get(part.grant), apply.group
        name = f"grant {part.grant} in step {apply.step} of {group}"
        push = entry.pushed.get(group) if entry is not None else None
        if entry is None or push is None:
            raise self._broken(f"{name} was never pushed")
        self._require(group not in entry.applied, f"{name} is applied twice")
        self._require(entry.dropped is None, f"{name} was dropped before")
        same = (push.token, push.pulled_step, push.samples) == (part.token, part.pulled_step, part.samples)
        self._require(same and push.token == entry.token, f"{name} is not what was pushed")
        if group == promise.arriving:
            fault = promise.arrival_fault(part)
        elif promise.fresh and part.pulled_step != apply.step:
            fault = f"was computed from the parameters of step {part.pulled_step}"
        else:
            fault = promise.weight_fault(part, apply.step)
        self._require(fault is None, f"{name} {fault}")
        entry.applied.add(group)
        if group == promise.stepping:
            del self._pending[part.grant]
            entry.done = True
            self.samples += part.samples
        else:
            self._arrived = None

    def _drop(self, drop: Drop, event: Event) -> None:
        entry, name = self._books[drop.grant], f"grant {drop.grant} is dropped as {drop.reason}"
        self._require(not entry.done, f"{name} and was done before")
        entry.dropped, entry.done = drop.reason, True
        self._out.discard(drop.grant)
        if drop.reason == "late":
            push = entry.pushed.get(self._promise.stepping)
            late = push is not None and push.token < self._promise.step
            if push is None or not (self._promise.drops_late and late):
                raise self._broken(f"{name}, and it is not")
            del self._pending[drop.grant]
            self.samples += push.samples
            return
        if drop.reason == "rollback":
            self._require(self._draining and entry.token > self._promise.step, f"{name}, and its step can be reached")
            reached = [each for each in self._out if self._books[each].token == self._promise.step]
            self._require(not reached, f"{name}, and grants {reached[:5]} of the step before it are out")
            return
        self._require(isinstance(event, Lost) and event.worker == entry.worker, f"{name}, and its worker is not lost")
        self._require(self._promise.stepping not in entry.pushed, f"{name}, and its gradient is in")
        self._promise.lost(drop.grant)

    def _check_dealt(self, number: int, step: int) -> None:
        """All gradients of a step are out or in, before the first grant of the next."""
        held = self._out | self._pending.keys()
        dealt = sum(self._books[grant].token == step for grant in held)
        self._require(dealt == self._promise.parts, f"grant {number} is ahead of step {step}, which is not dealt")

    # States

    def _check_progress(self) -> None:
        """Whatever can be applied has been applied."""
        pending = len(self._pending)
        if self._promise.in_order:
            pending = sum(self._books[grant].token == self._promise.step for grant in self._pending)
        full = pending >= self._promise.parts
        if self._promise.arriving is not None:
            self._require(not self._arrived, f"the push of grant {self._arrived} was not applied on arrival")
        self._require(not full, f"step {self._promise.step} is full and was not applied")

    def _time_passes(self, time_s: float) -> None:
        """Between two instants a waiting worker must have another one to wait for."""
        if time_s == self._time_s:
            return
        if self._draining and not self._out:
            self._require(not self._pending, f"grants {list(self._pending)[:5]} stay in the buffer after a drain")
            fault = self._promise.rest_fault()
            self._require(fault is None, f"after a drain {fault}")
        elif self._waiting and not self._draining:
            awaited = self._present - self._ended - self._waiting.keys()  # they compute, or will request a batch
            awaited |= {self._books[grant].worker for grant in self._out} & self._present
            self._require(bool(awaited), f"workers {sorted(self._waiting)} wait, and no other worker computes")
        self._time_s = time_s

    def _is_awaited(self, entry: _Entry, step: int) -> bool:
        """Whether a gradient that is out belongs to a step: any, or where they are in order those whose token it is."""
        missing = self._promise.stepping not in entry.pushed
        return missing and (not self._promise.in_order or entry.token == step)

    def _require(self, kept: bool, message: str) -> None:
        if not kept:
            raise self._broken(message)

    def _broken(self, message: str) -> BrokenPromise:
        return BrokenPromise(f"{self._mode}, {self._time_s:.3f} s: {message}")


def _number(event: Event) -> int:
    return event.grant if isinstance(event, Pushed) else 0
