"""The common discipline of Async, BulkSync and GBA.

Grants never wait, and a fixed number of pushes closes a step, from whichever workers.
"""

from dataclasses import dataclass, field

from hotrow.modes.base import Drain, Effect, Ended, Event, Grant, Lost, Park, Pushed, Ready, Resume
from hotrow.modes.stepping import Buffering


@dataclass(slots=True)
class Aggregating(Buffering):
    """`parts_per_step` pushes make a step. The token is the step at the grant."""

    parts_per_step: int
    waiting: list[int] = field(default_factory=list)  # asked during a drain

    def on(self, event: Event) -> list[Effect]:
        """Change the state by an event, and return the effects to perform."""
        match event:
            case Pushed() as push:
                if not self._take(push):
                    return []
                self.buffer.append(push)
                return self._close_full_or_drained(self.parts_per_step)
            case Ready(worker):
                if self.draining:
                    self.waiting.append(worker)
                    return [Park(worker)]
                return [self._grant(worker)]
            case Lost(worker):
                self.waiting = [each for each in self.waiting if each != worker]
                return [*self._lose(worker), *self._close_full_or_drained(self.parts_per_step)]
            case Ended(worker):
                self.waiting = [each for each in self.waiting if each != worker]
                return []
            case Drain():
                self.draining = True
                return self._close_full_or_drained(self.parts_per_step)
            case Resume():
                self.draining = False
                asked, self.waiting = self.waiting, []
                return [self._grant(worker) for worker in asked]
            case _:
                return []  # workers do not wait for each other: joins change nothing

    def _grant(self, worker: int) -> Grant:
        return self.grants.give(worker, token=self.step)

    def _take(self, push: Pushed) -> bool:
        return self.grants.take(push)

    def _lose(self, worker: int) -> list[Effect]:
        return self.grants.lose(worker)
