"""How far predicted numbers are from the true ones: RMSE, MAE, R2, bias."""

from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.errors import InputError
from hotrow.metrics.arrays import Array, Floats, beside, finite_numbers_of, mean, numbers_of, weights_beside
from hotrow.metrics.probabilities import BINS, binned_means


def root_mean_squared_error(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float | None:
    """The root of the mean squared error, in the unit of the label.

    Example:
        >>> from hotrow.metrics import root_mean_squared_error
        >>> root_mean_squared_error([1.0, 2.0], [3.0, 4.0])
        2.0
    """
    _, errors, weight = _errors(labels, predictions, weights)
    squares = mean(errors**2, weight)
    return None if squares is None else sqrt(squares)


def mean_absolute_error(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float | None:
    """The mean distance, in the unit of the label.

    Example:
        >>> from hotrow.metrics import mean_absolute_error
        >>> mean_absolute_error([1.0, 2.0], [1.5, 2.0])
        0.25
    """
    _, errors, weight = _errors(labels, predictions, weights)
    return mean(np.abs(errors), weight)


def r_squared(labels: npt.ArrayLike, predictions: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float | None:
    """1 - squared errors over those of always predicting the mean: 1 is perfect, 0 no better than the mean.

    None where all labels are equal.

    Example:
        >>> from hotrow.metrics import r_squared
        >>> r_squared([1.0, 3.0], [1.0, 3.0])
        1.0
    """
    truth, errors, weight = _errors(labels, predictions, weights)
    counted = truth if weight is None else truth[weight > 0]
    middle, squares = mean(truth, weight), mean(errors**2, weight)
    if middle is None or squares is None or counted.min() == counted.max():
        return None
    spread = mean((truth - middle) ** 2, weight)
    return 1 - squares / spread if spread else None


def bias(labels: npt.ArrayLike, predictions: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> float | None:
    """Mean prediction less mean label: above 0 the model predicts too much.

    Example:
        >>> from hotrow.metrics import bias
        >>> bias([1.0, 2.0], [1.5, 2.0])
        0.25
    """
    _, errors, weight = _errors(labels, predictions, weights)
    return mean(errors, weight)


class Errors:
    """Labels and predictions of an evaluation, collected batch by batch: 8 bytes a sample, 12 with weights.

    Example:
        >>> import numpy as np
        >>> from hotrow.metrics import Errors
        >>> errors = Errors()
        >>> errors.add(np.array([1.0, 2.0]), np.array([1.5, 2.0]))
        >>> round(errors.metrics()["mae"], 2)
        0.25
    """

    def __init__(self) -> None:
        self._labels: list[Array] = []
        self._predictions: list[Array] = []
        self._weights: list[Array] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, labels: npt.ArrayLike, predictions: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> None:
        """Take a batch; it is copied. Either every batch has weights or none has."""
        if self._labels and (weights is not None) != bool(self._weights):
            raise InputError("weights: given with some batches and not with others; give them with all or with none")
        truth = numbers_of("labels", labels)
        given = beside(truth, "predictions", predictions)
        if (weight := weights_beside(truth, weights)) is not None:
            self._weights.append(weight.astype(np.float32))
        self._labels.append(truth.astype(np.float32))
        self._predictions.append(given.astype(np.float32))
        self._count += len(truth)

    def extend(self, other: "Errors") -> None:
        """All samples of another evaluation too."""
        if len(self) and len(other) and bool(other._weights) != bool(self._weights):
            raise InputError("weights: one evaluation has them and the other has not; take them with both or with none")
        self._labels += other._labels
        self._predictions += other._predictions
        self._weights += other._weights
        self._count += len(other)

    def metrics(self) -> dict[str, float | None]:
        """rmse, mae, r2 and bias."""
        joined = self.joined()
        return {
            "rmse": root_mean_squared_error(*joined),
            "mae": mean_absolute_error(*joined),
            "r2": r_squared(*joined),
            "bias": bias(*joined),
        }

    def pictures(self) -> dict[str, list[Any]]:
        """What a page draws: mean label by mean prediction."""
        labels, predictions, weights = self.joined()
        weight = None if weights is None else weights.astype(np.float64)
        return {"calibration": binned_means(labels, predictions.astype(np.float64), BINS, weight)}

    def joined(self) -> tuple[Array, Array, Array | None]:
        """Labels, predictions and weights of all samples, in the order in which they came."""
        if not self._labels:
            return np.zeros(0, np.float32), np.zeros(0, np.float32), None
        weights = np.concatenate(self._weights) if self._weights else None
        return np.concatenate(self._labels), np.concatenate(self._predictions), weights


def _errors(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, weights: npt.ArrayLike | None
) -> tuple[Floats, Floats, Floats | None]:
    truth = finite_numbers_of("labels", labels).astype(np.float64)
    guesses = beside(truth, "predictions", predictions).astype(np.float64)
    return truth, guesses - truth, weights_beside(truth, weights)
