"""The counters of a run: one object that the training loop advances and everything else reads."""

from collections.abc import Callable
from dataclasses import dataclass


def _constant(samples: int) -> float:
    return 1.0


@dataclass(slots=True, eq=False)
class RunState:
    """How far a run is, and the factor of its learning rates there."""

    samples: int = 0  # with applied gradients
    step: int = 0  # dense steps
    plateau: float = 1.0  # factor after validations without improvement
    schedule: Callable[[int], float] = _constant  # samples -> factor

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

    def take_back(self, samples: int) -> None:
        """Samples whose rows were applied are trained again."""
        self.samples -= samples
