"""The leases of a run in order, epoch by epoch: one for each grant.

A request of a worker reserves a lease. A grant takes the first reserved one, so in Sync slice r goes to rank r whatever
the order of the requests.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease


class LeaseQueue:
    """Leases in order, from an iterator over several epochs."""

    def __init__(
        self,
        leases: Iterator[tuple[Lease, Batch]],
        done: Callable[[Lease], None] = lambda lease: None,
        before: Callable[[Batch], None] | None = None,
        most_samples: int | None = None,
    ) -> None:
        """`done` gets every lease that was applied or came too late, `before` every batch about to be trained.

        With `most_samples` trained the caller stops: no batch of a step that would follow is granted early.
        """
        self.most_samples = most_samples
        self._leases, self.done, self.before = leases, done, before
        self._ahead: deque[tuple[Lease, Batch]] = deque()
        self._reserved: deque[tuple[Lease, Batch]] = deque()
        self.epoch: int | None = None
        self.waited_s = 0.0  # for data, since `take_waited`

    def open_epoch(self) -> int | None:
        """Move to the epoch of the next lease; None at the end of the data."""
        if self._reserved:
            raise AssertionError("an epoch ends when everything that was reserved is trained")
        self._look_ahead()
        self.epoch = self._ahead[0][0].epoch if self._ahead else None
        return self.epoch

    def reserve(self) -> bool:
        """Reserve one more lease of this epoch; False where there is none."""
        self._look_ahead()
        if not self._ahead or self._ahead[0][0].epoch != self.epoch:
            return False
        self._reserved.append(self._ahead.popleft())
        return True

    @property
    def reserved(self) -> int:
        """Leases reserved for workers."""
        return len(self._reserved)

    def attach(self) -> tuple[Lease, Batch] | None:
        """Hand out the first reserved lease."""
        return self._reserved.popleft() if self._reserved else None

    def take(self) -> tuple[Lease, Batch] | None:
        """Hand out the next lease that is not reserved."""
        return self._reserved.pop() if self.reserve() else None

    def release(self, count: int) -> None:
        """Return the last `count` reserved leases, in the same order, for the next requests."""
        for _ in range(count):
            self.give_back(self._reserved.pop())

    def give_back(self, lease: tuple[Lease, Batch]) -> None:
        """Return a lease whose batch was not trained: it is handed out again before later ones."""
        place = sum(other.number < lease[0].number for other, _ in self._ahead)
        self._ahead.insert(place, lease)

    def take_waited(self) -> float:
        """Seconds spent waiting for data since the last call."""
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
