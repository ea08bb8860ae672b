"""The promises of each mode, written from the design and not from the modes' code.

Checkers compare disciplines with them.

A promise knows how many gradients a step holds, how old they may be, their weights, and which worker may start a batch.
It keeps its own records, from events and effects.
"""

from dataclasses import dataclass, field

from hotrow.errors import ConfigError
from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import GradientPart, Group, RunFacts
from hotrow.staleness import Cutoff

Violation = str | None  # what is wrong, as the end of a sentence


@dataclass(slots=True)
class Promise:
    """The promise of a mode without waiting, and the base of all others."""

    parts: int  # gradients in a step
    step: int  # the next one to close
    stepping: Group = "both"  # the group whose steps are counted
    arriving: Group | None = None  # a group that is applied push by push, each on arrival
    groups: tuple[Group, ...] = ("both",)  # pushes of each grant
    fresh: bool = False  # all gradients of a step are computed from the current parameters
    drops_late: bool = False
    in_order: bool = False  # a gradient belongs to the step of its token
    ahead: int = 0  # steps that may be granted before the open one is applied
    unrequested: bool = False  # a worker may be granted a batch that it did not request
    tolerance: int | None = None  # older gradients weigh nothing; None: all count in full

    def weight_fault(self, part: GradientPart, step: int) -> Violation:
        """Of a part in a step."""
        if self.in_order and part.token != step:
            return f"belongs to step {part.token} and is in step {step}"
        late = max(0, step - part.token)
        right = 1.0 if self.tolerance is None or late <= self.tolerance else 0.0
        return None if part.weight == right else f"is {late} steps late and has weight {part.weight:g}, not {right:g}"

    def arrival_fault(self, part: GradientPart) -> Violation:
        """Of a part that is applied on arrival."""
        return None

    def grant_fault(self, worker: int, token: int) -> Violation:
        """Of a grant."""
        most = self.step + self.ahead
        return None if self.step <= token <= most else f"has token {token} in step {self.step}, {self.ahead} ahead"

    def granted(self, grant: int) -> None:
        """A grant that was found to be right."""

    def lost(self, grant: int) -> None:
        """A grant of a lost worker."""

    def apply_fault(self, group: Group, step: int, draining: bool) -> Violation:
        """Of a group whose steps are not counted; only KStep has one."""
        return "belongs to no group of this mode"

    def joined(self, worker: int) -> None:
        """A worker joined."""

    def left(self, worker: int) -> None:
        """A worker was lost or has no more data."""

    def pushed(self, worker: int) -> None:
        """A batch is finished."""

    def closed(self, at_rest: bool) -> None:
        """A step was applied; `at_rest`: in a drain, and no grant is out."""
        self.step += 1

    def rest_fault(self) -> Violation:
        """At the end of a drain."""
        return None


@dataclass(slots=True)
class Bound(Promise):
    """No worker starts a batch while more than `bound` ahead of the slowest."""

    bound: int = 0
    finished: dict[int, int] = field(default_factory=dict)  # of present workers

    def joined(self, worker: int) -> None:
        self.finished.setdefault(worker, min(self.finished.values(), default=0))

    def left(self, worker: int) -> None:
        self.finished.pop(worker, None)

    def pushed(self, worker: int) -> None:
        if worker in self.finished:
            self.finished[worker] += 1

    def grant_fault(self, worker: int, token: int) -> Violation:
        ahead = self.finished[worker] - min(self.finished.values())
        if ahead > self.bound:
            return f"lets worker {worker} start, {ahead} batches ahead of the slowest"
        return Promise.grant_fault(self, worker, token)


