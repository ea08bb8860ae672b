"""Counts of tables among the counts of a run: "cache_hits.user" and "gpu_hits.user" are of table user."""

from collections.abc import Mapping
from typing import Literal, TypeVar

Place = Literal["cache", "gpu"]
PLACES: tuple[Place, ...] = ("cache", "gpu")

Number = TypeVar("Number", int, float)


def is_table_count(name: str) -> bool:
    """Whether a count is one of a cache, or of rows in GPU memory."""
    return name.startswith(tuple(f"{place}_" for place in PLACES)) and "." in name


def by_table(counts: Mapping[str, Number], place: Place) -> dict[str, dict[str, Number]]:
    """The counts of caches, or of rows in GPU memory, by table and by what they count."""
    found: dict[str, dict[str, Number]] = {}
    for name, count in counts.items():
        if name.startswith(f"{place}_") and "." in name:
            what, _, table = name.removeprefix(f"{place}_").partition(".")
            found.setdefault(table, {})[what] = count
    return found
