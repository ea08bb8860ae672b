"""The rows of a checkpoint, put into a table as a plan says."""

from collections.abc import Iterator, Mapping

import numpy as np

from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.table_fitting import TablePlan, capacity_line
from hotrow.config import AtLeast
from hotrow.store import RamTier, Rows, SavedTable
from hotrow.store.arrays import Integers


def load_rows(found: SavedCheckpoint, name: str, tier: SavedTable, plan: TablePlan) -> Iterator[str]:
    """Replace the rows of our table `name`; yields what its capacity and its type did to them."""
    tier.clear()
    if plan.saved is None:
        return
    before = tier.stats().saturated
    samples = int(found.manifest.counters.get("samples", 0))
    for chunk in found.rows(plan.saved):
        state = chunk.state if plan.state and tier.state_dim else None
        tier.put(chunk.keys, chunk.values, state, _fields(chunk, plan, samples))
    if isinstance(tier, RamTier):
        _restore_admission(found, plan.saved, tier)
    if line := capacity_line(name, plan, len(tier)):
        yield line
    if large := tier.stats().saturated - before:
        yield f"table {name!r}: {large:,} numbers are too large for type={tier.table.type!r}: they become its largest"


def _fields(chunk: Rows, plan: TablePlan, samples: int) -> Mapping[str, Integers]:
    fields = {name: chunk.fields[name] for name in plan.fields}
    theirs, ours = plan.ticks
    if plan.seen_now:
        fields["last_seen"] = np.full(len(chunk.keys), samples // ours, np.uint32)
    elif "last_seen" in fields and theirs != ours:
        fields["last_seen"] = (fields["last_seen"].astype(np.uint64) * theirs // ours).astype(np.uint32)
    return fields


def _restore_admission(found: SavedCheckpoint, saved: str, tier: RamTier) -> None:
    """Counts of keys that wait for admission come back where the rule is the same; else counting begins anew."""
    ours = tier.table.admission
    if not isinstance(ours, AtLeast) or found.table(saved).settings.get("admission") != ours.model_dump(mode="json"):
        return
    if ours.filter is None:
        tier.restore_waiting(found.waiting(saved))
    elif filters := found.filters(saved):
        tier.restore_filters(filters)
