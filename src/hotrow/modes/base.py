"""The language of disciplines: what happens to a run (events) and what is to be done about it (effects).

A discipline is a dataclass whose fields are its whole state; `on(event)` changes them and gives effects back. It knows
no clock, socket, thread, tensor or chance, so the same object runs on threads, on a cluster and in virtual time.

Rules that hold in every mode
- A grant lets a worker look up and compute one batch. Its number is never used again.
- A push counts once: one whose grant was pushed before, or was given up with its lost worker, has no effect.
- `Lost` gives up the worker's grants that are not pushed yet (`Drop` with reason "lost": their data go to somebody
  else). Pushes that came before stay and count.
- `Ended` says that a worker will not ask again; nobody waits for it. It may join again when data come back.
- After `Drain` there are no grants. What is buffered is applied, short, once nothing is outstanding. `Resume` goes on.
"""

from dataclasses import dataclass, field
from typing import Literal, Protocol

Group = Literal["both", "dense", "embedding"]
Reason = Literal["late", "lost", "rollback"]  # why a grant was dropped; only "late" finishes its data


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker is there. Workers are numbered; a restarted one joins under its old number."""

    worker: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has data and wants to start one more batch."""

    worker: int


@dataclass(frozen=True, slots=True)
class Pushed:
    """Gradients are in, whole and on every shard."""

    group: Group
    worker: int
    grant: int
    token: int
    pulled_step: int  # the step whose parameters they were computed from
    samples: int


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker is gone without a word."""

    worker: int


@dataclass(frozen=True, slots=True)
class Ended:
    """There are no more data for a worker."""

    worker: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Come to rest: a checkpoint, a switch, the end."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on after a drain."""


Event = Joined | Ready | Pushed | Lost | Ended | Drain | Resume


@dataclass(frozen=True, slots=True)
class Part:
    """A push as a step takes it."""

    grant: int
    token: int
    pulled_step: int
    samples: int
    weight: float  # of its dense gradient; rows may weigh otherwise, id by id


@dataclass(frozen=True, slots=True)
class Grant:
    """A worker may start a batch."""

    worker: int
    grant: int
    token: int


@dataclass(frozen=True, slots=True)
class Apply:
    """Change parameters: sum of weight * samples * gradient over all parts, divided by the samples of all parts."""

    group: Group
    step: int
    parts: tuple[Part, ...]

    @property
    def samples(self) -> int:
        """Of all parts, those of weight 0 included."""
        return sum(part.samples for part in self.parts)


@dataclass(frozen=True, slots=True)
class Drop:
    """What was computed under a grant counts for nothing."""

    grant: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Park:
    """A worker has to wait. For show."""

    worker: int


Effect = Grant | Apply | Drop | Park


class Discipline(Protocol):
    """One mode at work."""

    @property
    def step(self) -> int:
        """Dense steps so far; the next `Apply` of dense gradients has this number."""

    @property
    def counts(self) -> dict[str, int]:
        """What went otherwise than planned: duplicate pushes, pushes after a loss, short steps."""

    def on(self, event: Event) -> list[Effect]:
        """Take an event in and say what is to be done."""


def part(push: Pushed, weight: float) -> Part:
    """A push with its weight."""
    return Part(push.grant, push.token, push.pulled_step, push.samples, weight)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a mode has to know of a run."""

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
    """Which grants are out, and what was pushed under them."""

    groups: tuple[Group, ...] = ("both",)  # the pushes that each grant brings
    given: int = 0  # numbers up to this one were used
    out: dict[int, tuple[int, tuple[Group, ...]]] = field(default_factory=dict)  # grant -> worker, pushes to come
    lost: dict[int, tuple[Group, ...]] = field(default_factory=dict)  # given up -> pushes that may still arrive
    duplicates: int = 0
    after_loss: int = 0

    def give(self, worker: int, token: int) -> Grant:
        """The next number."""
        self.given += 1
        self.out[self.given] = (worker, self.groups)
        return Grant(worker, self.given, token)

    def take(self, push: Pushed) -> bool:
        """Whether a push counts."""
        if push.group in self.lost.get(push.grant, ()):
            self.after_loss += 1
            if not (left := _without(push.group, self.lost.pop(push.grant))):
                return False
            self.lost[push.grant] = left
            return False
        worker, to_come = self.out.get(push.grant, (push.worker, ()))
        if push.group not in to_come:
            self.duplicates += 1
            return False
        if left := _without(push.group, to_come):
            self.out[push.grant] = (worker, left)
        else:
            del self.out[push.grant]
        return True

    def lose(self, worker: int) -> list[Effect]:
        """Give up what a worker holds."""
        gone = [grant for grant, (holder, _) in self.out.items() if holder == worker]
        for grant in gone:
            _, self.lost[grant] = self.out.pop(grant)
        return [Drop(grant, "lost") for grant in gone]

    @property
    def counts(self) -> dict[str, int]:
        """What came twice or too late."""
        return {"duplicate_pushes": self.duplicates, "pushes_after_loss": self.after_loss}


def _without(one: Group, groups: tuple[Group, ...]) -> tuple[Group, ...]:
    return tuple(group for group in groups if group != one)
