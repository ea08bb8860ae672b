"""Scores, labels and weights in bounded memory: AUC, logloss and calibration of samples that were seen in many places.

Sketches merge in any order. Up to `PAIRS_MOST` samples a sketch keeps them and its figures are those of
`hotrow.metrics`. Beyond that it keeps the distribution of the scores of each class (`quantiles`) and sums, so
that logloss and calibration stay exact up to rounding, and AUC has an error of at most `auc_error`:
reductions / POINTS_MOST, 3.1e-5 each. A million samples need two at most, one when pairs are folded and one when the
sketch is sent.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hotrow.metrics.arrays import Floats, Truth, beside, truth_of, weights_beside
from hotrow.metrics.probabilities import entropy, logloss_terms, sigmoid
from hotrow.metrics.quantiles import Scores32, WeightedPoints, add_part, auc_error, auc_of, reduce_points, unite
from hotrow.metrics.scores import Scores
from hotrow.metrics.sketch_pictures import calibration_of, roc_of

PAIRS_MOST = (
    2**17
)  # 5 bytes each: as many bytes as the points of two classes, so a sketch is not smaller than its pairs


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Samples as they came."""

    labels: Truth
    scores: Scores32
    weights: Scores32 | None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, slots=True)
class ScoreSums:
    """Weighted sums over samples that are not kept."""

    weight: float = 0.0
    positive: float = 0.0
    predicted: float = 0.0  # of probabilities
    loss: float = 0.0

    def __add__(self, other: "ScoreSums") -> "ScoreSums":
        return ScoreSums(
            self.weight + other.weight,
            self.positive + other.positive,
            self.predicted + other.predicted,
            self.loss + other.loss,
        )


class ScoreSketch:
    """Labels 0 and 1 and their log-odds, added batch by batch or sketch by sketch."""

    def __init__(self) -> None:
        self.pairs: list[Pairs] = []  # not folded yet
        self.positives: list[WeightedPoints] = []
        self.negatives: list[WeightedPoints] = []
        self.sums = ScoreSums()  # of folded pairs
        self.samples = 0
        self.not_finite = 0  # samples whose score is NaN or infinite
        self.nan = False  # a score that weighs is NaN

    def __len__(self) -> int:
        return self.samples

    @property
    def exact(self) -> bool:
        """Whether all samples are kept."""
        return not self.positives and not self.negatives

    def add(self, labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None) -> None:
        """Add a batch; it is copied. Without weights each sample weighs 1."""
        truth = truth_of(labels)
        logits, weight = beside(truth, "scores", scores).astype(np.float32), weights_beside(truth, weights)
        nan = np.isnan(logits)
        self._append(
            Pairs(truth, logits, None if weight is None else weight.astype(np.float32)),
            not_finite=len(logits) - int(np.isfinite(logits).sum()),
            nan=bool((nan if weight is None else nan & (weight > 0)).any()),
        )

    def merge(self, other: "ScoreSketch") -> None:
        """Add all samples of another sketch, which is not changed. The order of merges moves AUC within its error."""
        for part in other.positives:
            self.positives = add_part(self.positives, part)
        for part in other.negatives:
            self.negatives = add_part(self.negatives, part)
        self.sums += other.sums
        self.pairs += other.pairs
        self.samples += other.samples
        self.not_finite += other.not_finite
        self.nan = self.nan or other.nan
        self._fold_if_many()

    def compact(self) -> None:
        """Make it as small as it is to be sent: pairs where it is exact, else one distribution for each class."""
        if not self.exact:
            self._fold()
            self.positives = [reduce_points(unite(self.positives))]
            self.negatives = [reduce_points(unite(self.negatives))]

    def auc(self) -> float | None:
        """None without both classes, NaN where a score is NaN."""
        if self.exact:
            return self._scores().metrics()["auc"]
        return float("nan") if self.nan else auc_of(*self._distributions())

    @property
    def auc_error(self) -> float:
        """The largest possible error of `auc`; 0 where it is exact."""
        return 0.0 if self.exact else auc_error(*self._distributions())

    def metrics(self) -> dict[str, float | None]:
        """auc, logloss, normalised_entropy and calibration, as `Scores.metrics` has them."""
        if self.exact:
            return self._scores().metrics()
        sums = self.sums + _sums_of(self.pairs)
        if not sums.weight:
            return {"auc": None, "logloss": None, "normalised_entropy": None, "calibration": None}
        rate, loss = sums.positive / sums.weight, sums.loss / sums.weight
        return {
            "auc": self.auc(),
            "logloss": loss,
            "normalised_entropy": loss / entropy(rate) if 0 < rate < 1 else None,
            "calibration": sums.predicted / sums.positive if sums.positive else None,
        }

    def pictures(self) -> dict[str, list[Any]]:
        """What a page draws, as `Scores.pictures`; where it is not exact, from the distributions of the classes."""
        if self.exact:
            return self._scores().pictures()
        if self.nan:
            return {"roc": [], "calibration": []}
        classes = self._distributions()
        return {
            "roc": [list(point) for point in roc_of(*classes)],
            "calibration": calibration_of(*classes, self.samples),
        }

    def _append(self, pairs: Pairs, *, not_finite: int, nan: bool) -> None:
        self.pairs.append(pairs)
        self.samples += len(pairs)
        self.not_finite += not_finite
        self.nan = self.nan or nan
        self._fold_if_many()

    def _fold_if_many(self) -> None:
        if sum(map(len, self.pairs)) > PAIRS_MOST:
            self._fold()

    def _fold(self) -> None:
        if not self.pairs:
            return
        positives, negatives = _distributions_of(self.pairs)
        self.sums += _sums_of(self.pairs)
        self.positives = add_part(self.positives, reduce_points(positives))
        self.negatives = add_part(self.negatives, reduce_points(negatives))
        self.pairs = []

    def _distributions(self) -> tuple[WeightedPoints, WeightedPoints]:
        positives, negatives = _distributions_of(self.pairs)
        return unite([*self.positives, positives]), unite([*self.negatives, negatives])

    def _scores(self) -> Scores:
        scores = Scores()
        if self.pairs:
            pairs = joined_pairs(self.pairs)
            scores.add(pairs.labels, pairs.scores, weights=pairs.weights)
        return scores


