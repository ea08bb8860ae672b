"""How good predictions are: AUC, logloss, normalised entropy, calibration, and the pictures of them.

Labels are 0 or 1. Everything is computed in float64 or in whole numbers and sorted once, so that ten million samples
take seconds. Without samples, or without the class that a figure needs, the figure is None. A score that is NaN has no
place in an order and makes the whole figure NaN.
"""

from dataclasses import dataclass
from math import log, log1p
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hotrow.errors import InputError

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Whole: TypeAlias = npt.NDArray[np.int64]

GROUPS_MOST = 2**31  # group, score and label share the 64 bits of a sort key


@dataclass(frozen=True, slots=True)
class GroupedAuc:
    """The mean AUC of groups, weighted by their samples; groups of one class have no AUC and are left out."""

    value: float | None
    groups_used: int
    groups_left_out: int


def auc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float | None:
    """The chance that a random positive scores above a random negative; ties count half. None without both classes."""
    truth, ordered = _pair(labels, "scores", scores)
    if np.isnan(ordered).any():
        return float("nan")
    at_tie, negatives_at_tie = _ties(_sort_keys(truth, ordered))
    positives, negatives = int(at_tie.sum()), int(negatives_at_tie.sum())
    if positives == 0 or negatives == 0:
        return None
    return int(_doubled_wins(at_tie, negatives_at_tie).sum()) / (2 * positives * negatives)


def grouped_auc(labels: npt.ArrayLike, scores: npt.ArrayLike, groups: npt.ArrayLike) -> GroupedAuc:
    """The AUC inside each group (a user, a query), averaged by samples."""
    truth, ordered = _pair(labels, "scores", scores)
    _, members = _pair(labels, "groups", groups)
    if len(truth) == 0:
        return GroupedAuc(None, 0, 0)
    if np.isnan(ordered).any():
        return GroupedAuc(float("nan"), 0, 0)
    keys = _sort_keys(truth, ordered, members.astype(np.int64))
    positives, negatives = _ties(keys)
    group_of_tie = (keys >> 33)[_ends(keys >> 1)]
    first_ties = np.concatenate([[0], _ends(group_of_tie)[:-1] + 1])
    group_positives = np.add.reduceat(positives, first_ties)
    group_negatives = np.add.reduceat(negatives, first_ties)
    below = np.cumsum(group_negatives) - group_negatives  # negatives of the groups before: no group competes with them
    wins = np.add.reduceat(_doubled_wins(positives, negatives), first_ties) - 2 * group_positives * below
    used = (group_positives > 0) & (group_negatives > 0)
    left_out = int((~used).sum())
    if not used.any():
        return GroupedAuc(None, 0, left_out)
    each = wins[used] / (2 * group_positives[used] * group_negatives[used])
    samples = (group_positives + group_negatives)[used]
    return GroupedAuc(float(np.average(each, weights=samples)), int(used.sum()), left_out)


