"""What a run counts of rows in GPU memory."""

from collections.abc import Mapping


def hit_share(counts: Mapping[str, float]) -> float:
    """The part of lookups of distinct ids that found their row in GPU memory; 0 without lookups."""
    looked_up = counts.get("hits", 0) + counts.get("up", 0)
    return counts.get("hits", 0) / looked_up if looked_up else 0.0
