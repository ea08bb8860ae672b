"""Means over groups of samples with similar predictions: what a calibration picture of many samples is drawn from.

A bin has the sums of weight, of weight * prediction and of weight * label, and a count. Bins of several places are put
in order by their mean prediction, and neighbours are united until at most `BINS_MOST` are left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotrow.metrics.arrays import Array, Floats

BINS_MOST = 2**12  # 32 bytes each; a picture has 20


@dataclass(frozen=True, slots=True, eq=False)
class BinnedMeans:
    """Sums by bin, lowest predictions first, each with a count above 0."""

    weights: Floats
    predicted: Floats
    observed: Floats
    counts: Floats
    nan: bool = False  # a prediction is NaN: there is no order

    @classmethod
    def of(cls, labels: Array, predictions: Array, weights: Floats) -> "BinnedMeans":
        """The bins of single samples."""
        values = predictions.astype(np.float64)
        order = np.argsort(values, kind="stable")
        weight = weights[order]
        return _united(
            cls(
                weight,
                weight * values[order],
                weight * labels.astype(np.float64)[order],
                np.ones(len(values)),
                bool(np.isnan(values).any()),
            ),
            BINS_MOST,
        )

    def __len__(self) -> int:
        return len(self.counts)


def merged_bins(parts: Sequence[BinnedMeans]) -> BinnedMeans | None:
    """The bins of several places; None of none."""
    if len(parts) < 2:
        return parts[0] if parts else None
    weights, predicted, observed, counts = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("weights", "predicted", "observed", "counts")
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        order = np.argsort(np.where(weights > 0, predicted / weights, -np.inf), kind="stable")
    nan = any(part.nan for part in parts)
    return _united(BinnedMeans(weights[order], predicted[order], observed[order], counts[order], nan), BINS_MOST)


def picture_points(bins: BinnedMeans, most: int) -> list[dict[str, float | int]]:
    """Mean prediction and mean label in about `most` bins of equal count; empty where a prediction is NaN."""
    if bins.nan:
        return []
    found = _united(bins, most)
    there = found.weights > 0
    means = found.predicted[there] / found.weights[there], found.observed[there] / found.weights[there]
    return [
        {"predicted": float(guess), "observed": float(rate), "count": int(count)}
        for guess, rate, count in zip(*means, found.counts[there], strict=True)
    ]


def _united(bins: BinnedMeans, most: int) -> BinnedMeans:
    """Neighbours united, so that at most `most` bins of about equal count are left."""
    if len(bins) <= most:
        return bins
    middles = np.cumsum(bins.counts) - bins.counts / 2
    places: NDArray[np.int64] = (middles * most / bins.counts.sum()).astype(np.int64)
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    sums = [np.add.reduceat(each, starts) for each in (bins.weights, bins.predicted, bins.observed, bins.counts)]
    return BinnedMeans(sums[0], sums[1], sums[2], sums[3], bins.nan)
