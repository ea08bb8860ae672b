"""A number of trainers that changes with the cluster: what to do now, pure.

Ray is asked for one place at a time. A place that waits for resources is a demand that an autoscaler sees, and costs
training nothing. Trainers on a node that is being drained leave before it ends; one trainer stays in any case.
"""

from dataclasses import dataclass

from hotrow.types import RoleId


@dataclass(frozen=True, slots=True)
class TrainerSupply:
    """What a run has of trainers, and what it may have."""

    most: int
    present: int  # trainers that take part, without those that leave already
    draining: tuple[RoleId, ...] = ()  # of these, on nodes that are being drained
    requested: bool = False  # a place for one more is requested from Ray, or a trainer starts in it
    joinable: bool = True  # the mode takes one more
    losses: int = 0  # in a row, on nodes that are alive
    losses_most: int = 0


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    """The next action. Neither leaves nor a request: wait."""

    leave: tuple[RoleId, ...] = ()
    request: bool = False  # ask Ray for a place
    withdraw: bool = False  # no longer ask


def decide_scale(supply: TrainerSupply) -> ScaleDecision:
    """A trainer on a draining node counts as gone, also where it has to stay as the last one."""
    leave = supply.draining[: max(0, supply.present - 1)]
    staying = supply.present - len(supply.draining)
    wanted = staying < supply.most and supply.joinable and supply.losses <= supply.losses_most
    return ScaleDecision(leave, request=wanted and not supply.requested, withdraw=supply.requested and not wanted)
