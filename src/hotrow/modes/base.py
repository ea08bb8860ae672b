"""Events and effects: the interface between a run and a discipline.

A discipline is a dataclass whose fields are its whole state; `on(event)` changes them and returns effects. It uses
no clock, socket, thread, tensor or random number, so the same object runs on threads, on a cluster and in simulation.

Rules that hold in every mode
- A grant lets a worker look up and compute one batch. Its number is never used again.
- A push counts once: one whose grant was pushed before, or was given up with its lost worker, has no effect.
- `Lost` gives up the worker's grants that are not pushed yet (`Drop` with reason "lost": their data goes to another
  worker). Pushes that arrived before stay and count.
- `Ended`: the worker will request no more batches, and no step waits for it. It may join again when data is returned.
- After `Drain` there are no grants. The buffer is applied, as a short step, once no grant is open. `Resume` ends this.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar, dataclass_transform

Group = Literal["both", "dense", "embedding"]
Reason = Literal["late", "lost", "rollback"]  # why a grant was dropped; only "late" finishes its data
REMEMBERED = 10_000  # grants given up whose pushes may still arrive
NOT_OUT: tuple[int, tuple[Group, ...]] = (-1, ())

Class = TypeVar("Class")


@dataclass_transform(frozen_default=True)
def value(cls: type[Class]) -> type[Class]:
    """A dataclass whose fields are never set again.

    The type checker enforces that. At run time it would make values four times as slow to build, and a simulated
    cluster builds five of them for each push.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


@value
class Joined:
    """Event: a worker joins. Workers are numbered; a restarted one joins under its old number.

    Example:
        >>> from hotrow.modes import GBA, Joined, RunFacts
        >>> discipline = GBA().start(RunFacts(workers=2, local_batch=8, global_batch=16))
        >>> discipline.on(Joined(worker=0))
        []
    """

    worker: int


@value
class Ready:
    """Event: a worker has data and requests a grant to start one more batch.

    Example:
        >>> from hotrow.modes import GBA, Ready, RunFacts
        >>> discipline = GBA().start(RunFacts(workers=2, local_batch=8, global_batch=16))
        >>> discipline.on(Ready(worker=0))
        [Grant(worker=0, grant=1, token=0)]
    """

    worker: int


@value
class Pushed:
    """Event: the gradients of a grant have arrived, on every shard. `samples` is the size of the batch.

    Example:
        >>> from hotrow.modes import Async, Pushed, Ready, RunFacts
        >>> discipline = Async().start(RunFacts(workers=1, local_batch=8, global_batch=8))
        >>> (grant,) = discipline.on(Ready(worker=0))
        >>> (applied,) = discipline.on(Pushed("both", 0, grant.grant, grant.token, pulled_step=0, samples=8))
        >>> applied.step, applied.samples
        (0, 8)
    """

    group: Group
    worker: int
    grant: int
    token: int
    pulled_step: int  # the step whose parameters they were computed from
    samples: int


@value
class Lost:
    """Event: a worker failed. Its grants without a push are given up.

    Example:
        >>> from hotrow.modes import GBA, Lost, Ready, RunFacts
        >>> discipline = GBA().start(RunFacts(workers=2, local_batch=8, global_batch=16))
        >>> _ = discipline.on(Ready(worker=0))
        >>> discipline.on(Lost(worker=0))
        [Drop(grant=1, reason='lost')]
    """

    worker: int


@value
class Ended:
    """Event: there is no more data for a worker. It requests no more grants, unless it joins again.

    Example:
        >>> from hotrow.modes import Ended
        >>> Ended(worker=3)
        Ended(worker=3)
    """

    worker: int


@value
class Drain:
    """Event: stop for a checkpoint, a switch or the end. No grants until `Resume`.

    Example:
        >>> from hotrow.modes import Drain, GBA, Ready, RunFacts
        >>> discipline = GBA().start(RunFacts(workers=2, local_batch=8, global_batch=16))
        >>> _ = discipline.on(Drain())
        >>> discipline.on(Ready(worker=0))
        [Park(worker=0)]
    """


