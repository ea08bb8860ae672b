"""The update of one step, applied to the rows that the next step needs first, and to the others later.

A row is updated once, by the same sum of gradients as in one call, so the parts give the bits of the whole.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from hotrow.client import LocalTables
from hotrow.client.aggregate import Average, RowPart, Update, aggregated
from hotrow.errors import InputError
from hotrow.staleness import Histogram, Staleness
from hotrow.store import Applied, LookupPlan
from hotrow.store.arrays import Flags
from hotrow.transport.messages import ApplyOrder


class PartialStep:
    """A step whose gradients are all here."""

    def __init__(
        self,
        tables: LocalTables,
        order: ApplyOrder,
        parts: Sequence[RowPart],
        *,
        average: Average = "batch",
        late: Staleness | None = None,
        staleness: Histogram | None = None,
    ) -> None:
        self.order = order
        self._tables = tables
        whole = sum(part.samples for part in parts)
        self._updates: dict[str, tuple[LookupPlan, Update]] = {}
        self._left: dict[str, Flags] = {}  # unique keys whose rows are not updated yet
        for table in dict.fromkeys(table for part in parts for table in part.rows):
            update = aggregated(tables.tiers[table], table, parts, whole, order.step, average, late, staleness)
            if not isinstance(update.keys, LookupPlan):
                raise AssertionError("gradients of a push come with the plan of their keys")
            self._updates[table] = (update.keys, update)
            self._left[table] = np.ones(update.keys.unique, np.bool_)

    def apply_to(self, plans: Mapping[str, Sequence[LookupPlan]]) -> dict[str, Applied]:
        """Update the rows of these plans, as far as the step has gradients for them and has not updated them."""
        applied = {}
        for table, (plan, _) in self._updates.items():
            wanted = self._left[table] & plan.overlap(plans.get(table, ()), threads=self._tables.threads)
            if wanted.any():
                applied[table] = self._apply(table, wanted)
        return applied

    def apply_rest(self, order: ApplyOrder) -> dict[str, Applied]:
        """Update the other rows: the step was ordered. InputError where it is not the step that was prepared."""
        if _promised(order) != _promised(self.order):
            raise InputError(
                f"step {order.step}: was prepared as {_promised(self.order)} and is ordered as {_promised(order)}: "
                "its rows are updated in part, so load the last checkpoint"
            )
        return {table: self._apply(table, self._left[table]) for table in self._updates}

    def _apply(self, table: str, only: Flags) -> Applied:
        plan, update = self._updates[table]
        applied = self._tables.tiers[table].apply(
            plan,
            update.gradients,
            step=self.order.step,
            samples=self.order.samples,
            rows=update.rows,
            weights=update.weights,
            lr_scale=self.order.lr_scale,
            only=only,
        )
        self._left[table] = self._left[table] & ~only
        return applied


def _promised(order: ApplyOrder) -> tuple[object, ...]:
    return order.step, order.samples, order.lr_scale, *((part.grant, part.samples) for part in order.parts)