@dataclass(slots=True)
class Tokens(Promise):
    """GBA: place n has token n // parts, and never one below the step. The smallest free place is granted first."""

    first: int = 0  # the places from here on were never granted
    free: set[int] = field(default_factory=set)  # below it: places of lost grants
    held: dict[int, int] = field(default_factory=dict)  # grant -> place

    def grant_fault(self, worker: int, token: int) -> Violation:
        place = min(self.free, default=self.first)
        right = max(self.step, place // self.parts)
        return None if token == right else f"has token {token}, and place {place} has {right}"

    def granted(self, grant: int) -> None:
        place = min(self.free, default=self.first)
        self.free.discard(place)
        self.first = max(self.first, place + 1)
        self.held[grant] = place

    def lost(self, grant: int) -> None:
        self.free.add(self.held[grant])

    def closed(self, at_rest: bool) -> None:
        self.step += 1
        if at_rest:  # unfilled places of earlier steps are gone
            self.first, self.free = self.step * self.parts, set()


@dataclass(slots=True)
class InStep(Promise):
    """Hybrid: dense gradients belong to the step of their token, rows are applied on arrival."""

    share_of: int = 0  # samples that an embedding gradient is a share of; 0: it is applied as it is

    def arrival_fault(self, part: GradientPart) -> Violation:
        right = part.samples / self.share_of if self.share_of else 1.0
        return None if abs(part.weight - right) < 1e-12 else f"has weight {part.weight:g}, not {right:g}"

    def grant_fault(self, worker: int, token: int) -> Violation:
        return None if token >= self.step else f"has token {token} in step {self.step}"


@dataclass(slots=True)
class Merging(Promise):
    """KStep: steps as in Sync; dense parameters are merged at every k-th step of the run, and at rest."""

    k: int = 1
    warm_until: int = 0
    apart: int = 0  # steps since the last merge

    def closed(self, at_rest: bool) -> None:
        self.step += 1
        self.apart += 1

    def apply_fault(self, group: Group, step: int, draining: bool) -> Violation:
        if group != "dense":
            return "belongs to no group of this mode"
        beside = step == self.step - 1 or (draining and step == self.step)
        self.apart = 0
        return None if (self._is_due(step) or draining) and beside else f"merges beside step {self.step - 1}"

    def grant_fault(self, worker: int, token: int) -> Violation:
        if self.apart and self._is_due(self.step - 1):
            return f"starts a step, and step {self.step - 1} was not merged"
        return Promise.grant_fault(self, worker, token)

    def _is_due(self, step: int) -> bool:
        """Step number 0 is t = 1 of the run."""
        return (step + 1) % self.k == 0 or step < self.warm_until

    def rest_fault(self) -> Violation:
        return f"{self.apart} steps were not merged" if self.apart else None


def promise_of(mode: Mode, facts: RunFacts) -> Promise:
    """The promise of a mode in a run."""
    whole, step = facts.global_batch // facts.local_batch, facts.step
    match mode:
        case Sync():
            return Promise(whole, step, fresh=True, in_order=True, ahead=mode.first_look_ahead)
        case Async():
            return Promise(1, step, tolerance=_tolerance(mode))
        case BulkSync():
            return Promise(mode.bulk, step, tolerance=_tolerance(mode))
        case BoundedStaleness():
            return Bound(1, step, tolerance=_tolerance(mode), bound=mode.bound)
        case BackupWorkers():
            return Promise(facts.workers - mode.backups, step, fresh=True, drops_late=True)
        case GBA():
            return Tokens(whole, step, tolerance=mode.tolerance, first=step * whole)
        case Hybrid():
            share_of = facts.global_batch if mode.scale == "global" else 0
            groups: tuple[Group, ...] = ("embedding", "dense")
            return InStep(
                whole,
                step,
                "dense",
                "embedding",
                groups,
                fresh=True,
                in_order=True,
                unrequested=True,
                share_of=share_of,
            )
        case KStep():
            warm = mode.warm_until(facts)
            return Merging(
                whole,
                step,
                "embedding",
                None,
                ("embedding",),
                fresh=True,
                in_order=True,
                ahead=mode.first_look_ahead,
                k=mode.k,
                warm_until=warm,
            )
    raise ConfigError(f"mode={mode.name!r}: checkers know the promises of Hotrow's own modes: simulate it without them")


def _tolerance(mode: Async | BulkSync | BoundedStaleness) -> int | None:
    policy = mode.staleness
    if policy is None or policy.groups == "embedding":
        return None
    if not isinstance(policy.decay, Cutoff):
        raise AssertionError(f"checkers know cut-offs, and not {policy.decay.name}")
    return policy.decay.tolerance