def merged(sketches: Iterable[ScoreSketch]) -> ScoreSketch:
    """One sketch of several; of none, an empty one."""
    found = ScoreSketch()
    for sketch in sketches:
        found.merge(sketch)
    return found


def joined_pairs(pairs: list[Pairs]) -> Pairs:
    """All of them in one."""
    if not pairs:
        return Pairs(np.zeros(0, np.bool_), np.zeros(0, np.float32), None)
    weights = None
    if any(each.weights is not None for each in pairs):
        weights = np.concatenate(
            [np.ones(len(each), np.float32) if each.weights is None else each.weights for each in pairs]
        )
    return Pairs(
        np.concatenate([each.labels for each in pairs]), np.concatenate([each.scores for each in pairs]), weights
    )


def _distributions_of(pairs: list[Pairs]) -> tuple[WeightedPoints, WeightedPoints]:
    joined = joined_pairs(pairs)
    truth, logits, weights = joined.labels, joined.scores, joined.weights
    known = ~np.isnan(logits)

    def of(members: Truth) -> WeightedPoints:
        return WeightedPoints.of(logits[members], None if weights is None else weights[members].astype(np.float64))

    return of(truth & known), of(~truth & known)


def _sums_of(pairs: list[Pairs]) -> ScoreSums:
    joined = joined_pairs(pairs)
    truth, logits, weights = joined.labels, joined.scores, joined.weights
    if weights is not None:
        there = weights > 0  # infinity times 0 would be NaN
        truth, logits, weights = truth[there], logits[there], weights[there]
    weight: Floats = np.ones(len(truth)) if weights is None else weights.astype(np.float64)
    return ScoreSums(
        float(weight.sum()),
        float(weight[truth].sum()),
        float((weight * sigmoid(logits)).sum()),
        float((weight * logloss_terms(truth, logits)).sum()),
    )
