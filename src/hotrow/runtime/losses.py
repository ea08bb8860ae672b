"""Roles that ended while a run needed them: which of them it survives, and what is told about each."""

from dataclasses import dataclass

from hotrow.errors import HotrowError
from hotrow.types import RoleId, RoleKind

SURVIVED: frozenset[RoleKind] = frozenset({"trainer", "embedding worker", "loader"})  # without a restart
QUIET_STEPS = 100  # after so many steps without a loss the next one is the first in a row


class RoleLost(HotrowError):
    """A role of the cluster ended while it was needed."""


class WorkersLost(HotrowError):
    """Workers were lost while a mode began on them: it can begin on the others."""


@dataclass(frozen=True, slots=True)
class SavedRows:
    """The last checkpoint of a run, for what is lost."""

    where: str
    step: int
    samples: int = 0


def is_gone(name: RoleId, why: str) -> RoleLost:
    """The error of a loss that ends the run."""
    return RoleLost(f"{name} is gone: {why}")


@dataclass(frozen=True, slots=True)
class RoleLoss:
    """A trainer, an embedding worker or a loader that ended, or a shard that was started again."""

    name: RoleId
    why: str
    batches: int = 0  # whose ids an embedding worker held
    scores: int = 0  # samples whose scores a trainer had, and no report has
    changed_rows: int = 0  # cached by a trainer or an embedding worker, with changes that no shard knew
    restored: bool = False  # the rows of a shard are those of the last checkpoint
    steps: int = 0  # since that checkpoint: their updates of the shard's rows are lost
    dense_restored: bool = False  # the dense parameters of a shard are those of the last rest
    seconds: float = 0.0  # until a shard answered again

    @property
    def counts(self) -> dict[str, int]:
        """What the statistics of a run count."""
        if self.name.kind == "shard":
            return {"shards_lost": 1, "shard_steps_lost": self.steps}
        if self.name.kind == "trainer":
            return {"trainers_lost": 1, "scores_lost": self.scores, "cached_rows_lost": self.changed_rows}
        if self.name.kind == "loader":
            return {"loaders_lost": 1}
        lost = {"embedding_workers_lost": 1, "buffered_batches_lost": self.batches}
        return lost | {"cached_rows_lost": self.changed_rows}

    @property
    def sentence(self) -> str:
        """What was lost with the role."""
        lost = []
        if self.name.kind == "loader":
            lost.append("its batches that are not done are read again")
        if self.name.kind == "shard":
            again = f"it was started again after {self.seconds:.1f} s"
            rows = f"has its rows of the last checkpoint, without the updates of {self.steps:,} steps"
            dense = "; its dense parameters are those of the last rest" if self.dense_restored else ""
            lost.append(f"{again} and {rows if self.restored else 'has its rows'}{dense}")
        if self.batches:
            lost.append(f"it held the ids of {self.batches:,} batches, which are dealt again")
        if self.scores:
            lost.append(f"the scores of {self.scores:,} samples are missing in the next report")
        if self.changed_rows:
            lost.append(f"the changes of {self.changed_rows:,} cached rows since their last write-back are lost")
        return ": ".join([f"{self.name} is gone: {self.why}", *lost])
