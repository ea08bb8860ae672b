"""Which tables have rows in GPU memory, and how many: a share of what is free, or what the tables ask for."""

from collections.abc import Mapping

from hotrow.config import HBM_BUCKET, Table
from hotrow.errors import ConfigError
from hotrow.sizes import parse_bytes, size_text
from hotrow.store.host_tier import row_bytes

AUTO_SHARE = 0.6  # of the memory that is free when the tables open: the network and its batches need some


def rows_in_gpu_memory(tables: Mapping[str, Table], free_bytes: int) -> tuple[dict[str, int], list[str]]:
    """By table, how many rows fit; and what a run has to say of the others."""
    taken: dict[str, int] = {}
    shared: dict[str, Table] = {}
    remarks = []
    for name, table in tables.items():
        if table.hbm == 0:
            continue
        if table.hbm != "auto":
            taken[name] = _rows(table, table.hbm)
        elif (fault := table.hbm_fault) is None:
            shared[name] = table
        else:
            remarks.append(f"table {name!r} stays in host memory: {fault}")
    asked = sum(count * row_bytes(tables[name]) for name, count in taken.items())
    if asked > free_bytes:
        raise ConfigError(
            f"tables {', '.join(map(repr, taken))} ask for {size_text(asked)} of GPU memory with hbm, and "
            f"{size_text(free_bytes)} are free: ask for less"
        )
    share = int((free_bytes - asked) * AUTO_SHARE) // max(1, len(shared))
    for name, table in shared.items():
        rows = share // row_bytes(table)
        if rows < HBM_BUCKET:
            remarks.append(f"table {name!r} stays in host memory: its share of GPU memory is {size_text(share)}")
        else:
            taken[name] = rows
    return taken, remarks


def _rows(table: Table, hbm: int | str) -> int:
    rows = hbm if isinstance(hbm, int) else parse_bytes(hbm) // row_bytes(table)
    if rows < HBM_BUCKET:
        raise ConfigError(
            f"tables.{table.name}.hbm={hbm!r}: is room for {rows:,} rows, and they come in buckets of {HBM_BUCKET}: "
            f"give it {size_text(HBM_BUCKET * row_bytes(table))} or more"
        )
    return rows
