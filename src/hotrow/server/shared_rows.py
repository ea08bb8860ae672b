"""Where the rows of a shard are: in segments named by run and shard, which the next process attaches to, where the host
has room for them in shared memory; else in the memory of the process, which ends with it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from hotrow.config import Segment, Table
from hotrow.sizes import fits_file_name, size_text
from hotrow.store.segments import DENSE_SUFFIX, PREFIX, SHARED_MEMORY

SHARE_OF_MEMORY = 4  # shared memory must have room for a quarter of the host's free memory, where no table has a bound
MEMORY = Path("/proc/meminfo")


def shared_tables(
    tables: Mapping[str, Table], run: str, number: int, shards: int
) -> tuple[dict[str, Table], str | None]:
    """The tables with a segment each, those that name one with their own; and why they have none, else None."""
    if all(table.segment is not None for table in tables.values()):
        return dict(tables), None
    there = any(SHARED_MEMORY.glob(f"{PREFIX}{run}-{number}-of-{shards}-*"))  # of a process before
    if not there and (why := _why_not(tables, shards)) is not None:
        return dict(tables), why
    return {name: _in_segment(table, run) for name, table in tables.items()}, None


def dense_path(run: str, number: int, shards: int) -> Path:
    """The file of a shard's dense parameters."""
    return SHARED_MEMORY / f"{PREFIX}{run}-{number}-of-{shards}{DENSE_SUFFIX}"


def remove_leftovers(run: str) -> None:
    """Remove files of a run whose processes have all ended."""
    for path in SHARED_MEMORY.glob(f"{PREFIX}{run}-*"):
        path.unlink(missing_ok=True)


def _in_segment(table: Table, run: str) -> Table:
    return table if table.segment is not None else table.model_copy(update={"segment": Segment(run=run)})


def _why_not(tables: Mapping[str, Table], shards: int) -> str | None:
    if odd := [name for name in tables if not fits_file_name(name)]:
        return f"the name of table {odd[0]!r} does not fit a file name"
    if not os.access(SHARED_MEMORY, os.W_OK):
        return f"{SHARED_MEMORY} does not exist, or cannot be written"
    about = os.statvfs(SHARED_MEMORY)
    room, needed = about.f_bavail * about.f_frsize, _needed(tables, shards)
    if room >= needed:
        return None
    return f"{SHARED_MEMORY} has room for {size_text(room)}, and {size_text(needed)} may be needed"


def _needed(tables: Mapping[str, Table], shards: int) -> int:
    """Bytes of tables whose capacity is in bytes; a share of the host's free memory, where one has no bound."""
    bounds = [table.capacity_bytes for table in tables.values() if table.segment is None]
    known = [bound for bound in bounds if bound is not None]
    if len(known) == len(bounds):
        return sum(known) // shards
    return _free_memory() // SHARE_OF_MEMORY


def _free_memory() -> int:
    found = [line.split() for line in MEMORY.read_text().splitlines() if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else 0
