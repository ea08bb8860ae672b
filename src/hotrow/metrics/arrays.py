"""What metrics take: labels, values beside them, and weights, each checked before anything is computed."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hotrow.errors import InputError

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Whole: TypeAlias = npt.NDArray[np.int64]
Truth: TypeAlias = npt.NDArray[np.bool_]


def truth_of(labels: npt.ArrayLike) -> Truth:
    """Labels that are 0 or 1."""
    given = numbers_of("labels", labels)
    strange = given[(given != 0) & (given != 1)]
    if len(strange):
        raise InputError(f"labels hold {strange[0].item()} ({len(strange):,} in all are odd): each must be 0 or 1")
    return given.astype(np.bool_)


def numbers_of(name: str, values: npt.ArrayLike) -> Array:
    """One row of numbers."""
    given = np.asarray(values)
    if given.ndim != 1:
        kind = "0 and 1" if name == "labels" else "numbers"
        raise InputError(f"{name} have shape {given.shape}: must be one row of {kind}")
    if given.dtype.kind not in "biuf":
        raise InputError(f"{name} are of type {given.dtype}: must be numbers")
    return given


def finite_numbers_of(name: str, values: npt.ArrayLike) -> Array:
    """One row of finite numbers."""
    given = numbers_of(name, values)
    if not np.isfinite(given).all():
        raise InputError(f"{name} hold {given[~np.isfinite(given)][0]}: each must be a finite number")
    return given


def beside(labels: Array, name: str, values: npt.ArrayLike) -> Array:
    """Values, one for each label."""
    given = np.asarray(values)
    if given.shape != labels.shape:
        raise InputError(f"{name} have shape {given.shape} and labels {labels.shape}: give one for each label")
    if given.dtype.kind not in ("iu" if name == "groups" else "iuf"):
        kind = "whole numbers" if name == "groups" else "numbers"
        raise InputError(f"{name} are of type {given.dtype}: must be {kind}")
    return given


def weights_beside(labels: Array, weights: npt.ArrayLike | None) -> Floats | None:
    """Weights, one for each label: finite, 0 or more."""
    if weights is None:
        return None
    given = beside(labels, "weights", weights).astype(np.float64)
    wrong = given[~(np.isfinite(given) & (given >= 0))]
    if len(wrong):
        raise InputError(f"weights hold {wrong[0].item()}: each must be a finite number of 0 or more")
    return given


def mean(values: Array, weights: Floats | None) -> float | None:
    """None where there is nothing, or nothing that weighs."""
    if weights is None:
        return float(values.mean()) if len(values) else None
    there = weights > 0  # infinity times 0 would be NaN
    return float((values[there] * weights[there]).sum() / weights.sum()) if there.any() else None


def has_nan(values: Array, weights: Floats | None) -> bool:
    """Whether one of those that weigh is NaN."""
    found = np.isnan(values)
    return bool(found.any() if weights is None else (found & (weights > 0)).any())
