"""Bytes of rows in RAM and on disk, from the settings of a table. Pure; tests compare with the store's own counts."""

import math
from dataclasses import dataclass

from hotrow.config import Table
from hotrow.store.ssd import DiskIndex
from hotrow.store.tier_plan import SLOT_HEADER, index_bytes

KEY, FIELD, FLOAT = 8, 4, 4
WORD = 8  # rows are rounded up to it
PARTITIONS = 32  # of a table
AHEAD_BYTES = PARTITIONS * (512 << 10)  # that a table allocates ahead of its growth, at most: a chunk in each partition
BUCKET_BYTES, BUCKET_SLOTS, BUCKETS_LEAST, LOAD_MOST = 64, 12, 128, 0.85  # of the index
FILE_FACTOR = (
    2  # slots of a file for each of its rows: superseded copies, and a tenth that is always free (docs/disk.md)
)
FILE_ROWS_MOST = 0.9  # of the slots of a file: a row beyond them ends the run
FILE_SLOTS_MOST = 2**32  # of one file: one shard
DISK_READ_LEAST = 4096  # bytes of a direct read


@dataclass(frozen=True, slots=True)
class RowLayout:
    """What one row is made of."""

    value_bytes: int
    state_bytes: int
    fields: int  # beside the key, 4 bytes each
    links: int = 0  # of the eviction order: in RAM only

    @classmethod
    def of(cls, table: Table) -> "RowLayout":
        """The rows of a table."""
        optimizer, ordered = table.optimizer, table.policy in ("lru", "lfu")
        used = (
            table.keeps_clock,
            table.last_seen or ordered or table.expiry is not None,
            getattr(optimizer, "swap", None) is not None,
            optimizer.name == "adam" and getattr(optimizer, "correction", None) == "row",
            table.policy == "lfu",
        )
        width = FLOAT if table.type == "float32" else 2
        state = FLOAT * optimizer.state_dim(table.dim)
        return cls(width * table.dim, state, 2 + sum(used), 2 if ordered else 0)

    @property
    def ram_bytes(self) -> int:
        """A row in a slab, without its share of the index."""
        return _rounded(KEY + FIELD * (self.fields + self.links) + self.value_bytes + self.state_bytes)

    @property
    def disk_bytes(self) -> int:
        """A slot of a file."""
        return _rounded(SLOT_HEADER + FIELD * self.fields + self.value_bytes + self.state_bytes)


def table_bytes(layout: RowLayout, rows: float, partitions: int = PARTITIONS) -> int:
    """Memory in use by a table of so many rows: the rows and the index. `AHEAD_BYTES` more may be allocated."""
    index = sum(_index_bytes(rows / partitions, place / partitions) for place in range(partitions))
    return round(rows * layout.ram_bytes + index)


def file_bytes(layout: RowLayout, rows: float) -> int:
    """Disk for a file with so many rows, copies of rows in RAM included."""
    return round(FILE_FACTOR * rows * layout.disk_bytes)


def file_index_bytes(rows: float, index: DiskIndex = "memory") -> int:
    """RAM for the index of a file with so many rows, at most, without the pages of one on disk."""
    return index_bytes(index, round(rows))


def bytes_per_row(layout: RowLayout) -> float:
    """Of a large table: the row and its share of the index."""
    return layout.ram_bytes + BUCKET_BYTES / BUCKET_SLOTS / (LOAD_MOST * math.log(2))


def _index_bytes(rows: float, share: float) -> float:
    """Segments of equal size split in two when they are full; partitions have segments of different sizes."""
    buckets = int(BUCKETS_LEAST * 2**share)
    most = int(buckets * BUCKET_SLOTS * LOAD_MOST)
    segments = 2 ** max(0, math.ceil(math.log2(rows / most))) if rows > most else 1
    return segments * ((buckets + 1) * BUCKET_BYTES + 8)


def _rounded(size: int) -> int:
    return -(-size // WORD) * WORD
