"""Metrics of outputs: log-odds per label, numbers per label, or scores of classes."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.metrics import Errors, Scores
from hotrow.worker.losses import Task

Metrics = dict[str, float | None]
Pictured = Scores | Errors
Predictions = Callable[[Tensor], Tensor]  # from the model's output to the numbers it predicts


class Evaluator(Protocol):
    """Takes outputs in, batch by batch."""

    rows: int

    @property
    def scores(self) -> Pictured | None:
        """Of the first label, for pictures."""

    def add(self, output: Tensor, batch: Batch) -> None:
        """Add the outputs of one batch."""

    def metrics(self) -> Metrics:
        """Over all of them."""


class AnyEvaluator:
    """Chooses the evaluator for the outputs it gets. `predictions` are those of a regression."""

    def __init__(self, task: Task = "classification", predictions: Predictions | None = None) -> None:
        self._task, self._predictions = task, predictions
        self._evaluator: Evaluator | None = None

    @property
    def rows(self) -> int:
        return 0 if self._evaluator is None else self._evaluator.rows

    @property
    def scores(self) -> Pictured | None:
        """Of the first label, for pictures."""
        return None if self._evaluator is None else self._evaluator.scores

    def add(self, output: Tensor, batch: Batch) -> None:
        """Add the outputs of one batch."""
        if self._evaluator is None:
            self._evaluator = evaluator_for(output, batch, self._task, self._predictions)
        self._evaluator.add(output, batch)

    def metrics(self) -> Metrics:
        """Over all batches; empty where there were none."""
        return {} if self._evaluator is None else self._evaluator.metrics()


def evaluator_for(
    output: Tensor, batch: Batch, task: Task = "classification", predictions: Predictions | None = None
) -> Evaluator:
    """The evaluator for outputs like this one."""
    labels = _labels(batch).shape[1]
    if output.dim() == 1 or output.shape[1] == labels:
        return NumberEvaluator(labels, predictions) if task == "regression" else LabelEvaluator(labels)
    if labels == 1 and task == "classification":
        return ClassEvaluator()
    raise InputError(f"the model gives {tuple(output.shape)} for {labels} labels: give one output per label")


class LabelEvaluator:
    """Log-odds, one column per label: the first label's metrics by their names, others' as `auc_2` and so on."""

    def __init__(self, labels: int) -> None:
        self._columns = [Scores() for _ in range(labels)]
        self.rows = 0

    @property
    def scores(self) -> Scores:
        return self._columns[0]

    def add(self, output: Tensor, batch: Batch) -> None:
        labels = _labels(batch)
        logits = output.detach().reshape(len(batch), -1).numpy()
        for column, scores in enumerate(self._columns):
            scores.add(labels[:, column], logits[:, column], batch.groups, batch.weights)
        self.rows += len(batch)

    def metrics(self) -> Metrics:
        return _by_label([scores.metrics() for scores in self._columns])


class NumberEvaluator:
    """Predicted numbers, one column per label: `rmse` and the like, others' as `rmse_2` and so on."""

    def __init__(self, labels: int, predictions: Predictions | None = None) -> None:
        self._columns = [Errors() for _ in range(labels)]
        self._predictions = predictions
        self.rows = 0

    @property
    def scores(self) -> Errors:
        return self._columns[0]

    def add(self, output: Tensor, batch: Batch) -> None:
        labels = _labels(batch)
        found = output.detach() if self._predictions is None else self._predictions(output.detach())
        numbers = found.reshape(len(batch), -1).numpy()
        for column, errors in enumerate(self._columns):
            errors.add(labels[:, column], numbers[:, column], batch.weights)
        self.rows += len(batch)

    def metrics(self) -> Metrics:
        return _by_label([errors.metrics() for errors in self._columns])


class ClassEvaluator:
    """Scores [samples, classes] against class numbers: accuracy and logloss."""

    scores: Scores | None = None

    def __init__(self) -> None:
        self.rows = 0
        self._weight = 0.0
        self._right = 0.0
        self._loss = 0.0

    def add(self, output: Tensor, batch: Batch) -> None:
        classes = torch.from_numpy(_labels(batch)[:, 0].astype(np.int64))
        weights = torch.ones(len(batch)) if batch.weights is None else torch.from_numpy(batch.weights)
        weights = weights.double()
        self._right += float(weights[output.argmax(1) == classes].sum())
        self._loss += float(
            (weights * torch.nn.functional.cross_entropy(output.double(), classes, reduction="none")).sum()
        )
        self._weight += float(weights.sum())
        self.rows += len(batch)

    def metrics(self) -> Metrics:
        if self._weight == 0:
            return {"accuracy": None, "logloss": None}
        return {"accuracy": self._right / self._weight, "logloss": self._loss / self._weight}


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
