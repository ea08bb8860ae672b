"""What becomes of a step that a loss has cut, in modes whose trainers end every step together: pure.

Trainers differ by one step at most: some have ended an all-reduce, others failed in it. Rows of a step are updated by
an order of the driver, or in part before it, where the next step has looked them up early.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hotrow.errors import HotrowError
from hotrow.runtime.losses import SavedRows
from hotrow.types import RoleId


@dataclass(frozen=True, slots=True)
class CutDecision:
    """How the run goes on."""

    sources: tuple[RoleId, ...]  # trainers with the dense state that all go on with; none: `restored` has it
    closes: bool  # the open step counts: its rows are updated by what is there; else it is dealt again
    dense_steps_lost: int  # steps whose rows are updated and whose dense update no survivor has
    replica_steps_lost: int = 0  # in KStep: steps of lost copies since the last merge
    restored: SavedRows | None = None  # the checkpoint whose dense state all go on with


def decide_cut(step: int, reached: Mapping[RoleId, int], *, begun: bool) -> CutDecision:
    """`step`: the open one of the driver; `reached`: by trainer, its dense steps; `begun`: a shard updates its rows."""
    furthest = max(reached.values())
    if not step - 1 <= furthest <= step + 1:
        raise HotrowError(f"trainers are at step {furthest}, and step {step} is open: load the last checkpoint")
    closes = furthest > step or begun
    sources = tuple(name for name, there in reached.items() if there == furthest)
    return CutDecision(sources, closes, step + closes - furthest)


def decide_cut_without_trainers(step: int, saved: SavedRows, *, begun: bool) -> CutDecision:
    """No trainer is left: dense parameters are those of a checkpoint, rows stay, and the step counter does too."""
    return CutDecision((), begun, max(0, step + begun - saved.step), restored=saved)
