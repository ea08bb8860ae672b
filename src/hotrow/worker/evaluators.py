"""Metrics of outputs: log-odds per label, numbers per label, or scores of classes.

An evaluator keeps all samples, or sketches of them: trainers of a cluster have sketches, which the driver merges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.metrics import Errors, Scores
from hotrow.metrics.error_sketch import ErrorSketch
from hotrow.metrics.sketch import ScoreSketch
from hotrow.worker.losses import Task

Metrics = dict[str, float | None]
Pictured: TypeAlias = Scores | Errors | ScoreSketch | ErrorSketch
Predictions = Callable[[Tensor], Tensor]  # from the model's output to the numbers it predicts


class Evaluator(Protocol):
    """Takes outputs in, batch by batch."""

    @property
    def rows(self) -> int:
        """Samples so far."""

    @property
    def scores(self) -> Pictured | None:
        """Of the first label, for pictures."""

    @property
    def auc_error(self) -> float:
        """The largest possible error of an AUC among the metrics; 0 where they are exact."""

    def add(self, output: Tensor, batch: Batch) -> None:
        """Add the outputs of one batch."""

    def plus(self, *others: Any) -> "Evaluator":
        """A new one with the samples of all, which are of the same kind; by sketches where one has sketches."""

    def metrics(self) -> Metrics:
        """Over all of them."""


class AnyEvaluator:
    """Chooses the evaluator for the outputs it gets. `predictions` are those of a regression."""

    def __init__(
        self,
        task: Task = "classification",
        predictions: Predictions | None = None,
        *,
        sketched: bool = False,
        chosen: Evaluator | None = None,
    ) -> None:
        """`sketched`: its memory has a bound, and AUC may have an error."""
        self._task, self._predictions, self._sketched = task, predictions, sketched
        self.chosen = chosen

    @property
    def rows(self) -> int:
        return 0 if self.chosen is None else self.chosen.rows

    @property
    def scores(self) -> Pictured | None:
        """Of the first label, for pictures."""
        return None if self.chosen is None else self.chosen.scores

    @property
    def auc_error(self) -> float:
        """The largest possible error of an AUC among the metrics; 0 where they are exact."""
        return 0.0 if self.chosen is None else self.chosen.auc_error

    def add(self, output: Tensor, batch: Batch) -> None:
        """Add the outputs of one batch."""
        if self.chosen is None:
            self.chosen = evaluator_for(output, batch, self._task, self._predictions, sketched=self._sketched)
        self.chosen.add(output, batch)

    def merge(self, other: "AnyEvaluator") -> None:
        """Add what another evaluator of the same model got."""
        if other.chosen is not None:
            self.chosen = other.chosen.plus() if self.chosen is None else self.chosen.plus(other.chosen)

    def metrics(self) -> Metrics:
        """Over all batches; empty where there were none."""
        return {} if self.chosen is None else self.chosen.metrics()


def evaluator_for(
    output: Tensor,
    batch: Batch,
    task: Task = "classification",
    predictions: Predictions | None = None,
    *,
    sketched: bool = False,
) -> Evaluator:
    """The evaluator for outputs like this one."""
    labels = _labels(batch).shape[1]
    if output.dim() == 1 or output.shape[1] == labels:
        if task == "regression":
            return NumberEvaluator([ErrorSketch() if sketched else Errors() for _ in range(labels)], predictions)
        return LabelEvaluator([ScoreSketch() if sketched else Scores() for _ in range(labels)])
    if labels == 1 and task == "classification":
        return ClassEvaluator()
    raise InputError(f"the model gives {tuple(output.shape)} for {labels} labels: give one output per label")


class LabelEvaluator:
    """Log-odds, one column per label: the first label's metrics by their names, others' as `auc_2` and so on."""

    def __init__(self, columns: Sequence[Scores | ScoreSketch]) -> None:
        self.columns = columns

    @property
    def rows(self) -> int:
        return len(self.columns[0])

    @property
    def scores(self) -> Scores | ScoreSketch:
        return self.columns[0]

    @property
    def auc_error(self) -> float:
        return max(each.auc_error if isinstance(each, ScoreSketch) else 0.0 for each in self.columns)

    def add(self, output: Tensor, batch: Batch) -> None:
        labels = _labels(batch)
        logits = output.detach().reshape(len(batch), -1).numpy()
        for column, scores in enumerate(self.columns):
            if isinstance(scores, ScoreSketch):
                scores.add(labels[:, column], logits[:, column], batch.weights)
            else:
                scores.add(labels[:, column], logits[:, column], batch.groups, batch.weights)

    def plus(self, *others: "LabelEvaluator") -> "LabelEvaluator":
        parts = zip(self.columns, *(other.columns for other in others), strict=True)
        return LabelEvaluator([_scores_of(*of_label) for of_label in parts])

    def metrics(self) -> Metrics:
        return _by_label([scores.metrics() for scores in self.columns])


class NumberEvaluator:
    """Predicted numbers, one column per label: `rmse` and the like, others' as `rmse_2` and so on."""

    auc_error = 0.0

    def __init__(self, columns: Sequence[Errors | ErrorSketch], predictions: Predictions | None = None) -> None:
        self.columns = columns
        self._predictions = predictions

    @property
    def rows(self) -> int:
        return len(self.columns[0])

    @property
    def scores(self) -> Errors | ErrorSketch:
        return self.columns[0]

    def add(self, output: Tensor, batch: Batch) -> None:
        labels = _labels(batch)
        found = output.detach() if self._predictions is None else self._predictions(output.detach())
        numbers = found.reshape(len(batch), -1).numpy()
        for column, errors in enumerate(self.columns):
            errors.add(labels[:, column], numbers[:, column], batch.weights)

    def plus(self, *others: "NumberEvaluator") -> "NumberEvaluator":
        parts = zip(self.columns, *(other.columns for other in others), strict=True)
        return NumberEvaluator([_errors_of(*of_label) for of_label in parts], self._predictions)

    def metrics(self) -> Metrics:
        return _by_label([errors.metrics() for errors in self.columns])


