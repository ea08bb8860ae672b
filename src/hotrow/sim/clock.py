"""Virtual time: a heap of timed actions. Actions of one instant run in the order in which they were planned."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]


class Clock:
    """Nothing happens between two actions, so time jumps from one to the next."""

    __slots__ = ("_heap", "_planned", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Action, Any]] = []
        self._planned = 0

    def at(self, time_s: float, action: Action, argument: Any) -> None:
        """Plan `action(argument)`."""
        if not time_s >= self.now_s:
            raise AssertionError(f"an action was planned for {time_s!r}, and it is {self.now_s!r} already")
        self._planned += 1
        heappush(self._heap, (time_s, self._planned, action, argument))

    def run(self, until_s: float, done: Callable[[], bool]) -> None:
        """Action after action, until `done`, until nothing is planned, or up to and including a time."""
        heap = self._heap
        while not done() and heap:
            if heap[0][0] > until_s:
                self.now_s = max(self.now_s, until_s)
                return
            self.now_s, _, action, argument = heappop(heap)
            action(argument)

    @property
    def planned(self) -> int:
        """Actions that are still to come."""
        return len(self._heap)
