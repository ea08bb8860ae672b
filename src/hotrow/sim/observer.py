"""Who looks on: traces, checkers, controllers. They see events and effects, and cannot touch them."""

from collections.abc import Sequence
from typing import Protocol

from hotrow.modes import Mode
from hotrow.modes.base import Effect, Event, RunFacts


class SimObserver(Protocol):
    """Sees all that a discipline is told and all that it says."""

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        """A mode begins to work."""

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        """An event went in, and effects came out."""