@dataclass(slots=True)
class ClassEvaluator:
    """Scores [samples, classes] against class numbers: accuracy and logloss."""

    rows: int = 0
    weight: float = 0.0
    right: float = 0.0
    loss: float = 0.0

    @property
    def scores(self) -> None:
        """There are no pictures."""

    @property
    def auc_error(self) -> float:
        return 0.0

    def add(self, output: Tensor, batch: Batch) -> None:
        classes = torch.from_numpy(_labels(batch)[:, 0].astype(np.int64))
        weights = torch.ones(len(batch)) if batch.weights is None else torch.from_numpy(batch.weights)
        weights = weights.double()
        self.right += float(weights[output.argmax(1) == classes].sum())
        self.loss += float(
            (weights * torch.nn.functional.cross_entropy(output.double(), classes, reduction="none")).sum()
        )
        self.weight += float(weights.sum())
        self.rows += len(batch)

    def plus(self, *others: "ClassEvaluator") -> "ClassEvaluator":
        parts = self, *others
        rows, weight = sum(each.rows for each in parts), sum(each.weight for each in parts)
        return ClassEvaluator(rows, weight, sum(each.right for each in parts), sum(each.loss for each in parts))

    def metrics(self) -> Metrics:
        if self.weight == 0:
            return {"accuracy": None, "logloss": None}
        return {"accuracy": self.right / self.weight, "logloss": self.loss / self.weight}


def _scores_of(*parts: Scores | ScoreSketch) -> Scores | ScoreSketch:
    whole = [each for each in parts if isinstance(each, Scores)]
    if len(whole) == len(parts):
        scores = Scores()
        for each in whole:
            scores.extend(each)
        return scores
    sketch = ScoreSketch()
    for part in parts:
        if isinstance(part, ScoreSketch):
            sketch.merge(part)
        else:
            sketch.add(*part.joined())
    return sketch


def _errors_of(*parts: Errors | ErrorSketch) -> Errors | ErrorSketch:
    whole = [each for each in parts if isinstance(each, Errors)]
    if len(whole) == len(parts):
        errors = Errors()
        for each in whole:
            errors.extend(each)
        return errors
    sketch = ErrorSketch()
    for part in parts:
        if isinstance(part, ErrorSketch):
            sketch.merge(part)
        else:
            sketch.add(*part.joined())
    return sketch


def _by_label(columns: list[Metrics]) -> Metrics:
    found: Metrics = {}
    for column, metrics in enumerate(columns):
        name = "" if column == 0 else f"_{column + 1}"
        found |= {f"{metric}{name}": value for metric, value in metrics.items()}
    return found


def _labels(batch: Batch) -> NDArray[np.float32]:
    if batch.labels is None:
        raise InputError("labels are missing: an evaluation needs them")
    return batch.labels
