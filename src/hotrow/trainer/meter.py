"""Loss, AUC, logloss and calibration (of a classification) and speed since the last report."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from hotrow.metrics import Scores
from hotrow.metrics.sketch import ScoreSketch
from hotrow.runtime import StepResult
from hotrow.trainer.reports import Progress
from hotrow.worker.losses import Task
from hotrow.worker.scores import first_scores


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
            if output is not None and (scored := first_scores(output, batch, self._task)) is not None:
                self._outputs.append(scored[0])
                self._labels.append(torch.from_numpy(scored[1]))
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
        self,
        *,
        samples: int,
        step: int,
        epoch: int,
        lr_scale: float,
        staleness: float | None = None,
        scores: ScoreSketch | None = None,
    ) -> Progress:
        """What happened since the last one. `scores`: of batches whose outputs did not come with their steps."""
        losses, counts = (torch.tensor(each, dtype=torch.double) for each in (self._losses, self._counts))
        self.losses_not_finite += int((~losses.isfinite()).sum())
        if scores is None:
            quality, auc_error = self._quality(), 0.0
        else:
            quality, auc_error = {} if scores.not_finite else scores.metrics(), scores.auc_error
        progress = Progress(
            samples=samples,
            step=step,
            epoch=epoch,
            loss=float((losses * counts).sum() / counts.sum()),
            auc=quality.get("auc"),
            samples_per_s=self._samples / max(self._seconds, 1e-9),
            lr_scale=lr_scale,
            reading_share=min(1.0, self._waited_s / max(self._seconds, 1e-9)),
            staleness=staleness,
            logloss=quality.get("logloss"),
            calibration=quality.get("calibration"),
            auc_error=auc_error if quality else 0.0,
        )
        self.trained_s += self._seconds
        self.trained += self._samples
        self._clear()
        return progress

    def _quality(self) -> dict[str, float | None]:
        """Empty where there is no score, or one that is not finite."""
        if not self._outputs:
            return {}
        outputs = torch.cat(self._outputs)
        if not outputs.isfinite().all():
            return {}
        scores = Scores()
        weights = torch.cat(self._weights).numpy() if self._weights else None
        scores.add(torch.cat(self._labels).numpy(), outputs.numpy(), weights=weights)
        return scores.metrics()

    def _clear(self) -> None:
        self._seconds = self._waited_s = 0.0
        self._samples = 0
        self._losses: list[float] = []
        self._counts: list[int] = []
        self._weights: list[Tensor] = []  # of samples, where they have any
        self._outputs: list[Tensor] = []
        self._labels: list[Tensor] = []
        self.resume()
