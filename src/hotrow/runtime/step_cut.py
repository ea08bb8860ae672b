"""What becomes of a step that a loss has cut, in modes whose trainers end every step together: pure.

Trainers differ by one step at most: some have ended an all-reduce, others failed in it. They are ahead of the driver by
one step, or by several where they need not wait for its orders (Hybrid): replies wait until the gradients of rows are
on the shards, the all-reduce does not. Rows of a step are updated by an order of the driver, or in part before it,
where the next step has looked them up early.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hotrow.errors import HotrowError
from hotrow.runtime.losses import SavedRows
from hotrow.types import RoleId


@dataclass(frozen=True, slots=True)
class CutDecision:
    """How the run goes on."""

    sources: tuple[RoleId, ...]  # trainers with the dense state that all go on with; none: `restored`, or the driver
    closes: int  # steps from the open one on that count: rows are updated by what is there; 0: it is dealt again
    dense_steps_lost: int  # steps whose rows are updated and whose dense update no survivor has
    replica_steps_lost: int = 0  # in KStep: steps of lost copies since the last merge
    behind: tuple[RoleId, ...] = ()  # trainers that are a step behind the sources, which may be lost meanwhile
    restored: SavedRows | None = None  # the checkpoint whose dense state all go on with; None: the driver has it


def decide_cut(step: int, reached: Mapping[RoleId, int], *, begun: bool, ahead: int = 1) -> CutDecision:
    """`step`: the open one of the driver; `reached`: by trainer, its dense steps; `begun`: a shard updates its rows.

    `ahead`: steps that trainers may have ended before the driver.
    """
    furthest = max(reached.values())
    if not step - 1 <= furthest <= step + ahead:
        raise HotrowError(f"trainers are at step {furthest}, and step {step} is open: load the last checkpoint")
    closes = max(furthest - step, int(begun))
    sources = tuple(name for name, there in reached.items() if there == furthest)
    behind = tuple(name for name, there in reached.items() if there == furthest - 1)
    return CutDecision(sources, closes, step + closes - furthest, behind=behind)


def decide_cut_without_trainers(step: int, saved: SavedRows, *, begun: bool) -> CutDecision:
    """No trainer is left: dense parameters are those of a checkpoint, rows stay, and the step counter does too."""
    return CutDecision((), int(begun), max(0, step + begun - saved.step), restored=saved)
