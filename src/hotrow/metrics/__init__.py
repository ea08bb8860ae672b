"""How good predictions are: AUC, logloss, normalised entropy and calibration of labels 0 and 1; errors of numbers.

Everything is computed in float64 or in whole numbers and sorted once, so that ten million samples take seconds. With
`weights` (one per sample, 0 or more) every mean and every count is a weighted one. Without samples, without weight, or
without the class that a figure needs, the figure is None. A prediction that is NaN makes the whole figure NaN.
"""

from hotrow.metrics.probabilities import (
    binned_means,
    calibration,
    calibration_points,
    logloss,
    logloss_of_logits,
    normalised_entropy,
    sigmoid,
)
from hotrow.metrics.ranking import GroupedAuc, auc, grouped_auc, roc_points
from hotrow.metrics.regression import Errors, bias, mean_absolute_error, r_squared, root_mean_squared_error
from hotrow.metrics.scores import Scores

__all__ = [
    "Errors",
    "GroupedAuc",
    "Scores",
    "auc",
    "bias",
    "binned_means",
    "calibration",
    "calibration_points",
    "grouped_auc",
    "logloss",
    "logloss_of_logits",
    "mean_absolute_error",
    "normalised_entropy",
    "r_squared",
    "roc_points",
    "root_mean_squared_error",
    "sigmoid",
]
