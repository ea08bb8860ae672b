"""Requests without a reply: when to probe each, and when its peer is lost. The time is an argument.

Some time after a request was sent a probe follows, not the request again: the server replies that the request is in
progress, repeats its reply, or does not know it, and only then the frames are sent again. A connection keeps the order
of messages, so a reply that was sent before arrives before such a denial.

A request to a busy peer stays open: it is sent again after a pause, any number of times.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from hotrow.transport.limits import RetryPolicy

NEVER = float("inf")


def _ignore(outcome: Any) -> None: ...


class PendingRequest(Struct, eq=False):
    """One request, with everything needed to send it again. `done` gets its reply, or the error."""

    number: int
    header: bytes
    frames: tuple[memoryview, ...]
    deadline: bool
    created_s: float
    done: Callable[[Any], None] = _ignore
    attempts: int = 0
    due_s: float = NEVER  # when to probe; never before it was sent
    busy: int = 0  # replies "busy" so far
    put_off: bool = False  # it is sent when due, not probed


class PendingRequests:
    """The open requests of one connection."""

    def __init__(self, retry: RetryPolicy, chance: Callable[[], float]) -> None:
        self._retry, self._chance = retry, chance
        self._open: dict[int, PendingRequest] = {}
        self._next_s = NEVER  # nothing is due before; may be too early, never too late

    def __len__(self) -> int:
        return len(self._open)

    def add(self, request: PendingRequest) -> None:
        self._open[request.number] = request
        if request.deadline:
            self._next_s = min(self._next_s, self._lost_s(request, request.created_s))

    def sent(self, request: PendingRequest, now: float) -> None:
        """Note that the request or a probe for it was sent: the next pause begins."""
        due_s = request.due_s = now + self._retry.pause_s(request.attempts, self._chance())
        request.attempts += 1
        request.put_off = False
        if due_s < self._next_s:
            self._next_s = due_s

    def put_off(self, request: PendingRequest, now: float) -> None:
        """Reopen a request that a "busy" reply closed; it is sent again later."""
        request.due_s = now + self._retry.busy_s(request.busy, self._chance())
        request.busy += 1
        request.put_off = True
        self._open[request.number] = request
        self._next_s = min(self._next_s, request.due_s)

    def take(self, number: int) -> PendingRequest | None:
        """Close a request; None for one that is not open: answered before, or given up."""
        return self._open.pop(number, None)

    def find(self, number: int) -> PendingRequest | None:
        return self._open.get(number)

    def all(self) -> list[PendingRequest]:
        """In the order in which they were made."""
        return sorted(self._open.values(), key=lambda request: request.number)

    def due(self, now: float, received_s: float) -> tuple[list[PendingRequest], list[PendingRequest]]:
        """(to repeat, lost) by now, with the last message received at received_s. Lost ones are closed."""
        if now < self._next_s:
            return [], []
        lost = [request for request in self._open.values() if self._lost_s(request, received_s) <= now]
        for request in lost:
            del self._open[request.number]
        due = [request for request in self._open.values() if request.due_s <= now]
        left = self._open.values()
        ahead = [request.due_s for request in left if request.due_s > now] + [
            self._lost_s(request, received_s) for request in left
        ]
        self._next_s = min(ahead, default=NEVER)
        return due, lost

    @property
    def oldest(self) -> PendingRequest | None:
        """The one that was added first; None where none is open."""
        return next(iter(self._open.values()), None)

    @property
    def lowest(self) -> int:
        """The lowest open number; at least one must be open."""
        return min(self._open)

    @property
    def next_s(self) -> float:
        return self._next_s

    def _lost_s(self, request: PendingRequest, received_s: float) -> float:
        return max(request.created_s, received_s) + self._retry.give_up_s if request.deadline else NEVER
