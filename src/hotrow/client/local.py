"""The embedding client whose rows are in this process."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from hotrow.client.aggregate import I64, Average, RowPart, TableGradients, Update, aggregated
from hotrow.client.base import FeatureVectors
from hotrow.client.buffers import BufferPool
from hotrow.client.local_lookup import BatchKeys, BegunLookup, LocalLookup, TableLookup, table_lookup
from hotrow.client.pooling import row_gradients
from hotrow.client.split_step import SplitStep, StepKeys
from hotrow.config import Table
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import ConfigError
from hotrow.spec import whole_number
from hotrow.staleness import Histogram, Staleness
from hotrow.store import Applied, RamTier, find_or_first
from hotrow.store import LookupPlan as Plan
from hotrow.store.pending_load import PendingLoad
from hotrow.store.tiered import TieredTier
from hotrow.store.tiers import listed, named_tables, open_tiers

__all__ = ["LocalLookup", "LocalTables"]

Plans = Mapping[str, Sequence[Plan]]  # by table
NO_PLANS: Plans = {}


class LocalTables:
    """Tables in the memory of this process. `samples` counts those whose gradients were applied."""

    def __init__(self, tables: Mapping[str, Table], *, threads: int | None = None, attach: bool = True) -> None:
        self.specs = named_tables(tables)
        self.threads = whole_number("threads", torch.get_num_threads() if threads is None else threads, 1, 1024)
        self.tiers: dict[str, RamTier] = open_tiers(self.specs, self.threads, attach=attach)
        self.samples = max((tier.samples for tier in self.tiers.values() if tier.attached), default=0)
        self._open: SplitStep | None = None  # the step before those that are looked up early
        self._buffers = BufferPool()
        self.absent_ids = 0  # distinct ids without a row, summed over lookups that create none

    def lookup(self, batch: Batch, *, learn: bool, versions: bool = False, worker: int = 0) -> LocalLookup:
        """Vectors for all ids of a batch; with `versions` the handle holds those of the rows.

        Which worker looks up matters to tables with a cache alone.
        """
        return self.finish(self._begin(batch, learn, NO_PLANS, self.samples), learn=learn, versions=versions)

    def begin(self, batch: Batch, in_use: Plans = NO_PLANS) -> BegunLookup:
        """Begin the lookup of a batch of the open step. Rows of plans in use are not evicted for it."""
        return self._begin(batch, True, in_use, self.samples)

    @property
    def loads_ahead(self) -> bool:
        """Whether rows of a table may be on disk."""
        return any(isinstance(tier, TieredTier) for tier in self.tiers.values())

    def start_load(self, batch: Batch) -> Callable[[], None]:
        """Read the rows of a batch that will be looked up soon from disk; the returned call puts them into memory.

        Each in any thread: rows of one batch are put while those of the next are read. They stay in memory, where those
        of later batches would displace them, as long as the returned call is held.
        """
        loads: list[tuple[TieredTier, PendingLoad]] = []
        for table, mine in self._places(batch).items():
            tier = self.tiers[table]
            if isinstance(tier, TieredTier):
                loads.append((tier, tier.start_load(np.concatenate([batch.parts[place].keys for place in mine]))))

        def put() -> None:
            for tier, load in loads:
                tier.finish_load(load)

        return put

    def open_step(self, batches: Sequence[BatchKeys]) -> None:
        """The batches of the open step are all looked up, and `look_ahead` follows.

        The step's `apply` then updates rows that both steps have at once, and leaves the others to `settle`.
        """
        self._open = SplitStep(self.tiers, batches, self._buffers, self.threads)

    def look_ahead(self, batch: Batch, in_use: Plans = NO_PLANS) -> BegunLookup:
        """Begin the lookup of a batch of the step after the open one, whose gradients are not applied yet."""
        if self._open is None:
            raise AssertionError("look_ahead follows open_step")
        begun = self._begin(batch, True, in_use, self.samples + self._open.samples)  # as when it is computed
        self._open.need(begun)
        return begun

    def finish(self, begun: BegunLookup, *, learn: bool = True, versions: bool = False) -> LocalLookup:
        """The vectors of a lookup; the step before is applied, at least to the rows that both have."""
        outputs: dict[int, FeatureVectors] = {}
        for table, mine in begun.places.items():
            outputs.update(zip(mine, begun.tables[table].outputs(learn=learn), strict=True))
        plans = dict(begun.keys.plans)
        pulled = {table: self.tiers[table].versions(plan) for table, plan in plans.items()} if versions else {}
        return LocalLookup(begun.keys.samples, tuple(outputs[place] for place in range(len(outputs))), plans, pulled)

    def _begin(self, batch: Batch, learn: bool, in_use: Plans, now: int) -> BegunLookup:
        """The rows of a batch after `now` samples; those of plans in use are not evicted for it."""
        places = self._places(batch)
        found, keys = {}, {}
        for table, mine in places.items():
            parts = [batch.parts[place] for place in mine]
            keys[table] = self._buffers.join([part.keys for part in parts])
            tier, pinned = self.tiers[table], in_use.get(table, ())
            found[table] = self._look_up(tier, parts, keys[table], len(batch), learn, pinned, now)
        plans = {table: lookup.plan for table, lookup in found.items()}
        return BegunLookup(BatchKeys(len(batch), keys, plans), places, found)

    def gradients(self, handle: LocalLookup) -> dict[str, TableGradients]:
        """The gradients that backward left in the outputs, by table; tables that the model did not use are left out."""
        found: dict[str, TableGradients] = {}
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

        After `look_ahead` rows that the next step does not need are left to `settle`.
        `samples` counts all samples up to and including it. `staleness` collects the staleness of the rows' gradients.
        """
        self.samples = max(self.samples, samples)
        whole = sum(part.samples for part in parts)
        opened, self._open = self._open, None
        applied = {}
        for table in dict.fromkeys(table for part in parts for table in part.rows):
            tier = self.tiers[table]
            given = [part.row_gradients(table).plan for part in parts if table in part.rows]
            split = None if opened is None else opened.keys_of(table, given)
            joint = split.plan if split is not None and len(given) == len(split.batches) else None
            update = aggregated(tier, table, parts, whole, step, average, late, staleness, joint, self._buffers)
            when = {"step": step, "samples": samples, "lr_scale": lr_scale}
            applied[table] = _apply(tier, update, when) if split is None else _split(tier, update, given, split, when)
        return applied

    def settle(self) -> None:
        """Perform updates that were left for later."""
        for tier in self.tiers.values():
            tier.settle()

    @property
    def in_gpu_memory(self) -> tuple[str, ...]:
        """Tables whose rows are used in GPU memory."""
        return ()

    def flush(self) -> None:
        """Have all changes of rows in the tiers, which is where they are."""

    def release_rows(self) -> None:
        """The tiers are about to get other rows; none is anywhere else."""

    @property
    def unsettled(self) -> bool:
        """Whether an update waits."""
        return any(tier.deferred.waits() for tier in self.tiers.values())

    def take_deferred(self) -> Applied:
        """The sum of what updates that were left for later have done since the last call."""
        results = (result for tier in self.tiers.values() for result in tier.deferred.take_results())
        return sum(results, Applied(0, 0, 0))

    def take_counts(self) -> dict[str, int]:
        """What caches counted since the last call; there are none."""
        return {}

    def push(self, handle: LocalLookup, *, step: int, samples: int, lr_scale: float = 1.0) -> dict[str, Applied]:
        """Apply the gradients that backward left in the outputs, one update per table."""
        part = RowPart(self.gradients(handle), handle.samples, token=step)
        return self.apply([part], step=step, samples=samples, lr_scale=lr_scale)

    def close(self, *, leave: bool = False) -> None:
        """Release all rows; segments that are to be kept stay, with `leave` all of them."""
        with ExitStack() as stack:  # an error of one close does not keep the others open
            for tier in self.tiers.values():
                stack.callback(tier.close, leave=leave)

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
        keys: I64,
        samples: int,
        learn: bool,
        pinned: Sequence[Plan],
        now: int,
    ) -> TableLookup:
        plan = tier.batch(keys)
        found = table_lookup(tier, parts, samples, plan, self._buffers)
        out = found.rows.view(-1, tier.dim)
        if learn:
            tier.find_or_init(plan, out, per=found.per, samples=now, pinned=pinned)
        else:
            self.absent_ids += find_or_first(tier, plan, out.numpy(), per=found.per).absent
        return found


def _apply(tier: RamTier, update: Update, settings: Mapping[str, Any]) -> Applied:
    return tier.apply(update.keys, update.gradients, rows=update.rows, weights=update.weights, **settings)


def _split(
    tier: RamTier, update: Update, given: Sequence[Plan], step: StepKeys, settings: Mapping[str, Any]
) -> Applied:
    """Apply the update of a step to rows that the next step needs, and leave the others for later."""
    update, concerned = step.of_all_batches(update, given)
    first, rest = step.needed, ~step.needed
    if concerned is not None:
        first, rest = first & concerned, rest & concerned
    # Rows that early lookups have made are not the ones that these gradients were computed with.
    settings = {"rows": update.rows, "weights": update.weights, "as_found": True, **settings}
    applied = tier.apply(step.plan, update.gradients, only=first, **settings)
    tier.apply_later(step.plan, update.gradients, only=rest, **settings)
    return applied
