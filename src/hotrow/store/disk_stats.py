"""What a disk tier says about itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """The content of a file that an earlier process left."""

    rows: int
    torn: int  # slots that are not whole: cut off while they were written, or damaged since
    superseded: int  # whole copies that do not count, because a newer copy or an erasure does
    seconds: float


@dataclass(frozen=True, slots=True)
class DiskStats:
    """Counts since the tier was made, and bytes in use."""

    rows: int
    shadowed: int  # of them, rows that memory has
    tombstones: int  # erasures that older copies in the file still need
    capacity_rows: int  # rows and tombstones that fit
    staged_rows: int  # rows in memory that are not written yet
    extents: int
    free_extents: int
    slots_per_extent: int
    slot_bytes: int
    extent_bytes: int
    index_bytes: int  # of memory, without the pages of an index on disk
    index_filter_bytes: int  # of these, filters of an index on disk
    index_cache_bytes: int  # its pages in memory
    index_file_bytes: int  # its file
    index_reads: int  # its pages that were read and written
    index_writes: int
    bitmap_bytes: int
    staging_bytes: int  # memory for rows that are written behind
    file_bytes: int
    reads: int  # requests to the disk, and their bytes; those of compaction included
    read_bytes: int
    writes: int
    write_bytes: int
    syncs: int
    rows_read: int
    rows_read_buffered: int  # of these, rows that were still in memory for rows that are written behind
    rows_written: int
    rows_erased: int
    compacted_extents: int
    compacted_rows: int
    reused_extents: int
    damaged: int  # rows that were found damaged by a read or by compaction
    read_wait_s: float  # time that reads waited for the disk
    write_stall_s: float  # time that writes waited, for the disk or for space
    direct: bool  # direct I/O; False: the file system refuses it, or it is off
    io: str  # "uring" or "threads"

    @property
    def bytes_per_row(self) -> float:
        """Memory of index and bitmaps for each row, without the pages of an index on disk."""
        return (self.index_bytes + self.bitmap_bytes) / max(self.rows, 1)

    @property
    def memory_bytes(self) -> int:
        """Memory of the tier."""
        return self.index_bytes + self.index_cache_bytes + self.bitmap_bytes + self.staging_bytes
