"""Parameters, and pushes parked under their grant until a discipline returns `Apply`: values in, values out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hotrow.client import LocalTables
from hotrow.client.aggregate import I64, Average, RowPart
from hotrow.modes.base import Apply
from hotrow.server.dense import DenseParameters
from hotrow.staleness import Histogram, IdCounts, WeightCorrection
from hotrow.worker.core import Gradients


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result of one or several `Apply`."""

    refused: int = 0  # rows whose gradient was not finite
    weightless: int = 0  # rows whose gradients all weighed 0
    ids: IdCounts = field(default_factory=IdCounts)
    undone: Mapping[str, int] = field(
        default_factory=dict
    )  # pushes that were not applied, by reason, and counts of caches
    weights: WeightCorrection = field(default_factory=WeightCorrection)  # of dense gradients


NOTHING_NEW = ApplyResult()  # of servers that have not reported since the last result


class ParameterServer(DenseParameters):
    """The dense parameters of a model with their optimizer, and its tables."""

    def __init__(
        self,
        model: nn.Module,
        tables: LocalTables,
        optimizer: torch.optim.Optimizer | None,
        *,
        average: Average = "batch",
        clip: float | None = None,
    ) -> None:
        super().__init__(model.parameters(), model.buffers(), optimizer, clip=clip)
        self.model = model
        self.tables = tables
        self.average: Average = average
        self._parked: dict[int, Gradients] = {}

    @property
    def changes_when_computed(self) -> bool:
        """Pushes are parked."""
        return False

    def park(self, grant: int, gradients: Gradients, worker: int = 0) -> None:
        """Hold a push until its `Apply`. The worker does not matter here."""
        self._parked[grant] = gradients

    def discard(self, grant: int) -> None:
        """Drop a push that will not be applied."""
        self._parked.pop(grant, None)

    def parks(self, grant: int) -> bool:
        """Whether a push is parked."""
        return grant in self._parked

    def lose_rows(self, grant: int, lost: Callable[[I64], NDArray[np.bool_]]) -> bool:
        """Forget the gradients of some keys of a parked push; returns whether it had any. For the simulator."""
        push = self._parked.get(grant)
        if push is None or not push.rows:
            return False
        pushed = {table: push.row_gradients(table) for table in push.rows}
        gone = {table: lost(given.keys) for table, given in pushed.items()}
        push.rows = {
            table: given.without(gone[table], self.tables.tiers[table]) if gone[table].any() else given
            for table, given in pushed.items()
        }
        return any(bool(each.any()) for each in gone.values())

    def take_dense(self, grant: int) -> Gradients:
        """A push whose rows are applied, for a caller that applies the dense gradients."""
        return self._parked.pop(grant)

    def settle(self) -> None:
        """No effect: what the next batch needs is applied at once."""

    def rest(self) -> ApplyResult:
        """Perform updates of rows that were left for later."""
        self.tables.settle()
        left = self.tables.take_deferred()
        return ApplyResult(left.refused, left.weightless, undone=self.tables.take_counts())

    @property
    def parked(self) -> int:
        """The number of parked pushes."""
        return len(self._parked)

    def apply(self, effect: Apply, *, samples: int, lr_scale: float = 1.0) -> ApplyResult:
        """Perform a step. `samples` counts all samples up to and including it."""
        pushes = [(part, self._parked[part.grant]) for part in effect.parts]
        changed = ApplyResult()
        if effect.group != "dense":
            alone = effect.group == "embedding"  # rows that were looked up before the step of their token
            rows = [
                RowPart(
                    push.rows, push.samples, part.pulled_step if alone else part.token, part.weight if alone else 1.0
                )
                for part, push in pushes
            ]
            late = Histogram()
            updated = self.tables.apply(
                rows,
                step=effect.step,
                samples=samples,
                lr_scale=lr_scale,
                average=self.average,
                late=self.late,
                staleness=late,
            )
            applied = [*updated.values(), self.tables.take_deferred()]
            changed = ApplyResult(
                sum(each.refused for each in applied),
                sum(each.weightless for each in applied),
                IdCounts.of(late, self.late),
            )
        if effect.group != "embedding":
            dense, buffers = [push.dense for _, push in pushes], [push.buffers for _, push in pushes]
            spans = self.dense_step(effect, dense, buffers, samples, lr_scale)
            if spans is not None:
                given = [part.weight for part in effect.parts]
                changed = replace(changed, weights=WeightCorrection.of(zip(given, spans, strict=True)))
        for part, push in pushes:
            self._finish(part.grant, push, effect.group)
        return changed

    def pull_into(self, replica: nn.Module) -> None:
        """Copy the parameters into a worker's copy of the model."""
        with torch.no_grad():
            for mine, theirs in zip(self.model.parameters(), replica.parameters(), strict=True):
                theirs.copy_(mine)
            for held, copied in zip(self.model.buffers(), replica.buffers(), strict=True):
                copied.copy_(held)

    def _finish(self, grant: int, push: Gradients, group: str) -> None:
        """Drop a push once both its halves are applied: rows and dense parameters may come in two `Apply`."""
        push.halves += 2 if group == "both" else 1
        if push.halves == 2:
            del self._parked[grant]
        elif group == "embedding":
            push.rows = {}
        else:
            push.dense = []
