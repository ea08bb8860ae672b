"""The data of a run: leases of one local batch each, in order. Leases of a lost worker are handed out again first."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from hotrow.data.batch import Batch, concatenated
from hotrow.errors import InputError


class SimLease(NamedTuple):
    """Samples for one local batch. Its number is never used again."""

    number: int
    samples: int
    batch: Batch | None = None  # None where nothing is computed


class SimSource(Protocol):
    """A source of leases."""

    def take(self, samples: int) -> SimLease | None:
        """The next lease, of so many samples or of what is left; None at the end."""

    def put_back(self, leases: Sequence[SimLease]) -> None:
        """Return leases: their samples come first again, in leases of the size requested then."""


class Counted:
    """A number of samples, without content."""

    def __init__(self, samples: int) -> None:
        if samples < 1:
            raise InputError(f"samples={samples}: a run needs 1 or more")
        self._left = samples
        self._given = 0

    def take(self, samples: int) -> SimLease | None:
        if not self._left:
            return None
        size = samples if samples < self._left else self._left
        self._left -= size
        self._given += 1
        return SimLease(self._given, size)

    def put_back(self, leases: Sequence[SimLease]) -> None:
        self._left += sum(lease.samples for lease in leases)


class Batches:
    """Real samples, from anything that yields (lease, batch) as loaders do; cut to the requested size."""

    def __init__(self, batches: Iterable[tuple[object, Batch]]) -> None:
        self._coming: Iterator[tuple[object, Batch]] = iter(batches)
        self._here: deque[Batch] = deque()
        self._given = 0

    def take(self, samples: int) -> SimLease | None:
        pieces: list[Batch] = []
        wanted = samples
        while wanted and (batch := self._next()) is not None:
            if len(batch) > wanted:
                self._here.appendleft(batch.slice(wanted, len(batch)))
                batch = batch.slice(0, wanted)
            wanted -= len(batch)
            pieces.append(batch)
        if not pieces:
            return None
        self._given += 1
        return SimLease(self._given, samples - wanted, concatenated(pieces))

    def put_back(self, leases: Sequence[SimLease]) -> None:
        self._here.extendleft(lease.batch for lease in reversed(leases) if lease.batch is not None)

    def _next(self) -> Batch | None:
        """The rest of a batch, or the next one; empty ones are skipped."""
        while not self._here:
            coming = next(self._coming, None)
            if coming is None:
                return None
            if len(coming[1]):
                self._here.append(coming[1])
        return self._here.popleft()


class SimLeasePool:
    """Available leases, and those reserved for waiting workers."""

    def __init__(self, source: SimSource, local_batch: int) -> None:
        self._source = source
        self._local_batch = local_batch
        self._returned: list[SimLease] = []  # a heap
        self._reserved: list[SimLease] = []  # a heap
        self._ended = False  # the source gave its last

    @property
    def reserved(self) -> int:
        """Leases that wait for a grant."""
        return len(self._reserved)

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left, as far as is known."""
        return self._ended and not self._returned and not self._reserved

    @property
    def has_returned(self) -> bool:
        """Whether a returned lease is available."""
        return bool(self._returned)

    def reserve(self) -> bool:
        """Reserve a lease for a worker; False where there is none."""
        lease = heappop(self._returned) if self._returned else self._source.take(self._local_batch)
        if lease is None:
            self._ended = True
            return False
        heappush(self._reserved, lease)
        return True

    def attach(self) -> SimLease | None:
        """Hand out the first reserved lease; None where there is none."""
        return heappop(self._reserved) if self._reserved else None

    def take(self) -> SimLease | None:
        """Hand out a lease that is not reserved."""
        if self._returned:
            return heappop(self._returned)
        lease = self._source.take(self._local_batch)
        self._ended = lease is None
        return lease

    def release(self, count: int) -> None:
        """Cancel so many reservations; the first leases stay reserved."""
        if count:
            self._reserved.sort()
            for _ in range(count):
                self.give_back(self._reserved.pop())

    def give_back(self, lease: SimLease) -> None:
        """Return a lease whose batch was not trained."""
        heappush(self._returned, lease)

    def resize(self, local_batch: int) -> None:
        """Hand out leases of another size from now on. No lease is reserved or open."""
        assert not self._reserved
        self._local_batch = local_batch
        self._source.put_back(sorted(self._returned))
        self._ended = self._ended and not self._returned
        self._returned.clear()
