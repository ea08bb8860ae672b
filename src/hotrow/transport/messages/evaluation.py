"""Evaluations that trainers compute: the driver deals batches, and collects sketches at the end."""

from typing import Literal

from hotrow.transport.messages.header import Count, Header, Number
from hotrow.transport.messages.scores import CollectedScores
from hotrow.transport.messages.work import BatchAt


class BeginEvaluation(Header, frozen=True, tag="begin_evaluation"):
    """Predict with the dense parameters that follow (safetensors, cut up), and the rows after an order."""

    evaluation: Number
    after: Number


class EvaluateBatch(Header, frozen=True, tag="evaluate_batch"):
    """Predict a batch that is kept by a loader. The reply comes when its scores are in the sketches."""

    evaluation: Number
    batch: Number
    at: BatchAt


class EndEvaluation(Header, frozen=True, tag="end_evaluation"):
    """Asks for the sketches of all batches; asked again, a trainer gives the same."""

    evaluation: Number


class CollectedErrors(Header, frozen=True):
    """A sketch of a regression.

    Frames: pairs as labels, predictions and maybe weights (float32), then the sums of the bins: weights, predictions,
    labels, counts (float64).
    """

    samples: Number
    pairs: Count
    weights: bool
    sums: tuple[float, float, float, float, float, float, float, float]
    bins: Count | None  # None: all samples are in the pairs
    nan: bool


class EvaluationScores(Header, frozen=True, tag="evaluation_scores"):
    """The sketches of an evaluation on one trainer, one for each label; frames in their order."""

    kind: Literal["none", "labels", "numbers", "classes"]  # none: there was no batch
    rows: Number = 0
    labels: tuple[CollectedScores, ...] = ()
    numbers: tuple[CollectedErrors, ...] = ()
    classes: tuple[float, float, float] = (0.0, 0.0, 0.0)  # weight, right, loss