def logloss(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> float | None:
    """Mean negative log-likelihood in nats. Infinite where a probability of exactly 0 or 1 is wrong."""
    truth, chances = _probabilities(labels, probabilities)
    if len(truth) == 0:
        return None
    with np.errstate(divide="ignore"):  # log(0) is the infinity that is meant
        return float(-np.where(truth, np.log(chances), np.log1p(-chances)).mean())


def logloss_of_logits(labels: npt.ArrayLike, logits: npt.ArrayLike) -> float | None:
    """As `logloss` of their sigmoid, which is never formed: large logits lose nothing."""
    truth, given = _pair(labels, "logits", logits)
    if len(truth) == 0:
        return None
    wrongness = np.where(truth, -given.astype(np.float64), given)
    return float((np.maximum(wrongness, 0.0) + np.log1p(np.exp(-np.abs(wrongness)))).mean())


def normalised_entropy(labels: npt.ArrayLike, loss: float | None) -> float | None:
    """The logloss over that of always predicting the base rate (He et al. 2014): below 1 is better than no model."""
    truth = _labels(labels)
    if loss is None or truth.all() or not truth.any():
        return None
    rate = float(truth.mean())
    return loss / -(rate * log(rate) + (1 - rate) * log1p(-rate))


def calibration(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> float | None:
    """Mean prediction over mean label: 1.1 predicts ten percent too many clicks. None without a positive."""
    truth, chances = _probabilities(labels, probabilities)
    return float(chances.mean() / truth.mean()) if truth.any() else None


def sigmoid(logits: npt.ArrayLike) -> Floats:
    """Probabilities of logits, in float64, without overflow."""
    given = np.asarray(logits, np.float64)
    small = np.exp(-np.abs(given))
    return np.where(given >= 0, 1.0, small) / (1.0 + small)


def roc_points(labels: npt.ArrayLike, scores: npt.ArrayLike, most: int = 400) -> list[tuple[float, float]]:
    """Points (false positive rate, true positive rate) from (0, 0) to (1, 1), spread evenly along the curve.

    Empty where a class is missing or a score is NaN.
    """
    if most < 2:
        raise InputError(f"most={most}: must be 2 or more, the curve has two ends")
    truth, ordered = _pair(labels, "scores", scores)
    if truth.all() or not truth.any() or np.isnan(ordered).any():
        return []
    positives, negatives = _ties(_sort_keys(truth, ordered))
    true_rate = np.concatenate([[0], np.cumsum(positives[::-1])]) / positives.sum()
    false_rate = np.concatenate([[0], np.cumsum(negatives[::-1])]) / negatives.sum()
    way = true_rate + false_rate  # from 0 to 2 along the curve
    chosen = np.unique(np.searchsorted(way, np.linspace(0.0, way[-1], most)))
    return [(float(x), float(y)) for x, y in zip(false_rate[chosen], true_rate[chosen], strict=True)]


def calibration_points(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, bins: int = 20
) -> list[dict[str, float | int]]:
    """Mean prediction and mean label in bins of equal count, lowest predictions first.

    Equal predictions stay in one bin, so there are fewer bins where many are equal. Empty where a prediction is NaN.
    """
    if bins < 1:
        raise InputError(f"bins={bins}: must be 1 or more")
    truth, chances = _probabilities(labels, probabilities)
    if len(truth) == 0 or np.isnan(chances).any():
        return []
    last_of_bin = np.arange(1, bins + 1) * len(truth) // bins - 1
    borders = np.unique(np.sort(chances)[last_of_bin[last_of_bin >= 0]])
    bin_of = np.searchsorted(borders, chances)
    counts = np.bincount(bin_of)
    predicted = np.bincount(bin_of, chances) / counts
    observed = np.bincount(bin_of, truth) / counts
    return [
        {"predicted": float(mean), "observed": float(rate), "count": int(count)}
        for mean, rate, count in zip(predicted, observed, counts, strict=True)
    ]


class Scores:
    """Labels and logits of an evaluation, collected batch by batch: 8 bytes a sample, 16 with groups."""

    def __init__(self) -> None:
        self._labels: list[Array] = []
        self._logits: list[Array] = []
        self._groups: list[Array] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, labels: npt.ArrayLike, logits: npt.ArrayLike, groups: npt.ArrayLike | None = None) -> None:
        """Take a batch; it is copied. Either every batch has groups or none has."""
        if self._labels and (groups is not None) != bool(self._groups):
            raise InputError("groups: given with some batches and not with others; give them with all or with none")
        truth, given = _pair(labels, "logits", logits)
        if groups is not None:
            self._groups.append(_pair(labels, "groups", groups)[1].astype(np.int64))
        self._labels.append(truth.astype(np.float32))
        self._logits.append(given.astype(np.float32))
        self._count += len(truth)

    def extend(self, other: "Scores") -> None:
        """All samples of another evaluation too."""
        if len(self) and len(other) and bool(other._groups) != bool(self._groups):
            raise InputError("groups: one evaluation has them and the other has not; take them with both or with none")
        self._labels += other._labels
        self._logits += other._logits
        self._groups += other._groups
        self._count += len(other)

    def metrics(self) -> dict[str, float | None]:
        """auc, logloss, normalised_entropy and calibration; with groups also grouped_auc and the groups behind it."""
        labels, logits = self._joined()
        loss = logloss_of_logits(labels, logits)
        figures = {
            "auc": auc(labels, logits),
            "logloss": loss,
            "normalised_entropy": normalised_entropy(labels, loss),
            "calibration": calibration(labels, sigmoid(logits)),
        }
        if self._groups:
            grouped = grouped_auc(labels, logits, np.concatenate(self._groups))
            figures["grouped_auc"] = grouped.value
            figures["groups_used"] = grouped.groups_used
            figures["groups_left_out"] = grouped.groups_left_out
        return figures

    def pictures(self) -> dict[str, list[Any]]:
        """What a page draws: points of the ROC curve and of the calibration."""
        labels, logits = self._joined()
        return {
            "roc": [list(point) for point in roc_points(labels, logits)],
            "calibration": calibration_points(labels, sigmoid(logits)),
        }

    def _joined(self) -> tuple[Array, Array]:
        if not self._labels:
            return np.zeros(0, np.float32), np.zeros(0, np.float32)
        return np.concatenate(self._labels), np.concatenate(self._logits)


def _sort_keys(truth: Array, scores: Array, groups: Whole | None = None) -> npt.NDArray[np.uint64]:
    """Sorted keys of group (31 bits), score (32) and label (1): a plain sort is many times faster than argsort."""
    keys = _order_bits(scores).astype(np.uint64)
    if groups is not None:
        keys |= _group_numbers(groups) << np.uint64(32)
    keys <<= np.uint64(1)
    keys |= truth
    keys.sort()
    return keys


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


def _ties(keys: npt.NDArray[np.uint64]) -> tuple[Whole, Whole]:
    """Positives and negatives at each distinct score, lowest first."""
    ends = _ends(keys >> 1)
    positives = np.diff(np.cumsum(keys & 1, dtype=np.int64)[ends], prepend=0)
    return positives, np.diff(ends + 1, prepend=0) - positives


def _doubled_wins(positives: Whole, negatives: Whole) -> Whole:
    """Per tie, twice the negatives that its positives beat: those below, and half of those beside."""
    below = np.cumsum(negatives) - negatives
    return positives * (2 * below + negatives)


def _labels(labels: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    given = np.asarray(labels)
    if given.ndim != 1:
        raise InputError(f"labels have shape {given.shape}: must be one row of 0 and 1")
    if given.dtype.kind not in "biuf":
        raise InputError(f"labels are of type {given.dtype}: must be numbers")
    strange = given[(given != 0) & (given != 1)]
    if len(strange):
        raise InputError(f"labels hold {strange[0].item()} ({len(strange):,} in all are odd): each must be 0 or 1")
    return given.astype(np.bool_)


def _pair(labels: npt.ArrayLike, name: str, values: npt.ArrayLike) -> tuple[npt.NDArray[np.bool_], Array]:
    truth, given = _labels(labels), np.asarray(values)
    if given.shape != truth.shape:
        raise InputError(f"{name} have shape {given.shape} and labels {truth.shape}: give one for each label")
    if given.dtype.kind not in ("iu" if name == "groups" else "iuf"):
        kind = "whole numbers" if name == "groups" else "numbers"
        raise InputError(f"{name} are of type {given.dtype}: must be {kind}")
    return truth, given


def _probabilities(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> tuple[npt.NDArray[np.bool_], Floats]:
    truth, chances = _pair(labels, "probabilities", probabilities)
    outside = chances[(chances < 0) | (chances > 1)]
    if len(outside):
        raise InputError(
            f"probabilities hold {outside[0].item()} ({len(outside):,} in all are outside 0 to 1): "
            "give logits to the functions of logits"
        )
    return truth, chances.astype(np.float64)
