"""How right probabilities are: logloss, normalised entropy, calibration."""

from math import log, log1p

import numpy as np
import numpy.typing as npt

from hotrow.errors import InputError
from hotrow.metrics.arrays import Array, Floats, Truth, beside, mean, truth_of, weights_beside

BINS = 20  # of a picture


def logloss(labels: npt.ArrayLike, probabilities: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float | None:
    """Mean negative log-likelihood in nats. Infinite where a probability of exactly 0 or 1 is wrong.

    Example:
        >>> from hotrow.metrics import logloss
        >>> round(logloss([1, 0], [0.9, 0.2]), 4)
        0.1643
    """
    truth, chances = _probabilities(labels, probabilities)
    with np.errstate(divide="ignore"):  # log(0) is the infinity that is meant
        return mean(-np.where(truth, np.log(chances), np.log1p(-chances)), weights_beside(truth, weights))


def logloss_of_logits(
    labels: npt.ArrayLike, logits: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float | None:
    """The `logloss` of sigmoid(logits), computed without forming it: large logits lose no precision.

    Example:
        >>> from hotrow.metrics import logloss_of_logits
        >>> round(logloss_of_logits([1, 0], [2.0, -1.0]), 4)
        0.2201
    """
    truth = truth_of(labels)
    given, weight = beside(truth, "logits", logits), weights_beside(truth, weights)
    return mean(logloss_terms(truth, given), weight)


def logloss_terms(truth: Truth, logits: Array) -> Floats:
    """The negative log-likelihood of each sample."""
    wrongness = np.where(truth, -logits.astype(np.float64), logits)
    return np.asarray(np.maximum(wrongness, 0.0) + np.log1p(np.exp(-np.abs(wrongness))))


def normalised_entropy(labels: npt.ArrayLike, loss: float | None, weights: npt.ArrayLike | None = None) -> float | None:
    """The logloss over that of always predicting the base rate (He et al. 2014): below 1 is better than no model.

    Example:
        >>> from hotrow.metrics import normalised_entropy
        >>> round(normalised_entropy([1, 0], loss=0.5), 4)
        0.7213
    """
    truth = truth_of(labels)
    rate = mean(truth, weights_beside(truth, weights))
    if loss is None or rate is None or not 0 < rate < 1:
        return None
    return loss / entropy(rate)


def entropy(rate: float) -> float:
    """Of a label that is 1 with a probability between 0 and 1, in nats."""
    return -(rate * log(rate) + (1 - rate) * log1p(-rate))


def calibration(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float | None:
    """Mean prediction over mean label: 1.1 predicts ten percent too many clicks. None without a positive.

    Example:
        >>> from hotrow.metrics import calibration
        >>> round(calibration([1, 0], [0.6, 0.5]), 2)
        1.1
    """
    truth, chances = _probabilities(labels, probabilities)
    weight = weights_beside(truth, weights)
    predicted, rate = mean(chances, weight), mean(truth, weight)
    return predicted / rate if predicted is not None and rate else None


def sigmoid(logits: npt.ArrayLike) -> Floats:
    """Probabilities of logits, in float64, without overflow.

    Example:
        >>> from hotrow.metrics import sigmoid
        >>> sigmoid([0.0]).tolist()
        [0.5]
    """
    given = np.asarray(logits, np.float64)
    small = np.exp(-np.abs(given))
    return np.where(given >= 0, 1.0, small) / (1.0 + small)


def calibration_points(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, bins: int = BINS, weights: npt.ArrayLike | None = None
) -> list[dict[str, float | int]]:
    """Mean prediction and mean label in bins of equal count, lowest predictions first.

    Equal predictions stay in one bin, so there are fewer bins where many are equal. Empty where a prediction is NaN.

    Example:
        >>> from hotrow.metrics import calibration_points
        >>> len(calibration_points([1, 0, 1, 0], [0.8, 0.1, 0.9, 0.3], bins=2))
        2
    """
    truth, chances = _probabilities(labels, probabilities)
    return binned_means(truth, chances, bins, weights_beside(truth, weights))


def binned_means(labels: Array, predictions: Array, bins: int, weights: Floats | None) -> list[dict[str, float | int]]:
    """The points of `calibration_points` for any numbers; a bin whose weights are all 0 has no point.

    Example:
        >>> import numpy as np
        >>> from hotrow.metrics import binned_means
        >>> len(binned_means(np.array([1.0, 3.0]), np.array([1.5, 2.5]), 2, None))
        2
    """
    if bins < 1:
        raise InputError(f"bins={bins}: must be 1 or more")
    if len(labels) == 0 or np.isnan(predictions).any():
        return []
    last_of_bin = np.arange(1, bins + 1) * len(labels) // bins - 1
    borders = np.unique(np.sort(predictions)[last_of_bin[last_of_bin >= 0]])
    bin_of = np.searchsorted(borders, predictions)
    counts = np.bincount(bin_of)
    weight = np.ones(len(labels)) if weights is None else weights
    totals = np.bincount(bin_of, weight)
    there = totals > 0
    predicted = np.bincount(bin_of, predictions * weight)[there] / totals[there]
    observed = np.bincount(bin_of, labels * weight)[there] / totals[there]
    return [
        {"predicted": float(guess), "observed": float(rate), "count": int(count)}
        for guess, rate, count in zip(predicted, observed, counts[there], strict=True)
    ]


def _probabilities(labels: npt.ArrayLike, probabilities: npt.ArrayLike) -> tuple[Truth, Floats]:
    truth = truth_of(labels)
    chances = beside(truth, "probabilities", probabilities)
    outside = chances[(chances < 0) | (chances > 1)]
    if len(outside):
        raise InputError(
            f"probabilities hold {outside[0].item()} ({len(outside):,} in all are outside 0 to 1): "
            "give logits to the functions of logits"
        )
    return truth, chances.astype(np.float64)
