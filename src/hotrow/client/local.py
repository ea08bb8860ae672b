"""The embedding client whose rows are in this process."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from hotrow.client.aggregate import Average, RowGradients, RowPart, Update, aggregated
from hotrow.client.base import FeatureVectors
from hotrow.client.buffers import BufferPool
from hotrow.client.local_lookup import EarlyLookup, LocalLookup, TableLookup, room_for, shared_keys
from hotrow.client.pooling import row_gradients
from hotrow.config import Table
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import ConfigError
from hotrow.spec import whole_number
from hotrow.staleness import Histogram, Staleness
from hotrow.store import Applied, RamTier, find_or_first
from hotrow.store import LookupPlan as Plan
from hotrow.store.arrays import Flags
from hotrow.store.tiers import listed, named_tables, open_tiers

__all__ = ["LocalLookup", "LocalTables"]

NO_PLANS: Mapping[str, Plan] = {}


class LocalTables:
    """Tables in the memory of this process. `samples` counts those whose gradients were applied."""

    def __init__(self, tables: Mapping[str, Table], *, threads: int | None = None, attach: bool = True) -> None:
        self.specs = named_tables(tables)
        self.threads = whole_number("threads", torch.get_num_threads() if threads is None else threads, 1, 1024)
        self.tiers: dict[str, RamTier] = open_tiers(self.specs, self.threads, attach=attach)
        self.samples = max((tier.samples for tier in self.tiers.values() if tier.attached), default=0)
        self._urgent: dict[str, tuple[Plan, Flags]] = {}  # by table: of the open batch, keys that the next one needs
        self._buffers = BufferPool()
        self.absent_ids = 0  # distinct ids without a row, summed over lookups that create none

    def lookup(
        self, batch: Batch, *, learn: bool, versions: bool = False, in_use: Mapping[str, Plan] = NO_PLANS
    ) -> LocalLookup:
        """Vectors for all ids of a batch; with `versions` the handle holds those of the rows.

        Rows of plans in use (by table) are not evicted for it.
        """
        found = self._begin(batch, learn, in_use, self.samples)
        return self._lookup_of(found, learn=learn, versions=versions)

    def look_ahead(self, batch: Batch, after: LocalLookup) -> EarlyLookup:
        """Begin the lookup of the batch after the open one, whose gradients are not applied yet.

        The open one's `apply` then updates shared rows at once, and leaves the others to `settle`.
        """
        early = self._begin(batch, True, after.plans, self.samples + after.samples)  # as when this batch is computed
        shared = shared_keys(after.plans, early.plans, self.threads)
        for table, lookup in early.tables.items():
            lookup.unread = shared[table].of_next
        self._urgent = {table: (plan, shared[table].of_open) for table, plan in after.plans.items()}
        return early

    def finish(self, early: EarlyLookup) -> LocalLookup:
        """The vectors of an early lookup; the batch before is applied, at least to the rows that both share."""
        return self._lookup_of(early, learn=True)

    def _begin(self, batch: Batch, learn: bool, in_use: Mapping[str, Plan], now: int) -> EarlyLookup:
        """The rows of a batch after `now` samples; those of plans in use are not evicted for it."""
        places = self._places(batch)
        found = {}
        for table, mine in places.items():
            parts, pinned = [batch.parts[place] for place in mine], [in_use[table]] if table in in_use else []
            found[table] = self._look_up(self.tiers[table], parts, len(batch), learn, pinned, now)
        return EarlyLookup(len(batch), places, found)

    def _lookup_of(self, found: EarlyLookup, *, learn: bool, versions: bool = False) -> LocalLookup:
        outputs: dict[int, FeatureVectors] = {}
        for table, mine in found.places.items():
            outputs.update(zip(mine, found.tables[table].outputs(learn=learn), strict=True))
        plans = found.plans
        pulled = {table: self.tiers[table].versions(plan) for table, plan in plans.items()} if versions else {}
        return LocalLookup(found.samples, tuple(outputs[place] for place in range(len(outputs))), plans, pulled)

    def gradients(self, handle: LocalLookup) -> dict[str, RowGradients]:
        """The gradients that backward left in the outputs, by table; tables that the model did not use are left out."""
        found = {}
        for table, plan in handle.plans.items():
            outputs = [output for output in handle.outputs if output.part.table == table]
            if any(output.rows.grad is not None for output in outputs):
                found[table] = row_gradients(plan, outputs, handle.versions.get(table))
        return found

    def apply(
        self,
        parts: Sequence[RowPart],
        *,
        step: int,
        samples: int,
        lr_scale: float = 1.0,
        average: Average = "batch",
        late: Staleness | None = None,
        staleness: Histogram | None = None,
    ) -> dict[str, Applied]:
        """Apply the parts of one aggregate, one update per table; returns the result by table.

        After `look_ahead` rows that the next batch does not need are left to `settle`.
        `samples` counts all samples up to and including it. `staleness` collects the staleness of the rows' gradients.
        """
        self.samples = max(self.samples, samples)
        whole = sum(part.samples for part in parts)
        applied = {}
        for table in dict.fromkeys(table for part in parts for table in part.rows):
            tier = self.tiers[table]
            update = aggregated(tier, table, parts, whole, step, average, late, staleness)
            applied[table] = self._update(table, update, step=step, samples=samples, lr_scale=lr_scale)
        self._urgent = {}
        return applied

    def _update(self, table: str, update: Update, **when: Any) -> Applied:
        """Apply an update; where the next batch is looked up already, only to rows that it needs."""
        tier = self.tiers[table]
        settings = {"rows": update.rows, "weights": update.weights, **when}
        plan, first = self._urgent.get(table, (None, None))
        if plan is None or first is None or update.keys is not plan:
            return tier.apply(update.keys, update.gradients, **settings)
        # Rows that the early lookup has made are not the ones that these gradients were computed with.
        applied = tier.apply(plan, update.gradients, only=first, as_found=True, **settings)
        tier.apply_later(plan, update.gradients, only=~first, as_found=True, **settings)
        return applied

    def settle(self) -> None:
        """Perform updates that were left for later."""
        for tier in self.tiers.values():
            tier.settle()

    @property
    def unsettled(self) -> bool:
        """Whether an update waits."""
        return any(tier.deferred.waits() for tier in self.tiers.values())

    def take_deferred(self) -> Applied:
        """The sum of what updates that were left for later have done since the last call."""
        results = (result for tier in self.tiers.values() for result in tier.deferred.take_results())
        return sum(results, Applied(0, 0, 0))

    def push(self, handle: LocalLookup, *, step: int, samples: int, lr_scale: float = 1.0) -> dict[str, Applied]:
        """Apply the gradients that backward left in the outputs, one update per table."""
        part = RowPart(self.gradients(handle), handle.samples, token=step)
        return self.apply([part], step=step, samples=samples, lr_scale=lr_scale)

    def close(self) -> None:
        """Release all rows; segments that are to be kept stay."""
        for tier in self.tiers.values():
            tier.close()

    def _places(self, batch: Batch) -> dict[str, list[int]]:
        """The parts of the batch by table."""
        places: dict[str, list[int]] = {}
        for place, part in enumerate(batch.parts):
            if part.table not in self.tiers:
                raise ConfigError(
                    f"table {part.table!r} of feature {part.features[0]!r} is missing: there are {listed(self.tiers)}"
                )
            places.setdefault(part.table, []).append(place)
        return places

    def _look_up(
        self,
        tier: RamTier,
        parts: Sequence[FeatureBlock],
        samples: int,
        learn: bool,
        pinned: Sequence[Plan],
        now: int,
    ) -> TableLookup:
        plan = tier.batch(parts[0].keys if len(parts) == 1 else np.concatenate([part.keys for part in parts]))
        found = TableLookup(tier, parts, samples, plan, room_for(self._buffers, parts, samples, plan, tier.dim))
        out = found.rows.view(-1, tier.dim)
        if learn:
            tier.find_or_init(plan, out, per=found.per, samples=now, pinned=pinned)
        else:
            self.absent_ids += find_or_first(tier, plan, out.numpy(), per=found.per).absent
        return found
