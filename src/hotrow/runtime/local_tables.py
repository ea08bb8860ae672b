"""The tables of a run in one process: in memory, with caches in front of them, or used in GPU memory."""

from collections.abc import Mapping

from hotrow.cache.local import CachedLocalTables
from hotrow.cache.modes import cached_tables
from hotrow.client import LocalTables
from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.runtime.device import Device, free_memory
from hotrow.store.tiers import listed, named_tables
from hotrow.worker.spec import TrainingSpec


def open_local_tables(spec: TrainingSpec, device: Device) -> tuple[LocalTables, tuple[str, ...]]:
    """The tables, and what the reports of the run say about their place."""
    named = named_tables(spec.tables)
    asked = _asking(named)
    cached = cached_tables(named)
    if cached and asked:
        raise ConfigError(
            f"tables.{cached[0]}.cache: stands for the caches of a cluster's workers, which have no tables in GPU "
            f"memory beside them, and hbm is set for {listed(asked)}: leave cache or hbm out"
        )
    remarks = [] if device.remark is None else [device.remark]
    if device.rows is not None and cached and any(table.hbm != 0 for table in named.values()):
        remarks.append(f"all tables stay in host memory: table {cached[0]!r} has a cache")
    if device.rows is None or cached:
        remarks += [f"hbm of table {name!r} has no effect: the rows of this run are in host memory" for name in asked]
        kind = CachedLocalTables if cached else LocalTables
        return kind(named, threads=spec.threads, attach=spec.attach), tuple(remarks)
    from hotrow.client.gpu_capacity import rows_in_gpu_memory  # with Triton, which other runs need not have
    from hotrow.client.gpu_tables import GpuTables

    free_bytes = free_memory(device.rows) if device.free_bytes is None else device.free_bytes
    rows, others = rows_in_gpu_memory(named, free_bytes)
    if not rows:
        return LocalTables(named, threads=spec.threads, attach=spec.attach), (*remarks, *others)
    tables = GpuTables(named, rows, device.rows, threads=spec.threads, attach=spec.attach)
    room = {name: working.upper.spec.slots for name, working in tables.working.items()}  # whole buckets
    remarks += [f"table {name!r}: {device.rows} has room for {count:,} rows" for name, count in room.items()] + others
    return tables, tuple(remarks)


def check_no_hbm(tables: Mapping[str, Table]) -> None:
    """ConfigError where rows of a cluster are asked to be in GPU memory."""
    if asked := _asking(tables):
        raise ConfigError(
            f"tables.{asked[0]}.hbm={tables[asked[0]].hbm!r}: rows of a cluster are on its shards: leave hbm out, or "
            "take engine 'local'"
        )


def _asking(tables: Mapping[str, Table]) -> list[str]:
    """Tables whose settings name rows in GPU memory."""
    return [name for name, table in tables.items() if table.hbm not in (0, "auto")]
