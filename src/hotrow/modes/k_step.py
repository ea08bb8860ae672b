"""KStep (Baidu's k-step Adam): dense parameters change on each worker and are merged every k steps.

Embeddings follow Sync, so all workers step together. Every step ends with `Apply("embedding", ...)`; the workers then
update their own dense parameters, unless an `Apply("dense", ...)` follows: that is a merge, which replaces the update.
Step t of the run, counted from 1, merges where t mod k = 0, as in the paper: a switch, a resumed run or a merge between
two multiples of k does not shift the others. Through a warm-up every step merges. A drain ends with a merge, so the
next mode finds one model: a dense `Apply` without parts merges workers that were updated since the last one.
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from hotrow.modes.base import Apply, Discipline, Effect, Event, Grants, Group, RunFacts
from hotrow.modes.mode import Dense, LookAheadMode
from hotrow.modes.synchronous import Synchronous
from hotrow.sizes import Whole

WARM = 50  # steps. Cold, the second moment of a few batches, frozen for k steps, makes the next ones far too long.


class KStep(LookAheadMode):
    """Merges dense parameters every `k` steps; embeddings are trained as in Sync.

    The dense optimizer is `hotrow.optim.KStepAdam`.

    Example:
        >>> import hotrow as hr
        >>> hr.KStep(k=10).dense
        'local'
    """

    name: Literal["k_step"] = "k_step"
    k: Whole = Field(default=20, ge=1, le=1_000_000)
    warmup: Whole | None = Field(default=None, ge=0)  # samples through which every step merges; None: 50 global batches

    @property
    def groups(self) -> tuple[Group, ...]:
        return ("embedding",)

    @property
    def dense(self) -> Dense:
        return "local"

    def samples_per_step(self, facts: RunFacts) -> int:
        return facts.local_batch

    def remarks(self, facts: RunFacts) -> list[str]:
        merged = f"merged every {self.k} steps" if self.k > 1 else "merged every step"
        return [f"k_step moves dense parameters by {facts.local_batch:,} samples on each worker, {merged}"]

    def warm_until(self, facts: RunFacts) -> int:
        """Steps of the run before this one merge."""
        return WARM if self.warmup is None else -(-self.warmup // facts.global_batch)

    def start(self, facts: RunFacts) -> Discipline:
        self.check(facts)
        grants = Grants(groups=self.groups, given=facts.grants)
        return Merged(
            facts.parts,
            step=facts.step,
            grants=grants,
            samples_per_step=facts.global_batch,
            ahead=self.first_look_ahead,
            k=self.k,
            warm_until=self.warm_until(facts),
        )


@dataclass(slots=True)
class Merged(Synchronous):
    """The discipline of KStep."""

    k: int = 1
    warm_until: int = 0  # steps before this one merge
    apart: int = 0  # steps since the last merge

    def on(self, event: Event) -> list[Effect]:
        effects = Synchronous.on(self, event)
        at_rest = self.draining and not self.dealt
        if at_rest and self.apart:
            self.apart = 0
            return [*effects, Apply("dense", self.step, ())]
        return effects

    def _closed(self, step: Apply) -> list[Effect]:
        moved = Apply("embedding", step.step, step.parts)
        ends = self.draining and not self.dealt
        if (step.step + 1) % self.k == 0 or step.step < self.warm_until or ends:
            self.apart = 0
            return [moved, Apply("dense", step.step, step.parts)]
        self.apart += 1
        return [moved]
