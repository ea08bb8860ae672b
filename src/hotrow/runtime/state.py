"""The counters of a run: one object that the training loop advances and everything else reads."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from hotrow.errors import InputError
from hotrow.runtime.losses import SavedRows


def _constant(samples: int) -> float:
    return 1.0


def _no_checkpoint() -> None:
    return None


@dataclass(slots=True, eq=False)
class RunState:
    """How far a run is, and the factor of its learning rates there."""

    samples: int = 0  # with applied gradients
    step: int = 0  # dense steps
    plateau: float = 1.0  # factor after validations without improvement
    schedule: Callable[[int], float] = _constant  # samples -> factor
    last_checkpoint: Callable[[], SavedRows | None] = _no_checkpoint  # that was saved or loaded, if it is still there
    stops_at_nan: bool = False  # training, at a loss that is not finite
    diverged: str | None = None  # which loss was not finite: parameters are not, either
    half_applied: bool = False  # a mode ended in the middle of a step, or a load did

    @property
    def lr_scale(self) -> float:
        """The current factor of all learning rates."""
        return self.lr_scale_at(self.samples)

    def lr_scale_at(self, samples: int) -> float:
        """The factor after so many samples, as far as it is known now."""
        return self.schedule(samples) * self.plateau

    def advance(self, samples: int, *, dense_step: bool) -> None:
        """Count an aggregate that was applied."""
        self.samples += samples
        self.step += dense_step

    def note_loss(self, loss: float, epoch: int, batch: int) -> None:
        """Note the first loss that is not finite: what was trained from then on is of no use."""
        if self.stops_at_nan and self.diverged is None and not math.isfinite(loss):
            self.diverged = f"step {self.step}: the loss of batch {batch} of epoch {epoch} is {loss}"

    def check_consistent(self, *, cut_off: bool) -> None:
        """InputError where parameters are of different steps, or not finite. `cut_off`: the open mode has failed so."""
        if self.diverged is not None:
            raise InputError(f"{self.diverged}, so parameters may not be finite: load the last checkpoint")
        if self.half_applied or cut_off:
            raise InputError(
                "a step was applied in part, or a load ended early, so that rows and dense parameters are of different "
                "steps: load the last checkpoint, or begin again with another Trainer"
            )

    def take_back(self, samples: int) -> None:
        """Samples whose rows were applied are trained again."""
        self.samples -= samples
