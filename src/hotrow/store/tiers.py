"""Several tables by name: their settings checked, their tiers opened together."""

from collections.abc import Iterable, Mapping

from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.store.ram import RamTier
from hotrow.store.tiered import TieredTier


def named_tables(tables: Mapping[str, Table]) -> dict[str, Table]:
    """A name is part of what first values depend on, so each table takes the one it goes by."""
    if not isinstance(tables, Mapping):
        raise ConfigError(f"tables is a {type(tables).__name__}: give a dict, name -> hotrow.Table(dim=...)")
    if not tables:
        raise ConfigError("tables={}: give one or more, name -> hotrow.Table(dim=...)")
    for name, table in tables.items():
        if not isinstance(table, Table):
            raise ConfigError(f"tables[{name!r}] is a {type(table).__name__}: give a hotrow.Table(dim=...)")
        if table.name not in ("default", name):
            raise ConfigError(f"tables[{name!r}].name={table.name!r}: must be {name!r}, or leave it out")
    return {name: table.model_copy(update={"name": name}) for name, table in tables.items()}


def open_tiers(tables: Mapping[str, Table], threads: int, *, attach: bool = True) -> dict[str, RamTier]:
    """All of them, or none: where one cannot be opened, segments that others attached to are left as they were.

    Without `attach` a segment that holds rows of an earlier process is a SegmentError.
    """
    tiers: dict[str, RamTier] = {}
    try:
        for name, table in tables.items():
            kind = RamTier if table.disk is None else TieredTier
            tiers[name] = kind(table, threads=threads, attach=attach)
    except BaseException:
        for tier in tiers.values():
            tier.close(leave=tier.attached is not None)
        raise
    return tiers


def listed(names: Iterable[str]) -> str:
    """Names for a sentence."""
    return ", ".join(repr(name) for name in sorted(names))
