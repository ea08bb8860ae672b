"""What moves through a simulated cluster: workers as they are now, batches under their grants, pushes on their way."""

from dataclasses import dataclass, field
from math import inf

from hotrow.modes.base import Grant, Group
from hotrow.sim.leases import SimLease
from hotrow.sim.meter import Effort
from hotrow.sim.pace import Machine
from hotrow.sim.work import BatchBytes

NOTHING = BatchBytes(0, 0, 0, 0)


@dataclass(slots=True, eq=False)
class Worker:
    """One life of a worker. After a restart there is another one with the same number."""

    number: int
    machine: Machine
    batches: int = 0  # begun, in all its lives
    reachable: bool = True  # gets grants and asks for more
    died_s: float = inf  # what would end at this time or later does not; out of reach is not dead
    computing: bool = False
    here: "list[tuple[int, int, SimTask]]" = field(
        default_factory=list
    )  # a heap by token: rows came, their turn did not
    free_s: float = 0.0  # when it last ended something
    effort: Effort = field(default_factory=Effort)  # of all its lives


@dataclass(slots=True, eq=False)
class SimTask:
    """A grant that is out, its data, and how far it got."""

    grant: Grant
    lease: SimLease
    worker: Worker | None  # None: nobody was there to take it
    to_come: int  # pushes that have not arrived yet
    to_apply: int  # and those that were not applied
    given_up: bool = False  # what is not pushed yet does not count; its worker may not know, and go on
    wire: BatchBytes = NOTHING
    rows_step: int = 0  # when its rows were read
    dense_step: int = 0  # when its dense parameters were
    begun_s: float = 0.0  # computing
    computed_s: float = 0.0


@dataclass(slots=True, eq=False)
class SimPush:
    """Gradients of one group on their way, and their copies."""

    task: SimTask
    group: Group
    size: int  # bytes
    delivered: bool = False
    attempts: int = 0
