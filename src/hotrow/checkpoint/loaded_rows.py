"""The rows of a checkpoint, put into tables as plans say."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.rows import Watch
from hotrow.checkpoint.shard_part import WHOLE, ShardPart
from hotrow.checkpoint.table_fitting import TablePlan, capacity_line
from hotrow.config import AtLeast, Table
from hotrow.store import RamTier, Rows, SavedTable
from hotrow.store.arrays import Integers


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """What a load did to a table, or to a shard of it."""

    rows: int  # that it has now
    too_large: int = 0  # numbers that its type cannot hold
    counts_left: bool = False  # of ids that wait for admission: they start at 0


class RowLoader(Protocol):
    """How the rows of a checkpoint get into the tables of a run."""

    @property
    def tiers(self) -> Mapping[str, SavedTable]:
        """The tables."""

    def verify(self, found: SavedCheckpoint, watch: Watch) -> None:
        """InputError names the first file that is missing, cut or changed. Changes nothing."""

    def load(self, found: SavedCheckpoint, plans: Mapping[str, TablePlan]) -> Mapping[str, LoadedTable]:
        """Replace the rows of all tables, whose plans these are."""


class LocalRowLoader:
    """This process reads all rows."""

    def __init__(self, tiers: Mapping[str, SavedTable]) -> None:
        self.tiers = tiers

    def verify(self, found: SavedCheckpoint, watch: Watch) -> None:
        """Read all files."""
        found.verify(watch)

    def load(self, found: SavedCheckpoint, plans: Mapping[str, TablePlan]) -> Mapping[str, LoadedTable]:
        """One table after the other."""
        return {name: load_rows(found, tier, plans[name]) for name, tier in self.tiers.items()}


def load_rows(
    found: SavedCheckpoint,
    tier: SavedTable,
    plan: TablePlan,
    part: ShardPart = WHOLE,
    watch: Callable[[], object] = lambda: None,
) -> LoadedTable:
    """Replace the rows of a table, or of a part of it. `watch` is called for each chunk, and may raise."""
    tier.clear()
    if plan.saved is None:
        return LoadedTable(0)
    before = tier.stats().saturated
    samples = int(found.manifest.counters.get("samples", 0))
    for chunk in found.rows(plan.saved, part):
        watch()
        state = chunk.state if plan.state and tier.state_dim else None
        tier.put(chunk.keys, chunk.values, state, _fields(chunk, plan, samples))
    counts = not plan.counts or _restore_admission(found, plan.saved, tier, part)
    stats = tier.stats()
    return LoadedTable(stats.rows, stats.saturated - before, counts_left=not counts)


def lines_of(name: str, table: Table, plan: TablePlan, loaded: LoadedTable) -> Iterator[str]:
    """What capacity, type and admission did to the rows of our table `name`, in sentences."""
    if plan.saved is None:
        return
    if line := capacity_line(name, plan, loaded.rows):
        yield line
    if loaded.too_large:
        message = f"{loaded.too_large:,} numbers are too large for type={table.type!r}"
        yield f"table {name!r}: {message}: they become its largest"
    if loaded.counts_left:
        yield f"table {name!r}: counts of ids that wait for admission do not fit this number of shards: they start at 0"


def _fields(chunk: Rows, plan: TablePlan, samples: int) -> Mapping[str, Integers]:
    fields = {name: chunk.fields[name] for name in plan.fields}
    theirs, ours = plan.ticks
    if plan.seen_now:
        fields["last_seen"] = np.full(len(chunk.keys), samples // ours, np.uint32)
    elif "last_seen" in fields and theirs != ours:
        fields["last_seen"] = (fields["last_seen"].astype(np.uint64) * theirs // ours).astype(np.uint32)
    return fields


def _restore_admission(found: SavedCheckpoint, saved: str, tier: SavedTable, part: ShardPart) -> bool:
    """Put counts of keys that wait for admission back; False where that is not possible."""
    if not isinstance(tier, RamTier):  # on shards that do not read: rows are sent to them, counts cannot be
        return False
    if isinstance(tier.table.admission, AtLeast) and tier.table.admission.filter is None:
        tier.restore_waiting(found.waiting(saved, part))
        return True
    if filters := found.filters(saved, part):
        tier.restore_filters(filters)
    return bool(filters)
