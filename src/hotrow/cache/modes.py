"""Which modes train with cached rows."""

from collections.abc import Mapping

from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.modes import Mode
from hotrow.types import Values

CACHING_MODES = ("hybrid", "async")  # they apply gradients of rows one by one, when they arrive


def cached_tables(tables: Mapping[str, Table]) -> list[str]:
    """The names of tables with a cache."""
    return [name for name, table in tables.items() if table.cache is not None]


def check_cached_mode(tables: Mapping[str, Table], mode: Mode) -> None:
    """ConfigError where tables have a cache and a mode does not support it."""
    cached = cached_tables(tables)
    if not cached:
        return
    where = f"tables.{cached[0]}.cache: "
    if mode.name not in CACHING_MODES:
        raise ConfigError(
            f"{where}mode {mode.name!r} applies gradients of rows together or in order, and a worker with a cache "
            f"applies its own at once: take mode {' or '.join(map(repr, CACHING_MODES))}, or leave cache out"
        )
    if mode.late is not None:
        raise ConfigError(
            f"{where}the staleness of mode {mode.name!r} weighs late gradients on the server, and a worker with a "
            "cache sends changes of rows: leave the mode's staleness out, or cache"
        )


def check_cached_engine(tables: Mapping[str, Table], values: Mapping[str, Values], embedding_workers: int) -> None:
    """ConfigError where tables have a cache and the format of rows does not support it.

    With embedding workers the format is that of vectors and their gradients; rows and changes are float32 anyway.
    """
    for name in cached_tables(tables) if not embedding_workers else ():
        if values.get(name, "fp32") != "fp32":
            raise ConfigError(
                f"tables.{name}.cache: changes of rows are sent as float32, and engine.values={values[name]!r} would "
                "round them: leave values out for this table, or cache"
            )
