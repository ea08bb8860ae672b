"""Observers of a simulation: traces, checkers, controllers. They read events and effects."""

from collections.abc import Sequence
from typing import Protocol

from hotrow.modes import Mode
from hotrow.modes.base import Effect, Event, RunFacts


class SimObserver(Protocol):
    """Gets all events of a discipline and their effects."""

    def started(self, time_s: float, mode: Mode, facts: RunFacts) -> None:
        """A mode starts."""

    def cut(self, time_s: float) -> None:
        """All batches that are not applied are given up and dealt again: a shard was lost. A mode starts next."""

    def took(self, time_s: float, event: Event, effects: Sequence[Effect]) -> None:
        """An event and its effects."""
