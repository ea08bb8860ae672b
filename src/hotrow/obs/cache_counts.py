"""Counts of caches among the counts of a run: "cache_hits.user" counts hits of table user."""

from collections.abc import Mapping
from typing import TypeVar

PREFIX = "cache_"

Number = TypeVar("Number", int, float)


def is_cache_count(name: str) -> bool:
    """Whether a count is one of a cache."""
    return name.startswith(PREFIX) and "." in name


def by_table(counts: Mapping[str, Number]) -> dict[str, dict[str, Number]]:
    """The counts of caches, by table and by what they count."""
    found: dict[str, dict[str, Number]] = {}
    for name, count in counts.items():
        if is_cache_count(name):
            what, _, table = name.removeprefix(PREFIX).partition(".")
            found.setdefault(table, {})[what] = count
    return found


def hit_share(counts: Mapping[str, float]) -> float:
    """The part of lookups of distinct ids that found a cached row which might be used; 0 without lookups."""
    looked_up = sum(counts.get(name, 0) for name in ("hits", "misses", "awaited", "ahead", "invalid"))
    return counts.get("hits", 0) / looked_up if looked_up else 0.0


def saved_share(counts: Mapping[str, float]) -> float:
    """The part of the bytes without a cache that was not sent; negative where the cache costs more."""
    without = counts.get("bytes", 0) + counts.get("bytes_saved", 0)
    return counts.get("bytes_saved", 0) / without if without else 0.0
