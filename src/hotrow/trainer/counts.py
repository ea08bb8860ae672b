"""Counts of a run's statistics that are reported with its other irregularities: everything that one large batch would
not do.
"""

from collections.abc import Mapping

from hotrow.staleness import Statistics


def mode_counts(statistics: Statistics, before: Mapping[str, int] | None = None) -> dict[str, int]:
    """By name, what is not 0; `before`: counts that were reported earlier."""
    counts = {f"{reason}_batches_dropped": count for reason, count in statistics.dropped.items()}
    counts |= {f"{reason}_samples_dropped": count for reason, count in statistics.samples_dropped.items()}
    counts |= {"decayed_gradients": statistics.decayed, "gradients_of_weight_0": statistics.zero_weight}
    counts |= {"decayed_ids": statistics.ids_decayed, "ids_of_weight_0": statistics.ids_zero_weight}
    counts |= statistics.counts
    since = {name: count - (before or {}).get(name, 0) for name, count in counts.items()}
    return {name: count for name, count in since.items() if count}
