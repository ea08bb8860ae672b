"""Lookups in tables of this process: in line, or a step early in two parts.

An early lookup (t+1) is begun while a batch (t) is computed. Its ids are folded and its rows are found or made. Rows
that batch t does not have are final then: nothing changes them before batch t+1 is computed. The others are read again
when batch t is applied, and `shared_keys` has decided before that which these are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
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
    unread: Flags | None = None  # unique keys whose rows have to be read again

    @property
    def per(self) -> Per:
        """Which rows are read."""
        return "key" if is_direct(self.parts) else "unique"

    def outputs(self, *, learn: bool) -> list[FeatureVectors]:
        """The vectors of each part."""
        if self.unread is not None:
            flat = self.rows.view(-1, self.tier.dim)
            self.tier.read_rows(self.plan, flat, per=self.per, only=self.unread, settled=False)
            self.unread = None
        if is_direct(self.parts):
            return [FeatureVectors(self.parts[0], self.rows.requires_grad_(learn))]
        shares = shares_of(self.plan.inverse, self.parts)
        made = [
            spread(part, self.rows.numpy(), which, self.samples, self.tier.threads)
            for part, which in zip(self.parts, shares, strict=True)
        ]
        for output in made:
            output.rows.requires_grad_(learn)
        return made


@dataclass(frozen=True, slots=True, eq=False)
class EarlyLookup:
    """A lookup of the batch after the one that is being computed."""

    samples: int
    places: Mapping[str, Sequence[int]]  # of the outputs, by table
    tables: Mapping[str, TableLookup]

    @property
    def plans(self) -> dict[str, Plan]:
        """By table."""
        return {table: found.plan for table, found in self.tables.items()}


@dataclass(frozen=True, slots=True, eq=False)
class SharedKeys:
    """The keys that two batches share in one table: a flag for each unique key of each plan."""

    of_open: Flags  # the batch that is being computed
    of_next: Flags


def shared_keys(
    open_plans: Mapping[str, Plan], next_plans: Mapping[str, Plan], threads: int = 1
) -> dict[str, SharedKeys]:
    """By table of either batch. Only these keys are updated first and read last."""
    shared = {}
    for table in open_plans.keys() | next_plans.keys():
        mine, theirs = open_plans.get(table), next_plans.get(table)
        if mine is not None and theirs is not None:
            shared[table] = SharedKeys(*mine.shared(theirs, threads=threads))
        else:
            shared[table] = SharedKeys(_none_of(mine), _none_of(theirs))
    return shared


def _none_of(plan: Plan | None) -> Flags:
    return np.zeros(0 if plan is None else plan.unique, np.bool_)


def is_direct(parts: Sequence[FeatureBlock]) -> bool:
    """Whether the rows of a table go straight into the output, without a copy of unique rows beside it."""
    return len(parts) == 1 and parts[0].kind == "one"


def room_for(buffers: BufferPool, parts: Sequence[FeatureBlock], samples: int, plan: Plan, dim: int) -> Tensor:
    """What the rows of a table are read into."""
    if is_direct(parts):
        return buffers.take(samples, len(parts[0].features), dim)
    return torch.empty(plan.unique, dim)
