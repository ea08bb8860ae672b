"""The rows of a checkpoint, put into tables as plans say."""

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.rows import CHUNK
from hotrow.checkpoint.shard_part import WHOLE, ShardPart
from hotrow.checkpoint.table_fitting import TablePlan, capacity_line
from hotrow.config import AtLeast, Table
from hotrow.data.background import read_ahead_ready
from hotrow.store import RamTier, Rows, SavedTable
from hotrow.store.arrays import Integers
from hotrow.store.rows import RowsToPut

AHEAD_BYTES = 64 << 20  # of chunks that are read and not put into the table yet; as many are being put
CHUNKS_AHEAD_LEAST = 2  # of them, where fewer would take these bytes


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """What a load did to a table, or to a shard of it."""

    rows: int  # that it has now
    too_large: int = 0  # numbers that its type cannot hold
    counts_left: bool = False  # of ids that wait for admission: they start at 0


def load_rows(
    found: SavedCheckpoint,
    tier: SavedTable,
    plan: TablePlan,
    part: ShardPart = WHOLE,
    watch: Callable[[], object] = lambda: None,
) -> LoadedTable:
    """Replace the rows of a table, or of a part of it. `watch` is called for each chunk, and may raise."""
    tier.clear()
    loaded = LoadedTable(0)
    if plan.saved is not None:
        loaded = put_rows(found.rows(plan.saved, part), found, tier, plan, part, watch)
    return replace(loaded, counts_left=not restore_admission(found, tier, plan, part))


def put_rows(
    chunks: Generator[Rows, None, None],
    found: SavedCheckpoint,
    tier: SavedTable,
    plan: TablePlan,
    part: ShardPart = WHOLE,
    watch: Callable[[], object] = lambda: None,
) -> LoadedTable:
    """Put saved rows, those of a part, into a table, while a thread reads the next ones."""
    assert plan.saved is not None
    before = tier.stats().saturated
    samples = int(found.manifest.counters.get("samples", 0))
    if isinstance(tier, RamTier) and tier.table.capacity_bytes is None:  # an index that grows may take fewer bytes
        tier.reserve(part.rows_of(plan.rows))
    threads = tier.threads if isinstance(tier, RamTier) else 1
    for ready in read_ahead_ready(chunks, chunks_ahead(found.shape(plan.saved).bytes, threads)):
        parts = []
        for chunk in ready:
            watch()
            state = chunk.state if plan.state and tier.state_dim else None
            parts.append(RowsToPut(chunk.keys, chunk.values, state, _fields(chunk, plan, samples)))
        tier.put_parts(parts)
        del ready, chunk, parts  # their memory is for the chunks that are read next
    stats = tier.stats()
    return LoadedTable(stats.rows, stats.saturated - before)


def restore_admission(found: SavedCheckpoint, tier: SavedTable, plan: TablePlan, part: ShardPart = WHOLE) -> bool:
    """Put counts of keys that wait for admission back, or let them start at 0.

    False where they are not restored and would have to be.
    """
    wanted = plan.saved is not None and plan.counts
    if not isinstance(tier, RamTier):  # on shards that do not read: rows are sent to them, and `clear` resets counts
        return not wanted
    tier.forget_waiting()
    if plan.saved is None or not plan.counts:
        return True
    if isinstance(tier.table.admission, AtLeast) and tier.table.admission.filter is None:
        tier.restore_waiting(found.waiting(plan.saved, part))
        return True
    if filters := found.filters(plan.saved, part):
        tier.restore_filters(filters)
    return bool(filters)


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


def chunks_ahead(row_bytes: int, threads: int) -> int:
    """How many chunks are read ahead: one for each thread, which finds the rows of a partition in it, if they fit."""
    return max(CHUNKS_AHEAD_LEAST, min(threads, AHEAD_BYTES // (CHUNK * row_bytes)))


def _fields(chunk: Rows, plan: TablePlan, samples: int) -> Mapping[str, Integers]:
    fields = {name: chunk.fields[name] for name in plan.fields}
    theirs, ours = plan.ticks
    if plan.seen_now:
        fields["last_seen"] = np.full(len(chunk.keys), samples // ours, np.uint32)
    elif "last_seen" in fields and theirs != ours:
        fields["last_seen"] = (fields["last_seen"].astype(np.uint64) * theirs // ours).astype(np.uint32)
    return fields
