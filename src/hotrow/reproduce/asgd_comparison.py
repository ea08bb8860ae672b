"""Differences of AUC between two curves of a figure that share their seeds, as plain data and as text."""

from collections.abc import Mapping

from hotrow.reproduce.days import interval

Difference = dict[str, float | int]


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """The mean difference by seed and the half-width of its 95 % interval; None where one seed has no interval."""
    gaps = [ours[seed] - theirs[seed] for seed in sorted(ours)]
    if len(gaps) < 2:
        return None
    found = interval(gaps)
    return {"mean": found.mean, "half_width": found.half_width, "pairs": found.pairs}


def above(difference: Difference | None) -> bool:
    """Whether the whole interval lies above 0."""
    return difference is not None and difference["mean"] > difference["half_width"]


def below(difference: Difference | None) -> bool:
    """Whether the whole interval lies below 0."""
    return difference is not None and difference["mean"] < -difference["half_width"]


def words(difference: Difference | None) -> str:
    """For tables."""
    if difference is None:
        return "one seed"
    return f"{difference['mean']:+.4f} ± {difference['half_width']:.4f}"