@value
class Resume:
    """Event: grant again after a drain.

    Example:
        >>> from hotrow.modes import Drain, GBA, Ready, Resume, RunFacts
        >>> discipline = GBA().start(RunFacts(workers=2, local_batch=8, global_batch=16))
        >>> _ = discipline.on(Drain()), discipline.on(Ready(worker=0))
        >>> discipline.on(Resume())
        [Grant(worker=0, grant=1, token=0)]
    """


@value
class LookAhead:
    """Event: from now on so many steps are granted before the open one is applied (Sync and KStep).

    Example:
        >>> from hotrow.modes import LookAhead, Ready, RunFacts, Sync
        >>> discipline = Sync(look_ahead=0).start(RunFacts(workers=1, local_batch=8, global_batch=8))
        >>> discipline.on(Ready(worker=0)), discipline.on(Ready(worker=0))
        ([Grant(worker=0, grant=1, token=0)], [Park(worker=0)])
        >>> discipline.on(LookAhead(steps=1))
        [Grant(worker=0, grant=2, token=1)]
    """

    steps: int


Event = Joined | Ready | Pushed | Lost | Ended | Drain | Resume | LookAhead


@value
class GradientPart:
    """A push in an `Apply`, with the weight of its dense gradient.

    Example:
        >>> from hotrow.modes import GradientPart
        >>> GradientPart(grant=1, token=0, pulled_step=0, samples=8, weight=1.0).weight
        1.0
    """

    grant: int
    token: int
    pulled_step: int
    samples: int
    weight: float  # of its dense gradient; rows may weigh otherwise, id by id


@value
class Grant:
    """Effect: a worker looks rows up and computes one batch. `token` is the step that staleness is counted from.

    Example:
        >>> from hotrow.modes import Grant
        >>> Grant(worker=0, grant=1, token=0)
        Grant(worker=0, grant=1, token=0)
    """

    worker: int
    grant: int
    token: int


@value
class Apply:
    """Effect: change parameters by sum(weight * samples * gradient) / sum(samples) over all parts.

    `step` is the number of the dense step, from 0.

    Example:
        >>> from hotrow.modes import Apply, GradientPart
        >>> Apply("both", step=0, parts=(GradientPart(1, 0, 0, samples=8, weight=1.0),)).samples
        8
    """

    group: Group
    step: int
    parts: tuple[GradientPart, ...]

    @property
    def samples(self) -> int:
        """Of all parts, those of weight 0 included."""
        samples = 0
        for part in self.parts:  # mostly one: a generator for sum() would take longer
            samples += part.samples
        return samples


@value
class Drop:
    """Effect: discard the gradients of a grant.

    Example:
        >>> from hotrow.modes import Drop
        >>> Drop(grant=1, reason="late").reason
        'late'
    """

    grant: int
    reason: Reason


@value
class Park:
    """Effect: a worker waits for its grant. It is counted and shown, nothing else.

    Example:
        >>> from hotrow.modes import Park
        >>> Park(worker=2)
        Park(worker=2)
    """

    worker: int


Effect = Grant | Apply | Drop | Park


class Discipline(Protocol):
    """The running state of a mode: its fields are its whole state, and `on(event)` returns effects.

    Example:
        >>> from hotrow.modes import RunFacts, Sync
        >>> Sync().start(RunFacts(workers=2, local_batch=8, global_batch=16)).step
        0
    """

    @property
    def step(self) -> int:
        """Dense steps so far; the next `Apply` of dense gradients has this number."""

    @property
    def counts(self) -> dict[str, int]:
        """Counts by name that a run reports: duplicate pushes, pushes after a loss, short steps."""

    def on(self, event: Event) -> list[Effect]:
        """Change the state by an event, and return the effects to perform, in order."""


