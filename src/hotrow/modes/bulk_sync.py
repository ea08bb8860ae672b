"""BulkSync (BSP in the GBA paper): a step is the mean of `bulk` gradients of any version. Workers never wait."""

from typing import Literal

from pydantic import Field

from hotrow.modes.aggregating import Aggregating
from hotrow.modes.base import Discipline, Grants, RunFacts
from hotrow.modes.mode import Mode
from hotrow.sizes import Whole
from hotrow.staleness.decay import Staleness


class BulkSync(Mode):
    """Applies `bulk` gradients at a time, from whichever workers.

    Example:
        >>> import hotrow as hr
        >>> hr.BulkSync(bulk=10).samples_per_step(hr.modes.RunFacts(workers=4, local_batch=32, global_batch=128))
        320
    """

    name: Literal["bulk_sync"] = "bulk_sync"
    bulk: Whole = Field(default=20, ge=1, le=1_000_000)
    staleness: Staleness | None = None

    @property
    def late(self) -> Staleness | None:
        return self.staleness

    def samples_per_step(self, facts: RunFacts) -> int:
        return self.bulk * facts.local_batch

    def check(self, facts: RunFacts) -> None:
        """Any local batch will do."""

    def start(self, facts: RunFacts) -> Discipline:
        return Aggregating(
            self.bulk,
            late=self.late,
            step=facts.step,
            grants=Grants(given=facts.grants),
            samples_per_step=self.samples_per_step(facts),
        )
