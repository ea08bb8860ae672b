"""Who looks on while a mode works, and what it is shown: times of the run's clock, numbers of workers, sizes."""

from typing import Protocol

from hotrow.modes.base import Ended, Event, Joined
from hotrow.runtime.executors import BatchResult
from hotrow.switching import Observation

SHORTEST_S = 1e-9  # a batch takes time, whatever the clock says


class ModeObserver(Protocol):
    """Somebody who judges the mode, as a `switching.Pilot` does."""

    def joined(self, worker: int) -> None:
        """A worker is there, for the first time or again."""

    def ended(self, worker: int) -> None:
        """A worker has no more data."""

    def lost(self, worker: int) -> None:
        """A worker has left, or its number means another one now: nothing is known of it."""

    def finished(self, seen: Observation) -> None:
        """Gradients are there; the step that they are part of is not closed."""

    def stepped(self, time_s: float) -> None:
        """A dense step was applied."""


def notify(watcher: ModeObserver, event: Event) -> None:
    """Who has data and who has none; that a worker has left is told apart."""
    match event:
        case Joined(worker):
            watcher.joined(worker)
        case Ended(worker):
            watcher.ended(worker)


def observation(finished: BatchResult, time_s: float, late: int) -> Observation:
    """A batch that is there `late` steps after its parameters were pulled."""
    busy_s = max(finished.busy.real_s, SHORTEST_S)
    passed_s = min(finished.busy.run_s, busy_s)
    return Observation(finished.grant.worker, time_s, busy_s, finished.samples, late, passed_s)
