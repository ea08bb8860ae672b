"""Lookups in tables of this process: in line, or a step early in two parts.

An early lookup (of step t+1) is begun while step t is computed. Its ids are folded and its rows are found or made. Rows
that step t does not have are final then: nothing changes them before step t+1 is computed. The others are read again
when step t is applied (`open_step`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hotrow.client.base import FeatureVectors
from hotrow.client.buffers import BufferPool
from hotrow.client.pooling import shares_of, spread
from hotrow.data.batch import FeatureBlock
from hotrow.store import LookupPlan as Plan
from hotrow.store import RamTier
from hotrow.store.arrays import Flags
from hotrow.store.ram import Per

U32 = NDArray[np.uint32]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class LocalLookup:
    """One lookup. The plans of its tables also serve the push: duplicates are folded and rows are found already."""

    samples: int
    outputs: tuple[FeatureVectors, ...]
    plans: dict[str, Plan]  # by table
    versions: dict[str, U32] = field(default_factory=dict)  # by table, of each key, where they are needed


@dataclass(slots=True, eq=False)
class TableLookup:
    """The rows of one table for one batch: found, and not yet spread over the outputs."""

    tier: RamTier
    parts: Sequence[FeatureBlock]
    samples: int
    plan: Plan
    rows: Tensor  # by position where the table has one part with one id each, else by unique key
    inverse: U32 | None  # of the plan, in the second case
    unread: Flags | None = None  # unique keys whose rows have to be read again

    @property
    def per(self) -> Per:
        """Which rows are read."""
        return "key" if self.inverse is None else "unique"

    def outputs(self, *, learn: bool) -> list[FeatureVectors]:
        """The vectors of each part."""
        if self.unread is not None:
            flat = self.rows.view(-1, self.tier.dim)
            # A later batch of the step may have made a row that this one did not get.
            self.tier.read_rows(self.plan, flat, per=self.per, only=self.unread, as_found=True, settled=False)
            self.unread = None
        if self.inverse is None:
            return [FeatureVectors(self.parts[0], self.rows.requires_grad_(learn))]
        shares = shares_of(self.inverse, self.parts)
        made = [
            spread(part, self.rows.numpy(), which, self.samples, self.tier.threads)
            for part, which in zip(self.parts, shares, strict=True)
        ]
        for output in made:
            output.rows.requires_grad_(learn)
        return made


@dataclass(frozen=True, slots=True, eq=False)
class BatchKeys:
    """The keys of a batch, by table, and their plans."""

    samples: int
    keys: Mapping[str, I64]
    plans: Mapping[str, Plan]


@dataclass(frozen=True, slots=True, eq=False)
class BegunLookup:
    """A lookup whose rows are found or made. `LocalTables.finish` returns its vectors."""

    keys: BatchKeys
    places: Mapping[str, Sequence[int]]  # of the outputs, by table
    tables: Mapping[str, TableLookup]


def plans_by_table(batches: Iterable[BatchKeys]) -> dict[str, list[Plan]]:
    """The plans of several batches."""
    found: dict[str, list[Plan]] = {}
    for batch in batches:
        for table, plan in batch.plans.items():
            found.setdefault(table, []).append(plan)
    return found


def is_direct(parts: Sequence[FeatureBlock]) -> bool:
    """Whether the rows of a table go straight into the output, without a copy of unique rows beside it."""
    return len(parts) == 1 and parts[0].kind == "one"


def table_lookup(
    tier: RamTier, parts: Sequence[FeatureBlock], samples: int, plan: Plan, buffers: BufferPool
) -> TableLookup:
    """A lookup with room for its rows."""
    if is_direct(parts):
        return TableLookup(tier, parts, samples, plan, buffers.take(samples, len(parts[0].features), tier.dim), None)
    inverse = plan.read_inverse(buffers.take_integers(len(plan)))
    return TableLookup(tier, parts, samples, plan, buffers.take_rows(plan.unique, tier.dim), inverse)
