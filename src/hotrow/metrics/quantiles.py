"""A distribution of scores as weighted points, with a bound on the error of its cumulative mass.

Distributions add up: their points are united and their errors summed. `reduce_points` keeps at most `POINTS_MOST`
points. With w = mass / POINTS_MOST it takes the points at the cumulative masses w/2, 3w/2, 5w/2, … and gives each the
mass w. The mass up to a score, F, becomes w * round(F / w), so it moves by at most w / 2, whatever the scores and their
ties are. After r reductions the error is at most r / (2 POINTS_MOST) of the mass.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotrow.metrics.arrays import Floats

POINTS_MOST = 2**15  # 12 bytes each
FAN_IN = 16  # distributions of one level that are reduced together: levels grow with the logarithm of the samples

Scores32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class WeightedPoints:
    """Distinct scores, lowest first, and their masses, each above 0."""

    scores: Scores32
    masses: Floats
    error: float = 0.0  # at most this much of the mass up to any score is wrong
    level: int = 0  # reductions

    @classmethod
    def of(cls, scores: Scores32, weights: Floats | None = None) -> "WeightedPoints":
        """The points of scores without NaN; those of weight 0 are left out."""
        if weights is None:
            points, counts = np.unique(scores + np.float32(0), return_counts=True)  # the sum makes -0 and 0 one score
            return cls(points, counts.astype(np.float64))
        there = weights > 0
        return cls(*_folded(scores[there] + np.float32(0), weights[there]))

    @property
    def mass(self) -> float:
        """Of all points."""
        return float(self.masses.sum())


def unite(parts: Sequence[WeightedPoints]) -> WeightedPoints:
    """One distribution of several. Without parts it is empty."""
    if len(parts) == 1:
        return parts[0]
    scores, masses = _folded(
        np.concatenate([np.zeros(0, np.float32), *(part.scores for part in parts)]),
        np.concatenate([np.zeros(0), *(part.masses for part in parts)]),
    )
    return WeightedPoints(scores, masses, sum(part.error for part in parts), max((p.level for p in parts), default=0))


def reduce_points(points: WeightedPoints) -> WeightedPoints:
    """The same distribution with at most `POINTS_MOST` points; unchanged where it has no more."""
    if len(points.scores) <= POINTS_MOST:
        return points
    below = np.cumsum(points.masses)
    width = float(below[-1]) / POINTS_MOST
    places = np.searchsorted(below, (np.arange(POINTS_MOST) + 0.5) * width)
    counts = np.bincount(np.minimum(places, len(below) - 1), minlength=len(below))  # the minimum is for rounding
    error = float(np.abs(np.cumsum(counts) * width - below).max())
    kept = counts > 0
    masses = counts[kept].astype(np.float64) * width
    return WeightedPoints(points.scores[kept], masses, points.error + error, points.level + 1)


def add_part(parts: Iterable[WeightedPoints], part: WeightedPoints) -> list[WeightedPoints]:
    """Parts and one more. `FAN_IN` parts of one level become one of the next, so their number stays small."""
    found = [*parts, part]
    level = part.level
    while len(same := [each for each in found if each.level == level]) >= FAN_IN:
        reduced = reduce_points(unite(same))
        found = [each for each in found if each.level != level]
        found.append(reduced)
        if reduced.level == level:  # few distinct scores: nothing was reduced
            break
        level = reduced.level
    return found


def auc_of(positives: WeightedPoints, negatives: WeightedPoints) -> float | None:
    """The mass of pairs whose positive has the higher score, ties counted half; None without both classes."""
    if not len(positives.scores) or not len(negatives.scores):
        return None
    below = np.concatenate([[0.0], np.cumsum(negatives.masses)])
    left = below[np.searchsorted(negatives.scores, positives.scores, side="left")]
    right = below[np.searchsorted(negatives.scores, positives.scores, side="right")]
    wins = float((positives.masses * (left + right)).sum())
    return wins / (2 * positives.mass * negatives.mass)


def auc_error(positives: WeightedPoints, negatives: WeightedPoints) -> float:
    """A bound on the error of `auc_of`.

    AUC is the mean, over positives, of the share of negatives below, and 1 minus the mean, over negatives, of the share
    of positives below. An error in either distribution moves such a share, and thus its mean, by at most error / mass.
    """
    return sum(each.error / each.mass for each in (positives, negatives) if each.error)


def _folded(scores: Scores32, masses: Floats) -> tuple[Scores32, Floats]:
    order = np.argsort(scores, kind="stable")
    scores, masses = scores[order], masses[order]
    starts = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]])[: len(scores)])
    return scores[starts], np.add.reduceat(masses, starts) if len(starts) else masses
