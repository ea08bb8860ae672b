"""Loss, AUC (of a classification) and speed since the last report."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from hotrow.metrics import auc
from hotrow.runtime import StepResult
from hotrow.trainer.reports import Progress
from hotrow.worker.losses import Task


class ProgressMeter:
    """Adds up steps; a report is due every `every_s` seconds. Time outside `step` and `waited` is not training."""

    def __init__(
        self, every_s: float, clock: Callable[[], float] = time.perf_counter, *, task: Task = "classification"
    ) -> None:
        self._every_s, self._clock, self._task = every_s, clock, task
        self.trained_s = 0.0  # waiting for data included
        self.trained = 0  # samples
        self.losses_not_finite = 0
        self.refused = 0  # rows whose gradient was not finite
        self._clear()

    def resume(self) -> None:
        """Start the clock again after work that is not training."""
        self._last = self._clock()

    def step(self, stepped: StepResult, waited_s: float) -> None:
        """One more step."""
        now = self._clock()
        self._seconds += now - self._last
        self._last = now
        self._waited_s += waited_s
        self.refused += stepped.refused
        for trained in stepped.batches:
            batch, output = trained.batch, trained.output
            self._samples += len(batch)
            self._losses.append(trained.loss)
            self._counts.append(len(batch))
            fits = batch.labels is not None and (output.dim() == 1 or output.shape == batch.labels.shape)
            if self._task == "classification" and fits and batch.labels is not None:
                self._outputs.append(output.reshape(len(batch), -1)[:, 0])
                self._labels.append(torch.from_numpy(batch.labels[:, 0]))
                self._weights += [] if batch.weights is None else [torch.from_numpy(batch.weights)]

    @property
    def due(self) -> bool:
        """Whether it is time for a report."""
        return self._seconds >= self._every_s

    @property
    def empty(self) -> bool:
        """Whether there was no step since the last report."""
        return self._samples == 0

    def report(
        self, *, samples: int, step: int, epoch: int, lr_scale: float, staleness: float | None = None
    ) -> Progress:
        """What happened since the last one."""
        losses, counts = torch.stack(self._losses).double(), torch.tensor(self._counts, dtype=torch.double)
        self.losses_not_finite += int((~losses.isfinite()).sum())
        area = None
        if self._outputs:
            outputs = torch.cat(self._outputs).numpy()
            if torch.from_numpy(outputs).isfinite().all():
                weights = torch.cat(self._weights).numpy() if self._weights else None
                area = auc(torch.cat(self._labels).numpy(), outputs, weights)
        progress = Progress(
            samples=samples,
            step=step,
            epoch=epoch,
            loss=float((losses * counts).sum() / counts.sum()),
            auc=area,
            samples_per_s=self._samples / max(self._seconds, 1e-9),
            lr_scale=lr_scale,
            reading_share=min(1.0, self._waited_s / max(self._seconds, 1e-9)),
            staleness=staleness,
        )
        self.trained_s += self._seconds
        self.trained += self._samples
        self._clear()
        return progress

    def _clear(self) -> None:
        self._seconds = self._waited_s = 0.0
        self._samples = 0
        self._losses: list[Tensor] = []
        self._counts: list[int] = []
        self._weights: list[Tensor] = []  # of samples, where they have any
        self._outputs: list[Tensor] = []
        self._labels: list[Tensor] = []
        self.resume()
