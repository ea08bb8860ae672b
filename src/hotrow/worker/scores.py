"""The scores of the first label of a batch, and the sketch of them that a trainer keeps between two collections."""

import threading

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.metrics.sketch import ScoreSketch
from hotrow.worker.losses import Task


def first_scores(output: Tensor, batch: Batch, task: Task) -> tuple[Tensor, NDArray[np.float32]] | None:
    """Scores and labels of the first label; None where AUC has no meaning: a regression, or scores of classes."""
    if task != "classification" or batch.labels is None:
        return None
    if output.dim() != 1 and output.shape != batch.labels.shape:
        return None
    return output.reshape(len(batch), -1)[:, 0], batch.labels[:, 0]


class ScoreCollector:
    """One thread adds batches, another one takes the sketch of them."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._lock = threading.Lock()
        self._sketch = ScoreSketch()
        self._taken = 0, ScoreSketch()  # the last collection

    def add(self, output: Tensor, batch: Batch) -> None:
        """Add the predictions of a batch, made before the model learned from it."""
        if (scored := first_scores(output, batch, self._task)) is not None:
            scores, labels = scored
            with self._lock:
                self._sketch.add(labels, scores.to(torch.float32).numpy(), batch.weights)

    def take(self, number: int) -> ScoreSketch:
        """The sketch since the collection before. The same number gives the same sketch again."""
        with self._lock:
            if number != self._taken[0]:
                self._taken, self._sketch = (number, self._sketch), ScoreSketch()
            return self._taken[1]
