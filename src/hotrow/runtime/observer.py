"""The interface of an observer of the active mode, such as the controller of `auto`."""

from typing import Protocol

from hotrow.modes.base import Ended, Event, Joined
from hotrow.runtime.executors import BatchResult
from hotrow.switching import Observation

SHORTEST_S = 1e-9  # of a batch: the clock may be coarser than that


class ModeObserver(Protocol):
    """Gets the events of workers, batches and steps, as `switching.Pilot` does. Times are of the run's clock."""

    def joined(self, worker: int) -> None:
        """A worker joined, for the first time or again."""

    def ended(self, worker: int) -> None:
        """A worker has no more data."""

    def lost(self, worker: int) -> None:
        """A worker left, or its number belongs to another one now."""

    def finished(self, seen: Observation) -> None:
        """The gradients of a batch arrived; their step is not closed."""

    def stepped(self, time_s: float) -> None:
        """A dense step was applied."""


def notify(observer: ModeObserver, event: Event) -> None:
    """Report joins and ends of data. Leaves are reported by the training loop."""
    match event:
        case Joined(worker):
            observer.joined(worker)
        case Ended(worker):
            observer.ended(worker)


def observation(finished: BatchResult, time_s: float, step: int) -> Observation:
    """A batch that arrived when so many steps were applied.

    With look-ahead on a cluster its parameters may be of the step after: the ranks have ended a step together, and the
    reply of one of them to it is still on its way.
    """
    late = max(step - finished.pulled_step, 0)
    busy_s = max(finished.busy.real_s, SHORTEST_S)
    passed_s = min(finished.busy.run_s, busy_s)
    return Observation(finished.grant.worker, time_s, busy_s, finished.samples, late, passed_s)
