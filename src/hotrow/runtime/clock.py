"""The clock of a run. It is paused while the caller of the training loop handles a step.

The time of evaluations, reports and the user's own code does not count for a mode.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from hotrow.modes.base import value


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The same moment by two clocks."""

    real_s: float
    run_s: float

    def since(self, before: "ClockReading") -> "Elapsed":
        """What passed."""
        return Elapsed(self.real_s - before.real_s, self.run_s - before.run_s)


@value
class Elapsed:
    """The same span by two clocks."""

    real_s: float = 0.0
    run_s: float = 0.0

    def __add__(self, other: "Elapsed") -> "Elapsed":
        return Elapsed(self.real_s + other.real_s, self.run_s + other.run_s)


NO_TIME = Elapsed()


class RunClock:
    """Paused until `resume`. Other threads may read it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._state: tuple[float, float | None] = (0.0, None)  # run time at the last change, and when it was resumed

    def __call__(self) -> float:
        """Run time, in seconds."""
        return self._run_s(self._clock())

    def moment(self) -> ClockReading:
        """Now."""
        real_s = self._clock()
        return ClockReading(real_s, self._run_s(real_s))

    def resume(self) -> None:
        """Resume the clock."""
        run_s, since_s = self._state
        real_s = self._clock()
        self._state = (run_s if since_s is None else self._run_s(real_s), real_s)

    def pause(self) -> None:
        """Pause the clock."""
        self._state = (self._run_s(self._clock()), None)

    def _run_s(self, real_s: float) -> float:
        run_s, since_s = self._state
        return run_s if since_s is None else run_s + max(0.0, real_s - since_s)
