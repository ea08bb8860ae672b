"""The specification of a training job, independent of the backend."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn
from torch.optim import Optimizer

from hotrow.client.aggregate import Average
from hotrow.config import Table
from hotrow.worker.core import Learner
from hotrow.worker.losses import Loss, Task


@dataclass(frozen=True, slots=True, eq=False)
class TrainingSpec:
    """A model, its tables and the settings that every backend needs."""

    model: nn.Module
    tables: Mapping[str, Table]
    optimizer: Optimizer | None = None  # of the dense parameters; None: the model has none
    loss: Loss | None = None  # None: the model's own, or binary cross entropy
    clip: float | None = None  # largest norm of the dense gradient of a step
    autocast: bool = False
    average: Average = "batch"
    threads: int | None = None  # of table operations in this process
    attach: bool = True  # take over the rows that segments hold; False: refuse them
    task: Task = "classification"

    def learner(self, model: nn.Module | None = None, device: str = "cpu") -> Learner:
        """Forward and backward of the model, or of a copy of it."""
        return Learner(self.model if model is None else model, loss=self.loss, autocast=self.autocast, device=device)
