"""A slow network on one machine: messages wait for a delay, and for a token bucket in each direction. No socket here;
the time is an argument."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from hotrow.errors import ConfigError
from hotrow.transport.pending import NEVER

Direction = Literal["in", "out"]
GBPS = 1e9 / 8  # bytes per second of one gigabit per second


@dataclass(slots=True)
class TokenBucket:
    """Passes `bytes_per_s`, and after a pause up to `burst_bytes` at once. Messages pass in order, each as a whole."""

    bytes_per_s: float
    burst_bytes: float = 0.0
    _passed_s: float = field(default=float("-inf"), init=False)  # when all bytes so far have passed at the rate

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0 or self.burst_bytes < 0:
            raise ConfigError(
                f"bytes_per_s={self.bytes_per_s}, burst_bytes={self.burst_bytes}: must be above 0, and 0 or more"
            )

    def pass_s(self, nbytes: int, now: float) -> float:
        """When the last byte of a message has passed that is handed in now."""
        begins_s = max(self._passed_s, now - self.burst_bytes / self.bytes_per_s)
        self._passed_s = begins_s + nbytes / self.bytes_per_s
        return max(self._passed_s, now)


class EmulatedLink:
    """The messages of a client that are on their way, each direction in order."""

    def __init__(self, delay_s: float = 0.0, bytes_per_s: float | None = None) -> None:
        self._delay_s = delay_s
        self._buckets: dict[Direction, TokenBucket] = {}
        if bytes_per_s is not None:
            self._buckets = {"in": TokenBucket(bytes_per_s), "out": TokenBucket(bytes_per_s)}
        self._held: dict[Direction, deque[tuple[float, Callable[[], None]]]] = {"in": deque(), "out": deque()}
        self.is_slow = bool(delay_s or self._buckets)

    def hold(self, direction: Direction, nbytes: int, now: float, action: Callable[[], None]) -> None:
        """`action` is what happens when a message arrives."""
        bucket = self._buckets.get(direction)
        passed_s = now if bucket is None else bucket.pass_s(nbytes, now)
        self._held[direction].append((passed_s + self._delay_s, action))

    def due(self, now: float) -> Iterator[Callable[[], None]]:
        """The actions of messages that have arrived by now."""
        for held in self._held.values():
            while held and held[0][0] <= now:
                yield held.popleft()[1]

    @property
    def next_s(self) -> float:
        """When the next message arrives."""
        return min((held[0][0] for held in self._held.values() if held), default=NEVER)
