"""How a table with a disk tier divides its memory and its file. Pure, but for the layout of a row."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.sizes import size_text
from hotrow.store.ram import RamTier
from hotrow.store.segments import SHARED_MEMORY

INDEX_BYTES = 16  # of memory for each row on disk, at most
WRITE_BEHIND = 64 << 20
LEAST_SHARE = 8  # a table's memory holds rows in one eighth of it at least; the rest may be the index of the disk
SLOT_HEADER = 20
SUFFIX = ".slots"
STAGED_SUFFIX = ".staged"


@dataclass(frozen=True, slots=True)
class TierPlan:
    """What each tier gets."""

    in_memory: Table  # the settings of the rows in memory
    disk_bytes: int
    disk_rows: int
    slot_bytes: int
    write_behind_bytes: int
    staging: Path | None  # where rows on their way to the disk outlive the process


def plan_tiers(table: Table) -> TierPlan:
    """ConfigError where the memory has no room for the index of the rows on disk."""
    if table.disk_bytes is None or table.path is None:
        raise ConfigError(f"table {table.name!r} has no disk tier: give it disk and path")
    slot = slot_bytes(table)
    rows = table.disk_bytes // slot
    in_memory = table
    behind = WRITE_BEHIND
    if (whole := table.capacity_bytes) is not None:
        behind = min(WRITE_BEHIND, whole // LEAST_SHARE)
        index = INDEX_BYTES * rows
        left = whole - behind - index
        if left < whole // LEAST_SHARE:
            needed = (index + behind) * LEAST_SHARE // (LEAST_SHARE - 1)
            raise ConfigError(
                f"Table.disk={table.disk!r}: holds {rows:,} rows of {slot} bytes, whose index takes "
                f"{size_text(index)} of capacity={table.capacity!r}: raise capacity to {size_text(needed)}, "
                "or give less disk"
            )
        in_memory = table.model_copy(update={"capacity": f"{left}B"})
    return TierPlan(in_memory, table.disk_bytes, rows, slot, behind, _staging(table))


def slot_bytes(table: Table) -> int:
    """Of one row in the file: its header, fields, value and state."""
    plain = table.model_copy(update={"disk": None, "path": None, "segment": None, "admission": None, "capacity": 64})
    with closing(RamTier(plain)) as like:
        width = 4 if table.type == "float32" else 2
        whole = SLOT_HEADER + 4 * len(like.fields) + width * like.dim + 4 * like.state_dim
    return -(-whole // 8) * 8


def _staging(table: Table) -> Path | None:
    """Beside the segment: rows of a table without one end with the process."""
    if table.segment is None:
        return None
    return (table.segment.directory or SHARED_MEMORY) / slots_path(table).with_suffix(STAGED_SUFFIX).name


def slots_path(table: Table) -> Path:
    """`<path>/hotrow-<run>-<table>.slots`, with the run of the table's segment; without one `hotrow-<table>.slots`."""
    run = "" if table.segment is None else f"{table.segment.run}-"
    if table.path is None:
        raise ConfigError(f"table {table.name!r} has no disk tier: give it disk and path")
    return table.path / f"hotrow-{run}{table.name}{SUFFIX}"
