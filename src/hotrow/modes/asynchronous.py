"""Async: every gradient is applied on arrival. Workers never wait, and a step holds one local batch.

The fastest mode, and the one that needs hyper-parameters of its own: its batch is smaller than the global one, and
gradients are as many steps late as there are other workers.
"""

from typing import Literal

from hotrow.modes.aggregating import Aggregating
from hotrow.modes.base import Discipline, Grants, RunFacts
from hotrow.modes.mode import Mode
from hotrow.staleness.decay import Staleness


class Async(Mode):
    """Applies each gradient on arrival; `staleness` weighs late ones.

    Example:
        >>> import hotrow as hr
        >>> hr.Async(staleness=hr.Staleness(decay=hr.Cutoff(tolerance=8))).late.decay.tolerance
        8
    """

    name: Literal["async"] = "async"
    staleness: Staleness | None = None

    @property
    def late(self) -> Staleness | None:
        return self.staleness

    def on_arrival(self, facts: RunFacts, samples: int) -> float | None:
        return 1.0 if self.late is None else None

    def samples_per_step(self, facts: RunFacts) -> int:
        return facts.local_batch

    def check(self, facts: RunFacts) -> None:
        """Any local batch will do."""

    def start(self, facts: RunFacts) -> Discipline:
        return Aggregating(
            1,
            late=self.late,
            step=facts.step,
            grants=Grants(given=facts.grants),
            samples_per_step=self.samples_per_step(facts),
        )
