"""The cost of messages. Workers share the links of the parameter servers; a collective has links of its own.

Traffic with the servers goes through two queues, one each way: a message is queued when it arrives, and occupies the
link for its bytes. All-reduce is a ring over the workers and does not share that traffic.
"""

from collections.abc import Sequence

from pydantic import Field

from hotrow.sizes import WholeOrSize, parse_bytes
from hotrow.spec import Spec


class Network(Spec):
    """Latency and bandwidth (bytes per second, as a number or as '1.25GB'); None is a link that takes no time."""

    latency_s: float = Field(default=0.0, ge=0)  # of any message between a worker and the servers
    bandwidth: WholeOrSize | None = None  # of all servers together, each way
    worker_bandwidth: WholeOrSize | None = None  # of one worker's own link
    reduce_latency_s: float = Field(default=0.0, ge=0)  # of one hop in the ring
    reduce_bandwidth: WholeOrSize | None = None  # of one worker's link in the ring

    @property
    def second_per_byte(self) -> float:
        """Of the servers' links."""
        return _second_per_byte(self.bandwidth)

    @property
    def worker_second_per_byte(self) -> float:
        """Of a worker's link."""
        return _second_per_byte(self.worker_bandwidth)

    def message_s(self, size: int) -> float:
        """Seconds of a message between a worker and the servers on an idle network."""
        return self.latency_s + size * max(self.second_per_byte, self.worker_second_per_byte)

    def all_reduce_s(self, workers: int, size: int) -> float:
        """A ring: 2 (N - 1) hops, each with a piece of size / N bytes."""
        hops = 2 * (workers - 1)
        return hops * (self.reduce_latency_s + size / workers * _second_per_byte(self.reduce_bandwidth))


class Link:
    """The servers' links in one direction: first come, first served. Nothing is transferred while the servers pause."""

    __slots__ = ("_free_s", "_pauses", "_second_per_byte", "_worker_second_per_byte", "takes_time")

    def __init__(self, network: Network, pauses: Sequence[tuple[float, float]] = ()) -> None:
        self._second_per_byte = network.second_per_byte
        self._worker_second_per_byte = network.worker_second_per_byte
        self._pauses = sorted(pauses)  # (from, until), apart from each other
        self._free_s = 0.0
        self.takes_time = bool(self._second_per_byte or self._worker_second_per_byte or self._pauses)

    def take(self, time_s: float, size: int) -> float:
        """When the transfer of a message that arrives at a time is complete. Calls come in the order of their times."""
        if not self.takes_time:
            return time_s
        start_s = max(time_s, self._free_s)
        self._free_s = self._moved(start_s, size * self._second_per_byte)
        return max(self._free_s, self._moved(time_s, size * self._worker_second_per_byte))

    def open_s(self, time_s: float) -> float:
        """The first time, not before this one, at which the servers answer."""
        return next((until_s for from_s, until_s in self._pauses if from_s <= time_s < until_s), time_s)

    def _moved(self, start_s: float, seconds: float) -> float:
        """The end of a transfer of so many seconds."""
        for from_s, until_s in self._pauses:
            if until_s <= start_s:
                continue
            if from_s <= start_s:
                start_s = until_s
            elif from_s < start_s + seconds:
                seconds += until_s - from_s
        return start_s + seconds


def _second_per_byte(bandwidth: int | str | None) -> float:
    if bandwidth is None:
        return 0.0
    return 1.0 / (parse_bytes(bandwidth) if isinstance(bandwidth, str) else bandwidth)
