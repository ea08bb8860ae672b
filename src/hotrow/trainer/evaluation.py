"""How good outputs are: log-odds per label, or scores of classes."""

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.metrics import Scores

Metrics = dict[str, float | None]


class Evaluator(Protocol):
    """Takes outputs in, batch by batch."""

    rows: int
    scores: Scores | None  # of the first label, for pictures

    def add(self, output: Tensor, batch: Batch) -> None:
        """One batch and what the model said of it."""

    def metrics(self) -> Metrics:
        """Over all of them."""


class AnyEvaluator:
    """Becomes the judge for the outputs it gets."""

    def __init__(self) -> None:
        self._judge: Evaluator | None = None

    @property
    def rows(self) -> int:
        return 0 if self._judge is None else self._judge.rows

    @property
    def scores(self) -> Scores | None:
        """Of the first label, for pictures."""
        return None if self._judge is None else self._judge.scores

    def add(self, output: Tensor, batch: Batch) -> None:
        """One batch and what the model said of it."""
        if self._judge is None:
            self._judge = evaluator_for(output, batch)
        self._judge.add(output, batch)

    def metrics(self) -> Metrics:
        """Over all of them; none where there were none."""
        return {} if self._judge is None else self._judge.metrics()


def evaluator_for(output: Tensor, batch: Batch) -> Evaluator:
    """The judge for outputs like this one."""
    if batch.labels is None:
        raise InputError("labels are missing: an evaluation needs them")
    labels = batch.labels.shape[1]
    if output.dim() == 1 or output.shape[1] == labels:
        return LabelEvaluator(labels)
    if labels == 1:
        return ClassEvaluator()
    raise InputError(f"the model gives {tuple(output.shape)} for {labels} labels: give one output per label")


class LabelEvaluator:
    """Log-odds, one column per label: the first label's metrics by their names, others' as `auc_2` and so on."""

    def __init__(self, labels: int) -> None:
        self._columns = [Scores() for _ in range(labels)]
        self.scores: Scores | None = self._columns[0]
        self.rows = 0

    def add(self, output: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        logits = output.detach().reshape(len(batch), -1).numpy()
        for column, scores in enumerate(self._columns):
            scores.add(batch.labels[:, column], logits[:, column], batch.groups)
        self.rows += len(batch)

    def metrics(self) -> Metrics:
        found: Metrics = {}
        for column, scores in enumerate(self._columns):
            name = "" if column == 0 else f"_{column + 1}"
            found |= {f"{metric}{name}": value for metric, value in scores.metrics().items()}
        return found


class ClassEvaluator:
    """Scores [samples, classes] against class numbers: accuracy and logloss."""

    scores: Scores | None = None

    def __init__(self) -> None:
        self.rows = 0
        self._right = 0
        self._loss = 0.0

    def add(self, output: Tensor, batch: Batch) -> None:
        assert batch.labels is not None
        classes = torch.from_numpy(batch.labels[:, 0].astype(np.int64))
        self._right += int((output.argmax(1) == classes).sum())
        self._loss += float(torch.nn.functional.cross_entropy(output.double(), classes, reduction="sum"))
        self.rows += len(batch)

    def metrics(self) -> Metrics:
        if self.rows == 0:
            return {"accuracy": None, "logloss": None}
        return {"accuracy": self._right / self.rows, "logloss": self._loss / self.rows}
