"""One table of a plan: its rows in RAM and on disk, and their bytes. Pure."""

from dataclasses import dataclass

from hotrow.config import Table
from hotrow.plan.row_bytes import (
    DISK_READ_LEAST,
    FILE_ROWS_MOST,
    RowLayout,
    file_bytes,
    file_index_bytes,
    table_bytes,
)
from hotrow.plan.sample import TableSample
from hotrow.plan.traffic import row_traffic
from hotrow.store.shards import share_of
from hotrow.store.ssd import DiskIndex
from hotrow.store.tier_plan import plan_tiers
from hotrow.types import Values


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """The settings of a table that a plan needs."""

    name: str
    dim: int
    layout: RowLayout
    capacity_rows: int | None = None  # rows in RAM at most
    disk_bytes: int | None = None  # None: rows beyond the capacity are evicted
    values: Values = "fp32"  # on the wire
    index: DiskIndex = "memory"  # where the index of the file is
    index_cache_bytes: int = 0  # RAM for its pages, over all shards
    upper_bound: str | None = None  # why there may be fewer rows than distinct ids

    @classmethod
    def of(cls, table: Table, capacity_rows: int | None, values: Values, shards: int = 1) -> "PlannedTable":
        """From the settings of a table; `capacity_rows` is what the store makes of its capacity."""
        tiers = None if table.disk is None else plan_tiers(share_of(table, 0, shards) if shards > 1 else table)
        reasons = [name for name in ("admission", "expiry") if getattr(table, name) is not None]
        return cls(
            table.name,
            table.dim,
            RowLayout.of(table),
            capacity_rows or None,
            table.disk_bytes,
            values,
            "memory" if tiers is None else tiers.index,
            0 if tiers is None else shards * tiers.index_cache_bytes,
            " and ".join(reasons) or None,
        )

    @property
    def file_rows_most(self) -> int:
        """Rows that the file holds; 0 without one."""
        return int((self.disk_bytes or 0) // self.layout.disk_bytes * FILE_ROWS_MOST)


@dataclass(frozen=True, slots=True)
class TableForecast:
    """The rows of a table at the end of the data, over all shards."""

    table: PlannedTable
    distinct: float  # ids of the whole data
    distinct_most: float  # by a law that does not fall
    ram_rows: float
    disk_rows: float
    lost_rows: float  # evicted for good, as the table has no disk
    file_rows: float  # rows on disk, and copies of the rows in RAM
    ram_bytes: int  # with the index of RAM, and of the file
    disk_bytes: int  # of a file with room for superseded copies
    unique_per_batch: float
    missed_per_batch: float  # distinct ids of a batch whose rows are on disk

    @property
    def file_overflows(self) -> bool:
        """Whether the file may run full, which ends the run."""
        return self.table.disk_bytes is not None and self.file_rows > self.table.file_rows_most

    @property
    def disk_read_bytes(self) -> float:
        """Read from disk for one batch."""
        return self.missed_per_batch * max(DISK_READ_LEAST, self.table.layout.disk_bytes)

    @property
    def traffic(self) -> tuple[float, float, float]:
        """Bytes of one batch: ids sent, rows received, ids and gradients sent."""
        return row_traffic(self.unique_per_batch, self.table.dim, self.table.values)


def forecast(table: PlannedTable, sample: TableSample, total: int, shards: int) -> TableForecast:
    """The table after `total` rows of data, split over shards by the hash of keys."""
    layout, distinct = table.layout, sample.rows(total)
    ram_rows = distinct if table.capacity_rows is None else min(distinct, float(table.capacity_rows))
    rest = distinct - ram_rows
    disk_rows = rest if table.disk_bytes is not None else 0.0
    file_rows = distinct if disk_rows else 0.0  # a row that comes back into RAM keeps its copy
    cached = table.index_cache_bytes if disk_rows else 0
    misses = 1 - sample.hit_share(ram_rows / distinct) if disk_rows and distinct else 0.0
    return TableForecast(
        table,
        distinct,
        sample.rows_most(total),
        ram_rows,
        disk_rows,
        rest - disk_rows,
        file_rows,
        shards * table_bytes(layout, ram_rows / shards) + file_index_bytes(file_rows, table.index) + cached,
        file_bytes(layout, file_rows),
        sample.unique_per_batch,
        sample.unique_per_batch * misses,
    )
