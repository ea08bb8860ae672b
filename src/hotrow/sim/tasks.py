"""The objects of a simulated cluster: workers, open batches, pushes in flight."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from hotrow.modes.base import Grant, Group
from hotrow.sim.leases import SimLease
from hotrow.sim.meter import Effort
from hotrow.sim.pace import Machine
from hotrow.sim.work import BatchBytes

NOTHING = BatchBytes(0, 0, 0, 0)
GROUPS: Sequence[Group] = ("both", "dense", "embedding")  # kinds of messages; caches have 3 and 4


@dataclass(slots=True, eq=False)
class Worker:
    """A worker from a start to its crash. After a restart there is another one with the same number."""

    number: int
    machine: Machine
    batches: int = 0  # begun, over all restarts
    reachable: bool = True  # gets grants and requests more
    died_s: float = inf  # work that would end at this time or later does not; an unreachable worker is not dead
    computing: bool = False
    # batches whose rows arrived and that are not computed yet: a heap by token
    here: "list[tuple[int, int, SimTask]]" = field(default_factory=list)
    free_s: float = 0.0  # end of its last activity
    replied_s: float = 0.0  # arrival of the last rows: rows that were sent later do not overtake them
    effort: Effort = field(default_factory=Effort)  # over all restarts


@dataclass(slots=True, eq=False)
class SimTask:
    """An open grant, its data, and its state."""

    grant: Grant
    lease: SimLease
    worker: Worker
    to_come: int  # pushes that have not arrived yet
    to_apply: int  # pushes that are not applied yet
    applied: Group | None = None  # the first group that was applied, where there are two
    given_up: bool = False  # pushes that have not arrived do not count; its worker may still compute
    wire: BatchBytes = NOTHING
    rows_step: int = 0  # when its rows were read
    dense_step: int = 0  # when its dense parameters were
    begun_s: float = 0.0  # computing
    computed_s: float = 0.0


class Message(Protocol):
    """Something that a worker sends to the servers, and sends again until a copy arrived."""

    size: int  # bytes
    delivered: bool
    attempts: int

    @property
    def sender(self) -> Worker:
        """The worker."""

    @property
    def fate(self) -> tuple[int, int]:
        """A number and a kind, which together occur once: random draws depend on them."""

    def copied(self, copies: int) -> None:
        """So many copies are on the way."""


@dataclass(slots=True, eq=False)
class SimPush:
    """Gradients of one group in flight, and their copies."""

    task: SimTask
    group: Group
    size: int  # bytes
    delivered: bool = False
    attempts: int = 0

    @property
    def sender(self) -> Worker:
        """The worker that computed them."""
        return self.task.worker

    @property
    def fate(self) -> tuple[int, int]:
        """By grant and group."""
        return self.task.grant.grant, GROUPS.index(self.group)

    def copied(self, copies: int) -> None:
        """A loss of all copies is noticed when no answer comes."""
