"""How a table with a disk tier divides its memory and its file. Pure, but for the layout of a row."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.sizes import size_text
from hotrow.store.native_spec import table_spec
from hotrow.store.ram import RamTier
from hotrow.store.segments import SHARED_MEMORY
from hotrow.store.ssd import INDEX_CACHE, LEAST_BYTES, PAGE, DiskIndex

INDEX_BYTES = 16  # of memory for each row on disk, at most
FILTER_BYTES = 3  # the same where the index is on disk
LEAST_CACHE = 1 << 20  # bytes of its pages in memory
PAGES_BYTES = 24  # of its file for each row, about
WRITE_BEHIND = 64 << 20  # at most
LEAST_WRITE_BEHIND = 4 << 20  # beside a capacity in rows: a few extents
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
    index: DiskIndex
    index_bytes: int  # of memory for a full file, without the pages of an index on disk
    index_cache_bytes: int  # for these; 0: the index is in memory
    staging: Path | None  # where rows on their way to the disk outlive the process


def plan_tiers(table: Table) -> TierPlan:
    """ConfigError where the memory has no room for the index of the rows on disk."""
    if table.disk_bytes is None or table.path is None:
        raise ConfigError(f"table {table.name!r} has no disk tier: give it disk and path")
    if table.disk_bytes < LEAST_BYTES:
        raise ConfigError(f"Table.disk={table.disk!r}: is less than {LEAST_BYTES:,} bytes, the least size of a file")
    slot = slot_bytes(table)
    rows = table.disk_bytes // slot
    whole = table.capacity_bytes
    index = _index_beside_rows(table, rows)
    memory = index_bytes(index, rows)
    cache = _cache_most(rows) if index == "disk" else 0
    in_memory = table
    if whole is None:
        assert table.capacity_rows is not None  # a disk needs a capacity
        behind = write_behind_beside(table.capacity_rows * slot)
    else:
        if whole < capacity_least(index, rows):
            raise ConfigError(
                f"Table.disk={table.disk!r}: holds {rows:,} rows of {slot} bytes, whose index takes "
                f"{size_text(memory)} of capacity={table.capacity!r}: raise capacity to {_enough(table, rows)}, "
                + ("leave disk_index='memory' out, " if table.disk_index == "memory" else "")
                + "or give less disk"
            )
        shares = divide_memory(whole, rows, index)
        behind, cache = shares.write_behind, shares.index_cache
        in_memory = _rows_within(table, shares.rows)
        if not _holds_rows(in_memory):
            shared = " in shared memory" if table.segment is not None else ""
            raise ConfigError(
                f"Table.capacity={table.capacity!r}: leaves {size_text(shares.rows)} for rows{shared} beside the index "
                "and the buffers of the disk, and the table itself needs more than that: raise capacity to "
                f"{_enough(table, rows)}"
            )
    return TierPlan(in_memory, table.disk_bytes, rows, slot, behind, index, memory, cache, _staging(table))


def _rows_within(table: Table, size: int) -> Table:
    """The settings of the rows in memory, which have so many bytes."""
    return table.model_copy(update={"capacity": f"{size}B"})


def _holds_rows(in_memory: Table) -> bool:
    try:
        table_spec(in_memory, None, keep_evicted=True)
    except ConfigError:
        return False
    return True


def _has_room(table: Table, slots: int, whole: int, index: DiskIndex) -> bool:
    """Whether a capacity has room for the index, the buffers and rows."""
    if whole < capacity_least(index, slots):
        return False
    return _holds_rows(_rows_within(table, divide_memory(whole, slots, index).rows))


def _index_beside_rows(table: Table, slots: int) -> DiskIndex:
    """On disk, too, where the one in memory leaves too little for rows: in shared memory a table needs 19 MB."""
    whole = table.capacity_bytes
    index = choose_index(table.disk_index, slots, whole)
    if whole is None or index == "disk" or table.disk_index == "memory" or _has_room(table, slots, whole, index):
        return index
    return "disk"


def _enough(table: Table, slots: int) -> str:
    """The least capacity with room for all, as a text."""
    index: DiskIndex = "memory" if table.disk_index == "memory" else "disk"  # "auto" is content with less by that one
    low = capacity_least(index, slots)
    high = 2 * low
    while not _has_room(table, slots, high, index):
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _has_room(table, slots, middle, index) else (middle + 1, high)
    return upper_text(low)


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Bytes of a capacity."""

    rows: int
    index: int
    index_cache: int  # pages of an index on disk
    write_behind: int

    @property
    def whole(self) -> int:
        """The capacity."""
        return self.rows + self.index + self.index_cache + self.write_behind


def divide_memory(whole: int, slots: int, index: DiskIndex) -> MemoryShares:
    """A capacity in bytes, of a table with a file of so many slots."""
    share, memory, cache = whole // LEAST_SHARE, index_bytes(index, slots), 0
    behind = min(WRITE_BEHIND, share)
    room = whole - behind - memory
    if index == "disk":
        cache = min(_cache_most(slots), max(LEAST_CACHE, share // PAGE * PAGE), room - share)
    return MemoryShares(room - cache, memory, cache, behind)


def memory_for(row_bytes: int, slots: int) -> tuple[MemoryShares, DiskIndex]:
    """The least capacity that has so many bytes for rows beside a file of so many slots, as `disk_index="auto"` divides
    it, and where the index is then.
    """
    index: DiskIndex
    for index in ("disk", "memory"):
        low = capacity_least(index, slots)
        high = low + LEAST_SHARE * (row_bytes + INDEX_CACHE + WRITE_BEHIND)
        while low < high:
            middle = (low + high) // 2
            enough = divide_memory(middle, slots, index).rows >= row_bytes
            low, high = (low, middle) if enough else (middle + 1, high)
        if choose_index("auto", slots, low) == index:
            return divide_memory(low, slots, index), index
    raise AssertionError("an index in memory fits into its own capacity")


def write_behind_beside(row_bytes: int) -> int:
    """Bytes of the write buffer where the capacity is a number of rows, which take so many: as in one in bytes."""
    return min(WRITE_BEHIND, max(LEAST_WRITE_BEHIND, row_bytes // (LEAST_SHARE - 1)))


def _cache_most(slots: int) -> int:
    return min(INDEX_CACHE, max(LEAST_CACHE, PAGES_BYTES * slots))


def choose_index(wanted: Literal["auto", "memory", "disk"], rows: int, capacity: int | None) -> DiskIndex:
    """In memory while there is room for it."""
    if wanted != "auto":
        return wanted
    return "memory" if capacity is None or capacity >= capacity_least("memory", rows) else "disk"


def index_bytes(index: DiskIndex, rows: int) -> int:
    """Memory of the index of a file with so many slots, at most, without the pages of one on disk."""
    return (INDEX_BYTES if index == "memory" else FILTER_BYTES) * rows


def capacity_least(index: DiskIndex, rows: int) -> int:
    """The least capacity that leaves an eighth of it for rows, beside the index and the write buffer."""
    fixed = index_bytes(index, rows) + (LEAST_CACHE if index == "disk" else 0)
    by_share = -(-fixed * LEAST_SHARE // (LEAST_SHARE - 2))  # the buffer is an eighth
    by_bound = -(-(fixed + WRITE_BEHIND) * LEAST_SHARE // (LEAST_SHARE - 1))
    return min(by_share, by_bound)


def upper_text(size: int) -> str:
    """As `size_text`, rounded up, so that the size it names is enough; in units that a config takes."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= factor:
            tenths = -(-size * 10 // factor)
            return f"{tenths // 10}.{tenths % 10} {unit}"
    return f"{size} B"


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
