"""The counters of a run: one object that the training loop advances and everything else reads."""

from collections.abc import Callable
from dataclasses import dataclass


def _constant(samples: int) -> float:
    return 1.0


@dataclass(slots=True, eq=False)
class RunState:
    """How far a run is, and the factor of its learning rates there."""

    samples: int = 0  # whose gradients were applied
    step: int = 0  # dense steps
    plateau: float = 1.0  # factor that validations without improvement have left
    schedule: Callable[[int], float] = _constant  # samples -> factor

    @property
    def lr_scale(self) -> float:
        """The factor of all learning rates now."""
        return self.schedule(self.samples) * self.plateau

    def advance(self, samples: int, *, dense_step: bool) -> None:
        """Count an aggregate that was applied."""
        self.samples += samples
        self.step += dense_step
