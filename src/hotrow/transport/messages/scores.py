"""Sketches of the scores that trainers computed, for the process of the run."""

from hotrow.transport.messages.header import Count, Header, Number


class CollectScores(Header, frozen=True, tag="collect_scores"):
    """Asks a trainer for the sketch of its batches since the collection before.

    A trainer answers the same number with the same sketch: a request whose reply was lost takes nothing away.
    """

    number: Number


class ScorePoints(Header, frozen=True):
    """The scores of one class. Frames: points (float32) and their masses (float64)."""

    count: Count
    error: float
    level: Count


class CollectedScores(Header, frozen=True, tag="scores"):
    """A sketch. Frames: pairs as labels (uint8), scores and maybe weights (float32), then those of both classes."""

    samples: Number
    not_finite: Number
    nan: bool
    pairs: Count
    weights: bool
    sums: tuple[float, float, float, float]  # weight, positive, predicted, loss
    classes: tuple[ScorePoints, ScorePoints] | None  # positives and negatives; None: all samples are in the pairs
