"""Labels and predictions of a regression in bounded memory: RMSE, MAE, R2 and bias of samples of many places.

Sketches merge in any order. Up to `PAIRS_MOST` samples a sketch keeps them and its figures are those of `Errors`.
Beyond that it keeps sums, from which the figures are exact up to rounding, and for the picture means over groups of
samples with similar predictions (`binned`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.metrics.arrays import Array, Floats, beside, finite_numbers_of, weights_beside
from hotrow.metrics.binned import BinnedMeans, merged_bins, picture_points
from hotrow.metrics.probabilities import BINS
from hotrow.metrics.regression import Errors

PAIRS_MOST = 2**17  # 8 bytes each, 12 with weights


@dataclass(frozen=True, slots=True)
class ErrorSums:
    """Weighted sums over samples that are not kept. `spread` is the sum of (label - mean)^2."""

    weight: float = 0.0
    error: float = 0.0
    absolute: float = 0.0
    squared: float = 0.0
    label_mean: float = 0.0
    spread: float = 0.0
    label_min: float = inf
    label_max: float = -inf

    def __add__(self, other: "ErrorSums") -> "ErrorSums":
        weight = self.weight + other.weight
        if not weight:
            return self
        apart = other.label_mean - self.label_mean
        return ErrorSums(
            weight,
            self.error + other.error,
            self.absolute + other.absolute,
            self.squared + other.squared,
            self.label_mean + apart * other.weight / weight,
            self.spread + other.spread + apart**2 * self.weight * other.weight / weight,
            min(self.label_min, other.label_min),
            max(self.label_max, other.label_max),
        )

    def metrics(self) -> dict[str, float | None]:
        """rmse, mae, r2 and bias."""
        if not self.weight:
            return {"rmse": None, "mae": None, "r2": None, "bias": None}
        r2 = 1 - self.squared / self.spread if self.spread and self.label_min < self.label_max else None
        return {
            "rmse": sqrt(self.squared / self.weight),
            "mae": self.absolute / self.weight,
            "r2": r2,
            "bias": self.error / self.weight,
        }


@dataclass(frozen=True, slots=True, eq=False)
class NumberPairs:
    """Samples as they came, in float32."""

    labels: Array
    predictions: Array
    weights: Array | None

    def __len__(self) -> int:
        return len(self.labels)


class ErrorSketch:
    """Labels and predicted numbers, added batch by batch or sketch by sketch."""

    def __init__(self) -> None:
        self.pairs: list[NumberPairs] = []  # not folded yet
        self.sums = ErrorSums()  # of folded pairs
        self.bins: BinnedMeans | None = None  # the same; None: no pairs were folded
        self.samples = 0

    def __len__(self) -> int:
        return self.samples

    @property
    def exact(self) -> bool:
        """Whether all samples are kept."""
        return self.bins is None

    def add(self, labels: npt.ArrayLike, predictions: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> None:
        """Add a batch; it is copied. Without weights each sample weighs 1."""
        truth = finite_numbers_of("labels", labels)
        given, weight = beside(truth, "predictions", predictions), weights_beside(truth, weights)
        self.pairs.append(
            NumberPairs(
                truth.astype(np.float32),
                given.astype(np.float32),
                None if weight is None else weight.astype(np.float32),
            )
        )
        self.samples += len(truth)
        self._fold_if_many()

    def merge(self, other: "ErrorSketch") -> None:
        """Add all samples of another sketch, which is not changed."""
        self.sums += other.sums
        self.bins = merged_bins([each for each in (self.bins, other.bins) if each is not None])
        self.pairs += other.pairs
        self.samples += other.samples
        self._fold_if_many()

    def compact(self) -> None:
        """Make it as small as it is to be sent: pairs where it is exact, else sums and bins."""
        if not self.exact:
            self._fold()

    def metrics(self) -> dict[str, float | None]:
        """rmse, mae, r2 and bias, as `Errors.metrics` has them."""
        return self._errors().metrics() if self.exact else (self.sums + _sums_of(self.pairs)).metrics()

    def pictures(self) -> dict[str, list[Any]]:
        """What a page draws, as `Errors.pictures`; beyond `PAIRS_MOST` samples from bins."""
        if self.exact:
            return self._errors().pictures()
        bins = merged_bins([each for each in (self.bins, _bins_of(self.pairs)) if each is not None])
        return {"calibration": [] if bins is None else picture_points(bins, BINS)}

    def _fold_if_many(self) -> None:
        if sum(map(len, self.pairs)) > PAIRS_MOST:
            self._fold()

    def _fold(self) -> None:
        if self.pairs:
            self.sums += _sums_of(self.pairs)
            self.bins = merged_bins([each for each in (self.bins, _bins_of(self.pairs)) if each is not None])
            self.pairs = []

    def _errors(self) -> Errors:
        errors = Errors()
        if self.pairs:
            pairs = joined_number_pairs(self.pairs)
            errors.add(pairs.labels, pairs.predictions, pairs.weights)
        return errors


def joined_number_pairs(pairs: Iterable[NumberPairs]) -> NumberPairs:
    """All of them in one."""
    known = list(pairs)
    if not known:
        return NumberPairs(np.zeros(0, np.float32), np.zeros(0, np.float32), None)
    weights = None
    if any(each.weights is not None for each in known):
        weights = np.concatenate(
            [np.ones(len(each), np.float32) if each.weights is None else each.weights for each in known]
        )
    return NumberPairs(
        np.concatenate([each.labels for each in known]), np.concatenate([each.predictions for each in known]), weights
    )


def _sums_of(pairs: list[NumberPairs]) -> ErrorSums:
    joined = joined_number_pairs(pairs)
    labels, errors = joined.labels.astype(np.float64), joined.predictions.astype(np.float64)
    errors -= labels
    weight: Floats = np.ones(len(labels)) if joined.weights is None else joined.weights.astype(np.float64)
    there = weight > 0  # infinity times 0 would be NaN
    labels, errors, weight = labels[there], errors[there], weight[there]
    total = float(weight.sum())
    if not total:
        return ErrorSums()
    middle = float((weight * labels).sum() / total)
    return ErrorSums(
        total,
        float((weight * errors).sum()),
        float((weight * np.abs(errors)).sum()),
        float((weight * errors**2).sum()),
        middle,
        float((weight * (labels - middle) ** 2).sum()),
        float(labels.min()),
        float(labels.max()),
    )


def _bins_of(pairs: list[NumberPairs]) -> BinnedMeans | None:
    joined = joined_number_pairs(pairs)
    if not len(joined):
        return None
    weights = np.ones(len(joined)) if joined.weights is None else joined.weights.astype(np.float64)
    return BinnedMeans.of(joined.labels, joined.predictions, weights)
