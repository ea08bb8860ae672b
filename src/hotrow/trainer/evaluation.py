"""Predictions of a trainer's model, and what they are worth."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hotrow.data.batch import Batch
from hotrow.data.loader import Loader
from hotrow.runtime import TrainingLoop
from hotrow.runtime.interrupts import deliver_pending_sigint
from hotrow.trainer.streams import Leases
from hotrow.worker.evaluators import AnyEvaluator
from hotrow.worker.losses import Task


class TrainerEvaluation:
    """Nothing is trained here, and no row is created. `predictions` makes them from outputs of the model."""

    def __init__(self, loop: TrainingLoop, task: Task, predictions: Callable[[Tensor], Tensor]) -> None:
        self._loop, self._task, self._predictions = loop, task, predictions

    def evaluator(self) -> AnyEvaluator:
        """Takes outputs of the model in, batch by batch."""
        return AnyEvaluator(self._task, self._predictions)

    def evaluated(self, stream: Leases) -> AnyEvaluator:
        """All batches of a stream. The trainers of a cluster read and predict where they can."""
        judge = self._loop.evaluate(stream) if isinstance(stream, Loader) else None
        if judge is None:
            judge = self.evaluator()
            for _, batch in stream:
                deliver_pending_sigint()
                judge.add(self._loop.predict(batch), batch)
        return judge

    def predicted(self, batch: Batch) -> NDArray[np.float32]:
        """Predictions of one batch."""
        found: NDArray[np.float32] = self._predictions(self._loop.predict(batch)).numpy()
        return found
