"""Reports of a run while it trains: plain values, for a bar, a notebook, a log or a test."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hotrow.worker.evaluators import Pictured

Split = Literal["valid", "test", "progressive"]
Stopped = Literal["data ended", "epochs done", "early stopping", "enough samples"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Since the one before: about every two seconds, and at the end of an epoch."""

    samples: int  # trained in all
    step: int
    epoch: int
    loss: float  # mean
    auc: float | None  # of the first label's predictions, before each update; None without both classes or a meaning
    samples_per_s: float
    lr_scale: float
    reading_share: float  # of the time, waiting for data
    staleness: float | None = None  # of gradients, in steps: the mean since the start; None where one worker trains
    logloss: float | None = None  # of the same predictions as `auc`; with sample weights it differs from the loss
    calibration: float | None = None  # their mean over that of the labels
    auc_error: float = 0.0  # `auc` is not further from the exact one


@dataclass(frozen=True, slots=True)
class Evaluated:
    """One evaluation."""

    split: Split
    samples: int
    step: int
    epoch: int
    rows: int
    metrics: dict[str, float | None]
    day: str | None = None  # the test day, where there are several
    auc_error: float = 0.0  # no AUC among the metrics is further from the exact one
    scores: Pictured | None = field(default=None, repr=False, compare=False)  # everything, for pictures


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """All data were seen once more."""

    epoch: int
    samples: int


@dataclass(frozen=True, slots=True)
class Best:
    """The best validation of a run with early stopping."""

    metric: str
    value: float
    epoch: int
    restored: bool = True  # False: the last epoch was the best, so there was nothing to go back to


@dataclass(frozen=True, slots=True)
class Switched:
    """The mode changed."""

    samples: int
    step: int
    before: str  # names of modes
    mode: str
    sentence: str | None  # the reason, where the automatic controller switched


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence for the user: a limit of the mode, rows found in segments, a file not written, a warning."""

    samples: int
    step: int
    mode: str
    sentence: str


@dataclass(frozen=True, slots=True)
class TrainingEnded:
    """The last report."""

    samples: int
    step: int
    seconds: float
    samples_per_s: float  # in training alone
    stopped: Stopped
    best: Best | None
    counts: dict[str, int]  # trouble: malformed lines, gradients that were refused, batches that came too late, ...
    epochs: int = 0  # that ended: the last step of each may be a short one


Report = Progress | Evaluated | EpochEnded | Switched | Remark | TrainingEnded


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows that an earlier process left in the segments of the tables, and what became of them, as a sentence."""

    rows: Mapping[str, int]  # by table
    samples: int  # at their last update, rounded down to a tick; 0: unknown
    replaced_at: int | None = None  # samples of the checkpoint that was loaded in their place; None: they are used

    def __str__(self) -> str:
        held = ", ".join(f"{count:,} rows of table {name!r}" for name, count in self.rows.items())
        trained = f", trained up to about {self.samples:,} samples" if self.samples else ""
        if self.replaced_at is None:
            return f"training starts with {held} that segments of an earlier run held{trained}; the network starts anew"
        message = f"the checkpoint of {self.replaced_at:,} samples took the place of {held} in segments{trained}"
        again = self.samples - self.replaced_at
        return f"{message}: about {again:,} samples are trained again" if again > 0 else message