def part(push: Pushed, weight: float) -> GradientPart:
    """The part of an `Apply` for a push.

    Example:
        >>> from hotrow.modes import Pushed, part
        >>> part(Pushed("both", worker=0, grant=1, token=0, pulled_step=0, samples=8), weight=0.5).weight
        0.5
    """
    return GradientPart(push.grant, push.token, push.pulled_step, push.samples, weight)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts of a run that a mode starts with: sizes in samples, and the first step and grant numbers.

    Example:
        >>> from hotrow.modes import RunFacts
        >>> RunFacts(workers=4, local_batch=32, global_batch=128).parts
        4
    """

    workers: int
    local_batch: int
    global_batch: int
    step: int = 0  # where dense steps go on: they never start again, also not after a switch
    grants: int = 0  # numbers given out by the mode before

    @property
    def parts(self) -> int:
        """Local batches in a global one; the spec of a mode that needs a whole number of them has checked it."""
        return self.global_batch // self.local_batch


@dataclass(slots=True)
class Grants:
    """The open grants of a discipline, and their pushes.

    Of the grants that were given up, the last `REMEMBERED` are known one by one. A push for an earlier one may be late
    or a duplicate, which cannot be distinguished; it counts as late.

    Example:
        >>> from hotrow.modes import Grants
        >>> grants = Grants()
        >>> grants.give(worker=0, token=0)
        Grant(worker=0, grant=1, token=0)
        >>> grants.lose(worker=0)
        [Drop(grant=1, reason='lost')]
    """

    groups: tuple[Group, ...] = ("both",)  # the pushes that each grant brings
    given: int = 0  # numbers up to this one were used
    out: dict[int, tuple[int, tuple[Group, ...]]] = field(default_factory=dict)  # grant -> worker, pushes to come
    lost: dict[int, tuple[Group, ...]] = field(default_factory=dict)  # given up -> pushes that may still arrive
    forgotten: int = 0  # grants given up, up to this number, are not all in `lost` any more
    duplicates: int = 0
    after_loss: int = 0

    def give(self, worker: int, token: int) -> Grant:
        """Make the next grant."""
        self.given += 1
        self.out[self.given] = (worker, self.groups)
        return Grant(worker, self.given, token)

    def take(self, push: Pushed) -> bool:
        """Whether a push counts."""
        worker, to_come = self.out.get(push.grant, NOT_OUT)
        if push.group not in to_come:
            self._count_in_vain(push)
            return False
        if len(to_come) > 1:
            self.out[push.grant] = (worker, _without(push.group, to_come))
        else:
            del self.out[push.grant]
        return True

    def lose(self, worker: int) -> list[Effect]:
        """Drop the grants of a lost worker."""
        return self.give_up([grant for grant, (holder, _) in self.out.items() if holder == worker], "lost")

    def give_up(self, gone: Sequence[int], reason: Reason) -> list[Effect]:
        """Drop grants that are out."""
        for grant in gone:
            _, self.lost[grant] = self.out.pop(grant)
        while len(self.lost) > REMEMBERED:
            first = next(iter(self.lost))
            self.forgotten = max(self.forgotten, first)
            del self.lost[first]
        return [Drop(grant, reason) for grant in gone]

    def holds(self, worker: int) -> bool:
        """Whether a worker has an open grant."""
        return any(holder == worker for holder, _ in self.out.values())

    def _count_in_vain(self, push: Pushed) -> None:
        awaited = self.lost.get(push.grant)
        if awaited is None:
            late = push.grant <= self.forgotten
        elif late := push.group in awaited:
            del self.lost[push.grant]
            if left := _without(push.group, awaited):
                self.lost[push.grant] = left
        self.after_loss += late
        self.duplicates += not late

    @property
    def counts(self) -> dict[str, int]:
        """Counts of duplicate and late pushes."""
        return {"duplicate_pushes": self.duplicates, "pushes_after_loss": self.after_loss}


def _without(one: Group, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    return tuple(group for group in groups if group != one)
