"""The data of a run as the engine deals them: one lease for each grant, epoch by epoch.

A worker that asks reserves a lease; it gets one when it is granted a batch, always the first that is reserved. So a
worker that is asked to start has data, and in Sync slice r goes to rank r whoever asked first.
"""

import time
from collections import deque
from collections.abc import Iterator

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease


class LeaseQueue:
    """Leases in order, from an iterator over several epochs."""

    def __init__(self, leases: Iterator[tuple[Lease, Batch]]) -> None:
        self._leases = leases
        self._ahead: deque[tuple[Lease, Batch]] = deque()
        self._reserved: deque[tuple[Lease, Batch]] = deque()
        self.epoch: int | None = None
        self.waited_s = 0.0  # for data, since `take_waited`

    def open_epoch(self) -> int | None:
        """Go on to the epoch of the next lease; None where there is none."""
        if self._reserved:
            raise AssertionError("an epoch ends when everything that was reserved is trained")
        self._look_ahead()
        self.epoch = self._ahead[0][0].epoch if self._ahead else None
        return self.epoch

    def reserve(self) -> bool:
        """Whether there is one more lease in this epoch; it is kept for whoever asked."""
        self._look_ahead()
        if not self._ahead or self._ahead[0][0].epoch != self.epoch:
            return False
        self._reserved.append(self._ahead.popleft())
        return True

    @property
    def reserved(self) -> int:
        """Leases that are kept for workers that asked."""
        return len(self._reserved)

    def attach(self) -> tuple[Lease, Batch] | None:
        """The first that is reserved."""
        return self._reserved.popleft() if self._reserved else None

    def take(self) -> tuple[Lease, Batch] | None:
        """The next one that is not reserved."""
        return self._reserved.pop() if self.reserve() else None

    def release(self, count: int) -> None:
        """Return the last `count` reserved leases, in the same order, to whoever asks next."""
        for _ in range(count):
            self._ahead.appendleft(self._reserved.pop())

    def take_waited(self) -> float:
        """Seconds spent on waiting for data since the last call."""
        waited, self.waited_s = self.waited_s, 0.0
        return waited

    def close(self) -> None:
        """End the reading thread, if there is one."""
        close = getattr(self._leases, "close", None)
        if close is not None:
            close()

    def _look_ahead(self) -> None:
        if not self._ahead:
            start = time.perf_counter()
            coming = next(self._leases, None)
            self.waited_s += time.perf_counter() - start
            if coming is not None:
                self._ahead.append(coming)
