"""How learning rates change over a run, in samples; early stopping. Pure decisions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import Field, model_validator

from hotrow.sizes import Whole
from hotrow.spec import Spec
from hotrow.worker.losses import Task


class Schedule(Spec):
    """Scales all learning rates, dense and of the tables, by the number of trained samples.

    They rise from 0 over `warmup` samples, then fall to `final` over the next `over` samples. `plateau` multiplies them
    once more after each validation that is not better than the best before.

    Example:
        >>> import hotrow as hr
        >>> schedule = hr.Schedule(warmup=100, decay="linear", over=1000)
        >>> [schedule.scale(samples) for samples in (49, 100, 600)]
        [0.5, 1.0, 0.5]
    """

    warmup: Whole = Field(default=0, ge=0)
    decay: Literal["constant", "linear", "cosine"] = "constant"
    over: Whole | None = Field(default=None, ge=1)
    final: float = Field(default=0.0, ge=0, le=1)
    plateau: float | None = Field(default=None, gt=0, lt=1)

    @model_validator(mode="after")
    def _decay_has_a_length(self) -> "Schedule":
        if self.decay != "constant" and self.over is None:
            raise ValueError(f"decay={self.decay!r} needs `over`: the samples it takes")
        return self

    def scale(self, samples: int) -> float:
        """The factor for a step that starts after so many samples."""
        if samples < self.warmup:
            return (samples + 1) / self.warmup
        if self.decay == "constant" or self.over is None:
            return 1.0
        gone = min(1.0, (samples - self.warmup) / self.over)
        left = 1 - gone if self.decay == "linear" else (1 + math.cos(math.pi * gone)) / 2
        return self.final + (1 - self.final) * left


class EarlyStopping(Spec):
    """Stops after `patience` validations in a row without a gain of more than `least`, and restores the best state.

    Without a metric a classification is judged by its auc and a regression by its rmse.

    Example:
        >>> import hotrow as hr
        >>> hr.EarlyStopping(metric="logloss", patience=3).rising
        False
    """

    metric: Literal["auc", "logloss", "normalised_entropy", "grouped_auc", "rmse", "mae", "r2"] | None = None
    patience: Whole = Field(default=2, ge=1)
    least: float = Field(default=1e-6, ge=0)

    @property
    def rising(self) -> bool:
        """Whether more is better."""
        return self.metric in (None, "auc", "grouped_auc", "r2")

    def of_task(self, task: Task) -> "EarlyStopping":
        """With the metric that the task is judged by, where none is given."""
        default = "rmse" if task == "regression" else "auc"
        return self if self.metric is not None else self.model_copy(update={"metric": default})


@dataclass(slots=True)
class EarlyStoppingState:
    """The validations of a run so far."""

    rule: EarlyStopping = field(default_factory=EarlyStopping)
    best: float | None = None
    epoch: int | None = None  # of the best
    worse: int = 0  # validations in a row without a gain
    ended: int = 0  # epochs that are over and were judged

    @classmethod
    def of(cls, counters: Mapping[str, Any]) -> "EarlyStoppingState":
        """From what `counters` gave."""
        epoch, worse, ended = counters["best_epoch"], int(counters["worse"]), int(counters["ended"])
        best = counters["best"]
        rule = EarlyStopping(metric=counters["metric"])
        return cls(rule, best, None if epoch is None else int(epoch), worse, ended)

    def counters(self) -> dict[str, float | int | str | None]:
        """The counters for a checkpoint, so that a resumed run continues them."""
        return {
            "metric": self.rule.metric,
            "best": self.best,
            "best_epoch": self.epoch,
            "worse": self.worse,
            "ended": self.ended,
        }

    def under(self, rule: EarlyStopping, *, keep_best: bool) -> "EarlyStoppingState":
        """ModeProgress on under a rule: a best of another metric, or whose state is gone, counts no more."""
        if keep_best and rule.metric == self.rule.metric:
            return replace(self, rule=rule)
        return EarlyStoppingState(rule, ended=self.ended)

    def better(self, value: float, epoch: int) -> bool:
        """Add a validation; returns whether it is the best so far."""
        gain = math.inf if self.best is None else (value - self.best) * (1 if self.rule.rising else -1)
        if gain > self.rule.least and not math.isnan(value):
            self.best, self.epoch, self.worse = value, epoch, 0
            return True
        self.worse += 1
        return False

    @property
    def over(self) -> bool:
        """Whether it is time to stop."""
        return self.worse >= self.rule.patience
