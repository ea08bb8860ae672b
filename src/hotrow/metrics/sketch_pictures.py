"""The ROC curve and the calibration of two classes whose scores are known as distributions."""

import numpy as np

from hotrow.metrics.binned import BinnedMeans, picture_points
from hotrow.metrics.probabilities import BINS, sigmoid
from hotrow.metrics.quantiles import WeightedPoints
from hotrow.metrics.ranking import POINTS_OF_ROC, points_along


def roc_of(positives: WeightedPoints, negatives: WeightedPoints) -> list[tuple[float, float]]:
    """Points (false positive rate, true positive rate); empty where a class is missing."""
    if not len(positives.scores) or not len(negatives.scores):
        return []
    scores = np.union1d(positives.scores, negatives.scores)
    masses = np.zeros((2, len(scores)))
    for of_class, points in zip(masses, (positives, negatives), strict=True):
        of_class[np.searchsorted(scores, points.scores)] = points.masses
    return points_along(masses[0], masses[1], POINTS_OF_ROC)


def calibration_of(positives: WeightedPoints, negatives: WeightedPoints, samples: int) -> list[dict[str, float | int]]:
    """Mean prediction and mean label in bins of equal mass, lowest predictions first; counts are parts of `samples`."""
    scores = np.concatenate([positives.scores, negatives.scores])
    masses = np.concatenate([positives.masses, negatives.masses])
    if not len(scores):
        return []
    order = np.argsort(scores, kind="stable")
    observed = np.concatenate([positives.masses, np.zeros(len(negatives.scores))])
    counts = masses * (samples / masses.sum())
    bins = BinnedMeans(masses[order], (masses * sigmoid(scores))[order], observed[order], counts[order])
    return picture_points(bins, BINS)
