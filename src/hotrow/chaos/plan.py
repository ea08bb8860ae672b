"""Which faults are injected, and when: a function of the seed, the time and the roles.

The same seed gives the same plan. What a fault meets depends on the timing of processes, which no seed repeats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from hotrow.types import RoleKind

FaultKind = Literal["kill", "delay", "cut"]

KILLED: tuple[RoleKind, ...] = ("trainer", "embedding worker", "loader", "shard")
LINKED: tuple[RoleKind, ...] = ("trainer", "embedding worker", "shard")  # connections to them are delayed and cut

FIRST_S = 1.0  # before the first fault
GAP_S = (0.7, 3.0)  # between two faults
KILL_WEIGHT: dict[RoleKind, int] = {"trainer": 3}  # others: 1
DELAY_S = (0.01, 0.2)
DELAYED_S = (0.5, 3.0)  # how long a connection is slow
CUT_S = (0.2, 2.5)  # how long there is none: far below the time after which a peer counts as lost


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault. `draw`, from 0 to 1, decides which of the roles of its kind that live then; else which trainer."""

    at_s: float
    kind: FaultKind
    role: RoleKind
    draw: float
    lasts_s: float = 0.0  # of a connection
    delay_s: float = 0.0


def plan_faults(
    seed: int, seconds: float, killed: Sequence[RoleKind] = KILLED, linked: Sequence[RoleKind] = LINKED
) -> list[PlannedFault]:
    """Faults over some seconds, in order. They come from a shuffled deck, so none is missing for long."""
    chance = Random(seed)
    planned: list[PlannedFault] = []
    deck: list[tuple[FaultKind, RoleKind]] = []
    at_s = FIRST_S
    while at_s < seconds:
        if not deck:
            deck = [("kill", role) for role in killed for _ in range(KILL_WEIGHT.get(role, 1))]
            deck += [("delay", chance.choice(linked)), ("cut", chance.choice(linked))]
            chance.shuffle(deck)
        planned.append(_fault(chance, at_s, *deck.pop()))
        at_s += chance.uniform(*GAP_S)
    return planned


def _fault(chance: Random, at_s: float, kind: FaultKind, role: RoleKind) -> PlannedFault:
    """The draws are the same in number for every kind, so that a change of one fault does not change the next."""
    draw, length, delay = chance.random(), chance.random(), chance.random()
    if kind == "kill":
        return PlannedFault(at_s, kind, role, draw)
    if kind == "cut":
        return PlannedFault(at_s, kind, role, draw, lasts_s=_between(CUT_S, length))
    return PlannedFault(at_s, kind, role, draw, lasts_s=_between(DELAYED_S, length), delay_s=_between(DELAY_S, delay))


def _between(bounds: tuple[float, float], share: float) -> float:
    low, high = bounds
    return low + (high - low) * share
