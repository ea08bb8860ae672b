"""Asks that are not answered yet: when to look after each, and when its peer is lost. The time is handed in.

A pause after an ask was sent a probe goes out ("have you got number 7?"), not the ask again: the other side says that
it is in hand, gives its answer again, or has neither, and only then the frames travel once more. A connection
keeps its order, so an answer on its way is always here before such a denial.

One that found its peer busy is open still: it is sent again after a pause of its own, as often as it takes.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from hotrow.transport.limits import RetryPolicy

NEVER = float("inf")


@dataclass(slots=True, eq=False)
class PendingRequest:
    """One ask, with all that is needed to send it again."""

    number: int
    header: bytes
    frames: tuple[memoryview, ...]
    deadline: bool
    asked_s: float
    future: "Future[Any]" = field(default_factory=Future)
    attempts: int = 0
    due_s: float = NEVER  # when to probe; never before it was sent
    busy: int = 0  # times that the peer had no room for it
    put_off: bool = False  # when it is due it is sent, not probed


class PendingRequests:
    """The open asks of one connection."""

    def __init__(self, patience: RetryPolicy, chance: Callable[[], float]) -> None:
        self._patience, self._chance = patience, chance
        self._open: dict[int, PendingRequest] = {}
        self._next_s = NEVER  # nothing is due before; may be too early, never too late

    def __len__(self) -> int:
        return len(self._open)

    def add(self, ask: PendingRequest) -> None:
        self._open[ask.number] = ask
        self._next_s = min(self._next_s, self._lost_s(ask, ask.asked_s))

    def sent(self, ask: PendingRequest, now: float) -> None:
        """It or a probe for it went out: the next pause begins."""
        ask.due_s = now + self._patience.pause_s(ask.attempts, self._chance())
        ask.attempts += 1
        ask.put_off = False
        self._next_s = min(self._next_s, ask.due_s)

    def put_off(self, ask: PendingRequest, now: float) -> None:
        """An ask that was taken off by an answer which says busy: open again, and to be sent later."""
        ask.due_s = now + self._patience.busy_s(ask.busy, self._chance())
        ask.busy += 1
        ask.put_off = True
        self._open[ask.number] = ask
        self._next_s = min(self._next_s, ask.due_s)

    def take(self, number: int) -> PendingRequest | None:
        """An answered ask; None for one that is not open: answered before, or given up."""
        return self._open.pop(number, None)

    def find(self, number: int) -> PendingRequest | None:
        return self._open.get(number)

    def all(self) -> list[PendingRequest]:
        """In the order in which they were asked."""
        return sorted(self._open.values(), key=lambda ask: ask.number)

    def due(self, now: float, heard_s: float) -> tuple[list[PendingRequest], list[PendingRequest]]:
        """(to look after, lost) by now, when the peer was last heard at heard_s. Lost ones are open no more."""
        if now < self._next_s:
            return [], []
        lost = [ask for ask in self._open.values() if self._lost_s(ask, heard_s) <= now]
        for ask in lost:
            del self._open[ask.number]
        due = [ask for ask in self._open.values() if ask.due_s <= now]
        left = self._open.values()
        ahead = [ask.due_s for ask in left if ask.due_s > now] + [self._lost_s(ask, heard_s) for ask in left]
        self._next_s = min(ahead, default=NEVER)
        return due, lost

    @property
    def lowest(self) -> int:
        """The lowest number that is open; some is."""
        return min(self._open)

    @property
    def next_s(self) -> float:
        return self._next_s

    def _lost_s(self, ask: PendingRequest, heard_s: float) -> float:
        return max(ask.asked_s, heard_s) + self._patience.give_up_s if ask.deadline else NEVER
