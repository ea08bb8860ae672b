"""Counts of tables among the counts of a run: "cache_hits.user" and "gpu_hits.user" are of table user."""

from collections.abc import Mapping
from typing import Literal, TypeVar

CountedMemory = Literal["cache", "gpu"]
COUNTED_MEMORIES: tuple[CountedMemory, ...] = ("cache", "gpu")
GAUGES = ("gpu_rows", "gpu_capacity")  # tell how it is now; the others add up

Number = TypeVar("Number", int, float)


def is_table_count(name: str) -> bool:
    """Whether a count is one of a cache, or of rows in GPU memory."""
    return name.startswith(tuple(f"{memory}_" for memory in COUNTED_MEMORIES)) and "." in name


def is_gauge(name: str) -> bool:
    """Whether a count of a table tells how it is now, so that nothing of it is of an earlier fit."""
    return name.partition(".")[0] in GAUGES and is_table_count(name)


def by_table(counts: Mapping[str, Number], memory: CountedMemory) -> dict[str, dict[str, Number]]:
    """The counts of caches, or of rows in GPU memory, by table and by what they count."""
    found: dict[str, dict[str, Number]] = {}
    for name, count in counts.items():
        if name.startswith(f"{memory}_") and "." in name:
            what, _, table = name.removeprefix(f"{memory}_").partition(".")
            found.setdefault(table, {})[what] = count
    return found
