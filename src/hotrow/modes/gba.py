"""GBA: asynchronous workers, synchronous batch size.

The global batch has `parts_per_step` places, and place n has token n // parts_per_step: the step it is meant for.
Grants never wait. A step closes once parts_per_step gradients have arrived, from whichever workers, so the optimizer's
batch does not depend on the speed of workers. A gradient that is too old stays in its step with weight 0 for the dense
parameters, because its rows may still count, id by id.

A lost grant frees its place for the next grant, or tokens would drift ahead of the steps and no gradient would ever be
too late. Freed places are granted again smallest first. The worker that gets one pulls now, so the token is not below
the step.
"""

from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from hotrow.modes.aggregating import Aggregating
from hotrow.modes.base import Apply, Discipline, Effect, Grant, Grants, Pushed, RunFacts
from hotrow.modes.mode import Mode
from hotrow.sizes import Whole
from hotrow.staleness.decay import AnyDecay, Cutoff, Staleness


class GBA(Mode):
    """Global batch aggregation: asynchronous workers, and steps of the global batch.

    `decay` replaces the cut-off at `tolerance` steps.

    Example:
        >>> import hotrow as hr
        >>> [hr.GBA(tolerance=2).late.decay.weight(tau) for tau in (0, 2, 3)]
        [1.0, 1.0, 0.0]
    """

    name: Literal["gba"] = "gba"
    tolerance: Whole = Field(default=4, ge=0, le=2**31)
    decay: AnyDecay | None = None
    literal: bool = False  # tag ids before their staleness is taken, as Algorithm 2 of the paper reads

    @property
    def late(self) -> Staleness:
        return Staleness(decay=self.decay or Cutoff(tolerance=self.tolerance), literal=self.literal)

    def remarks(self, facts: RunFacts) -> list[str]:
        remarks = super().remarks(facts)
        if facts.workers != facts.parts:
            remarks.append(
                f"gba has {facts.workers:,} workers for the {facts.parts:,} local batches of a global batch: "
                "as many workers as local batches are best, with others gradients are late by themselves"
            )
        return remarks

    def start(self, facts: RunFacts) -> Discipline:
        self.check(facts)
        return GlobalBatch(
            facts.parts,
            late=self.late,
            step=facts.step,
            grants=Grants(given=facts.grants),
            samples_per_step=facts.global_batch,
            places=facts.step * facts.parts,
        )


@dataclass(slots=True)
class GlobalBatch(Aggregating):
    """The discipline of GBA."""

    places: int = 0  # given out so far
    freed: list[int] = field(default_factory=list)  # places of lost grants, in order
    held: dict[int, int] = field(default_factory=dict)  # grant -> place

    def _grant(self, worker: int) -> Grant:
        place = self.freed.pop(0) if self.freed else self.places
        self.places = max(self.places, place + 1)
        granted = self.grants.give(worker, token=max(place // self.parts_per_step, self.step))
        self.held[granted.grant] = place
        return granted

    def _lose(self, worker: int) -> list[Effect]:
        dropped = self.grants.lose(worker)
        places = [self.held.pop(grant) for grant in list(self.held) if grant not in self.grants.out]
        self.freed = sorted([*self.freed, *places])
        return dropped

    def _take(self, push: Pushed) -> bool:
        self.held.pop(push.grant, None)
        return self.grants.take(push)

    def _closed(self, step: Apply) -> list[Effect]:
        if self.draining and not self.grants.out:  # a short step leaves places that stay empty
            self.places, self.freed = self.step * self.parts_per_step, []
        return [step]
