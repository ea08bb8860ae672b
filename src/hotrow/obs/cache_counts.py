"""What a run counts of caches."""

from collections.abc import Mapping


def hit_share(counts: Mapping[str, float]) -> float:
    """The part of lookups of distinct ids that found a cached row which might be used; 0 without lookups."""
    looked_up = sum(counts.get(name, 0) for name in ("hits", "misses", "awaited", "ahead", "invalid"))
    return counts.get("hits", 0) / looked_up if looked_up else 0.0


def saved_share(counts: Mapping[str, float]) -> float:
    """The part of the bytes without a cache that was not sent; negative where the cache costs more."""
    without = counts.get("bytes", 0) + counts.get("bytes_saved", 0)
    return counts.get("bytes_saved", 0) / without if without else 0.0
