"""Two recordings, and what differs between them as sentences."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

TOLERANCES = {"bits": 0.0, "losses": 1e-5, "samples": None}  # of losses; None: they are not compared


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """One sentence for each run that differs, or is missing on a side."""
    found = [f"{name}: recorded only before" for name in before.keys() - after.keys()]
    found += [f"{name}: recorded only after" for name in after.keys() - before.keys()]
    for name in sorted(before.keys() & after.keys()):
        found += [f"{name}: {told}" for told in _run(before[name], after[name])]
    return found


def _run(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    found = [
        f"{field} were {before[field]} and are {after[field]}"
        for field in ("equal", "samples", "steps")
        if before[field] != after[field]
    ]
    tolerance = TOLERANCES[before["equal"]]
    if tolerance is not None:
        found += _losses(before["losses"], after["losses"], tolerance)
    if before["equal"] == "bits":
        found += [f"{field} have other bits" for field in ("rows", "dense", "metrics") if before[field] != after[field]]
        found += _trace(before["trace"], after["trace"])
    return found


def _losses(before: Sequence[float], after: Sequence[float], tolerance: float) -> list[str]:
    if len(before) != len(after):
        return [f"{len(before)} losses were told and {len(after)} are"]
    apart = [abs(one - other) for one, other in zip(before, after, strict=True)]
    if all(each <= tolerance for each in apart):
        return []
    step = next(number for number, each in enumerate(apart) if each > tolerance)
    return [f"loss {step} was {before[step]!r} and is {after[step]!r}; they differ by {max(apart):.1e} at most"]


def _trace(before: Sequence[str], after: Sequence[str]) -> list[str]:
    for line, (one, other) in enumerate(zip_longest(before, after)):
        if one != other:
            return [f"event {line} was {one!r} and is {other!r}"]
    return []
