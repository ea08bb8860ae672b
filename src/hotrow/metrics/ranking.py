"""How well scores order labels: AUC, AUC inside groups, the ROC curve."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotrow.errors import InputError
from hotrow.metrics.arrays import Array, Floats, Truth, Whole, beside, has_nan, truth_of, weights_beside

POINTS_OF_ROC = 400  # of a picture
GROUPS_MOST = 2**31  # group, score and label share the 64 bits of a sort key


@dataclass(frozen=True, slots=True)
class GroupedAuc:
    """The mean AUC of groups, weighted by their samples; groups of one class have no AUC and are left out.

    Example:
        >>> from hotrow.metrics import GroupedAuc
        >>> GroupedAuc(value=0.7, groups_used=10, groups_left_out=2).value
        0.7
    """

    value: float | None
    groups_used: int
    groups_left_out: int


@dataclass(frozen=True, slots=True)
class Ties:
    """Positives and negatives at each distinct score of a group, lowest first: counts, or sums of weights."""

    positives: Array
    negatives: Array
    groups: Array  # number of the group of each


def auc(labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float | None:
    """The chance that a random positive scores above a random negative; ties count half. None without both classes.

    Example:
        >>> from hotrow.metrics import auc
        >>> auc([1, 0, 1, 0], [0.9, 0.1, 0.4, 0.5])
        0.75
    """
    truth = truth_of(labels)
    ordered, weight = beside(truth, "scores", scores), weights_beside(truth, weights)
    if has_nan(ordered, weight):
        return float("nan")
    ties = _ties(truth, ordered, weight)
    positives, negatives = ties.positives.sum().item(), ties.negatives.sum().item()
    if positives == 0 or negatives == 0:
        return None
    return float(_doubled_wins(ties).sum().item() / (2 * positives * negatives))


def grouped_auc(
    labels: npt.ArrayLike, scores: npt.ArrayLike, groups: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> GroupedAuc:
    """The AUC inside each group (a user, a query), averaged by samples, or by their weights.

    Example:
        >>> from hotrow.metrics import grouped_auc
        >>> grouped_auc([1, 0, 1, 0], [0.9, 0.1, 0.4, 0.5], groups=[1, 1, 2, 2]).value
        0.5
    """
    truth = truth_of(labels)
    ordered, weight = beside(truth, "scores", scores), weights_beside(truth, weights)
    members = beside(truth, "groups", groups)
    if len(truth) == 0:
        return GroupedAuc(None, 0, 0)
    if has_nan(ordered, weight):
        return GroupedAuc(float("nan"), 0, 0)
    ties = _ties(truth, ordered, weight, members.astype(np.int64))
    first_ties = _starts(_ends(ties.groups))
    group_positives = np.add.reduceat(ties.positives, first_ties)
    group_negatives = np.add.reduceat(ties.negatives, first_ties)
    below = np.cumsum(group_negatives) - group_negatives  # negatives of the groups before: no group competes with them
    wins = np.add.reduceat(_doubled_wins(ties), first_ties) - 2 * group_positives * below
    used = (group_positives > 0) & (group_negatives > 0)
    left_out = int((~used).sum())
    if not used.any():
        return GroupedAuc(None, 0, left_out)
    each = wins[used] / (2 * group_positives[used] * group_negatives[used])
    samples = (group_positives + group_negatives)[used]
    return GroupedAuc(float(np.average(each, weights=samples)), int(used.sum()), left_out)


def roc_points(
    labels: npt.ArrayLike, scores: npt.ArrayLike, most: int = POINTS_OF_ROC, weights: npt.ArrayLike | None = None
) -> list[tuple[float, float]]:
    """Points (false positive rate, true positive rate) from (0, 0) to (1, 1), spread evenly along the curve.

    Empty where a class is missing or a score is NaN.

    Example:
        >>> from hotrow.metrics import roc_points
        >>> roc_points([1, 0], [0.9, 0.1])
        [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    """
    if most < 2:
        raise InputError(f"most={most}: must be 2 or more, the curve has two ends")
    truth = truth_of(labels)
    ordered, weight = beside(truth, "scores", scores), weights_beside(truth, weights)
    if truth.all() or not truth.any() or has_nan(ordered, weight):
        return []
    ties = _ties(truth, ordered, weight)
    if not ties.positives.any() or not ties.negatives.any():
        return []
    return points_along(ties.positives, ties.negatives, most)


def points_along(positives: Array, negatives: Array, most: int) -> list[tuple[float, float]]:
    """At most about `most` points of a ROC curve; positives and negatives at each score, lowest first."""
    true_rate = np.concatenate([[0], np.cumsum(positives[::-1])]) / positives.sum()
    false_rate = np.concatenate([[0], np.cumsum(negatives[::-1])]) / negatives.sum()
    way = true_rate + false_rate  # from 0 to 2 along the curve
    chosen = np.unique(np.searchsorted(way, np.linspace(0.0, way[-1], most)))
    return [(float(x), float(y)) for x, y in zip(false_rate[chosen], true_rate[chosen], strict=True)]


def _ties(truth: Truth, scores: Array, weights: Floats | None, groups: Whole | None = None) -> Ties:
    """A plain sort of keys of group (31 bits), score (32) and label (1) is many times faster than argsort."""
    keys = _order_bits(scores).astype(np.uint64)
    if groups is not None:
        keys |= _group_numbers(groups) << np.uint64(32)
    if weights is not None:
        return _weighted_ties(keys, truth, weights)
    keys <<= np.uint64(1)
    keys |= truth
    keys.sort()
    ends = _ends(keys >> 1)
    positives = np.diff(np.cumsum(keys & 1, dtype=np.int64)[ends], prepend=0)
    return Ties(positives, np.diff(ends + 1, prepend=0) - positives, (keys >> 33)[ends])


def _weighted_ties(keys: npt.NDArray[np.uint64], truth: Truth, weights: Floats) -> Ties:
    order = np.argsort(keys, kind="stable")
    keys, ends = keys[order], _ends(keys[order])
    if not len(ends):
        return Ties(np.zeros(0), np.zeros(0), keys)
    positives = np.add.reduceat((weights * truth)[order], _starts(ends))
    negatives = np.add.reduceat((weights * ~truth)[order], _starts(ends))
    return Ties(positives, negatives, (keys >> 32)[ends])


def _order_bits(scores: Array) -> npt.NDArray[np.uint32]:
    """32-bit numbers in the order of the scores, equal where the scores are equal."""
    if scores.dtype != np.float32:
        return np.unique(scores, return_inverse=True)[1].astype(np.uint32)
    bits = (scores + np.float32(0)).view(np.uint32)  # the sum makes -0 and 0 one score
    return bits ^ np.where(bits >> 31, np.uint32(0xFFFFFFFF), np.uint32(0x80000000))


def _group_numbers(groups: Whole) -> npt.NDArray[np.uint64]:
    """A number below GROUPS_MOST for every group; ids that are far apart are counted through first."""
    low, high = int(groups.min()), int(groups.max())
    if high - low < GROUPS_MOST:
        return (groups - low).astype(np.uint64)
    return np.unique(groups, return_inverse=True)[1].astype(np.uint64)


def _ends(ordered: Array) -> Whole:
    """Where each run of equal values ends; empty for no values."""
    return np.concatenate([np.flatnonzero(ordered[1:] != ordered[:-1]), np.arange(len(ordered))[-1:]])


def _starts(ends: Whole) -> Whole:
    """Where each run begins, by where they end."""
    return np.concatenate([[0], ends[:-1] + 1])


def _doubled_wins(ties: Ties) -> Array:
    """Per tie, twice the negatives that its positives beat: those below, and half of those beside."""
    below = np.cumsum(ties.negatives) - ties.negatives
    wins: Array = ties.positives * (2 * below + ties.negatives)
    return wins
