"""The embedding client whose rows are in this process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotrow.client.aggregate import Average, RowGradients, RowPart, aggregated
from hotrow.client.base import FeatureVectors
from hotrow.client.pooling import row_gradients, shares_of, spread
from hotrow.config import Table
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import ConfigError
from hotrow.spec import whole_number
from hotrow.staleness import Histogram, Staleness
from hotrow.store import Applied, RamTier, find_or_first
from hotrow.store import LookupPlan as Plan
from hotrow.store.tiers import listed, named_tables, open_tiers

U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class LocalLookup:
    """One lookup. The plans of its tables also serve the push: duplicates are folded and rows are found already."""

    samples: int
    outputs: tuple[FeatureVectors, ...]
    plans: dict[str, Plan]  # by table
    versions: dict[str, U32] = field(default_factory=dict)  # by table, of each key, where they are needed


class LocalTables:
    """Tables in the memory of this process. `samples` counts those whose gradients were applied."""

    def __init__(self, tables: Mapping[str, Table], *, threads: int | None = None, attach: bool = True) -> None:
        self.specs = named_tables(tables)
        self.threads = whole_number("threads", torch.get_num_threads() if threads is None else threads, 1, 1024)
        self.tiers: dict[str, RamTier] = open_tiers(self.specs, self.threads, attach=attach)
        self.samples = max((tier.samples for tier in self.tiers.values() if tier.attached), default=0)
        self.absent_ids = 0  # distinct ids without a row, summed over lookups that create none

    def lookup(self, batch: Batch, *, learn: bool, versions: bool = False) -> LocalLookup:
        """Vectors for all ids of a batch; with `versions` the handle holds those of the rows."""
        outputs: dict[int, FeatureVectors] = {}
        plans: dict[str, Plan] = {}
        for table, places in self._places(batch).items():
            parts = [batch.parts[place] for place in places]
            plans[table], found = self._look_up(self.tiers[table], parts, len(batch), learn)
            outputs.update(zip(places, found, strict=True))
        pulled = {table: self.tiers[table].versions(plan) for table, plan in plans.items()} if versions else {}
        return LocalLookup(len(batch), tuple(outputs[place] for place in range(len(batch.parts))), plans, pulled)

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

        `samples` counts all samples up to and including it. `staleness` collects the staleness of the rows' gradients.
        """
        self.samples = max(self.samples, samples)
        whole = sum(part.samples for part in parts)
        applied = {}
        for table in dict.fromkeys(table for part in parts for table in part.rows):
            tier = self.tiers[table]
            update = aggregated(tier, table, parts, whole, step, average, late, staleness)
            applied[table] = tier.apply(
                update.keys,
                update.gradients,
                step=step,
                samples=samples,
                rows=update.rows,
                weights=update.weights,
                lr_scale=lr_scale,
            )
        return applied

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
        self, tier: RamTier, parts: Sequence[FeatureBlock], samples: int, learn: bool
    ) -> tuple[Plan, list[FeatureVectors]]:
        if len(parts) == 1 and parts[0].kind == "one":  # straight into the output, no copy of unique rows beside it
            part = parts[0]
            rows = torch.empty(samples, len(part.features), tier.dim)
            plan = self._read(tier, part.keys, rows.view(-1, tier.dim), learn, unique=False)
            return plan, [FeatureVectors(part, rows.requires_grad_(learn))]
        plan = tier.batch(np.concatenate([part.keys for part in parts]))
        rows = torch.empty(plan.unique, tier.dim)
        self._read(tier, plan, rows, learn, unique=True)
        outputs = [
            spread(part, rows.numpy(), which, samples, self.threads)
            for part, which in zip(parts, shares_of(plan.inverse, parts), strict=True)
        ]
        for output in outputs:
            output.rows.requires_grad_(learn)
        return plan, outputs

    def _read(self, tier: RamTier, keys: I64 | Plan, out: Tensor, learn: bool, *, unique: bool) -> Plan:
        if learn:
            return tier.find_or_init(keys, out, per="unique" if unique else "key", samples=self.samples)
        plan = find_or_first(tier, keys, out.numpy(), per="unique" if unique else "key")
        self.absent_ids += plan.absent
        return plan
