"""Batches of a source by lease: read, decoded and shuffled in a thread ahead of the consumer, and a position.

A batch is identified by (epoch, index): the source and the loader's settings alone determine its rows. A lease is one
handing out of it. Every iteration hands out what is not done yet; what is given back comes again first.
"""

import time
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import count
from threading import Lock
from typing import Protocol, runtime_checkable

from hotrow.data.background import read_ahead
from hotrow.data.batch import Batch
from hotrow.data.decode import Decoder
from hotrow.data.position import Mark, Position
from hotrow.data.shuffle import batches_of, shuffled, window_order
from hotrow.data.source import Source
from hotrow.errors import ConfigError, InputError
from hotrow.sizes import MOST
from hotrow.spec import whole_number

HELD = 128  # leases out at once that can still be given back: their batches are held


@runtime_checkable
class BatchSource(Protocol):
    """A source that makes batches by itself, without Arrow between."""

    def read_batches(self, skip: int = 0, *, labels: bool = True) -> Iterator[Batch]: ...


@dataclass(frozen=True, slots=True)
class Lease:
    """Identifies one handing out of a batch; its number is never used again, also not after a resume.

    Example:
        >>> import pyarrow as pa
        >>> from hotrow.data import ArrowSource, Loader, Schema
        >>> schema = Schema(label="clicked", ids=["user"])
        >>> source = ArrowSource(pa.table({"clicked": [1, 0, 1], "user": ["a", "b", "a"]}), schema)
        >>> lease, batch = next(iter(Loader(source, batch=2)))
        >>> lease.epoch, lease.index, lease.samples
        (0, 0, 2)
    """

    number: int
    epoch: int
    index: int
    samples: int


@dataclass(frozen=True, slots=True)
class _Read:
    """A batch, or the end of an epoch of `index` batches; with the trouble met since the last one."""

    epoch: int
    index: int
    batch: Batch | None
    counts: dict[str, int]


class Loader:
    """Reads a source in batches: iterate it for (lease, batch).

    `done` and `give_back` are thread-safe.

    Example:
        >>> import pyarrow as pa
        >>> from hotrow.data import ArrowSource, Loader, Schema
        >>> schema = Schema(label="clicked", ids=["user"])
        >>> source = ArrowSource(pa.table({"clicked": [1, 0, 1], "user": ["a", "b", "a"]}), schema)
        >>> [len(batch) for _, batch in Loader(source, batch=2)]
        [2, 1]
    """

    def __init__(
        self,
        source: Source,
        batch: int,
        *,
        epochs: int | None = 1,
        shuffle: int = 0,
        seed: int = 0,
        prefetch: int = 4,
        drop_last: bool = False,
        labels: bool = True,
        position: Position | None = None,
    ) -> None:
        """`shuffle` is a window in rows, `epochs=None` reads for ever, `labels=False` is for data without any."""
        self.source, self.labels = source, labels
        self.epochs = None if epochs is None else whole_number("epochs", epochs, 0, MOST)
        self.prefetch = whole_number("prefetch", prefetch, 1, 100_000)
        self.held: int | None = HELD  # bound on open leases; None: none, where every lease is reported
        self.waited_s = 0.0  # by the consumer, for data
        self.counts: dict[str, int] = {}  # trouble met so far
        self._epoch_counts: dict[int, dict[str, int]] = {}  # the same by epoch, as far as they are counted in each
        self._decoder = Decoder(source.schema)
        fresh = Position(batch=batch, shuffle=shuffle, seed=seed, drop_last=drop_last)
        self._position = fresh if position is None else _checked(position, fresh, source)
        self._out: dict[int, tuple[Lease, Batch]] = {}  # by number, oldest first
        self._back: deque[tuple[Lease, Batch]] = deque()
        self._lock = Lock()
        self._reading = False

    def __iter__(self) -> Generator[tuple[Lease, Batch], None, None]:
        """What is not done yet. Leases of an earlier iteration still out are void: their batches come again."""
        if self._reading:
            raise InputError(
                "this loader is being iterated already: close that iteration first, or make another loader"
            )
        with self._lock:
            self._out.clear()
            self._back.clear()
        self._reading = True
        items = read_ahead(self._read(self._position), self.prefetch)
        try:
            while (pair := self._returned() or self._next(items)) is not None:
                yield pair
        finally:
            self._reading = False
            items.close()

    def done(self, lease: Lease) -> None:
        """The batch of a lease is trained and will not come again."""
        with self._lock:
            self._check_out(lease)
            self._position = self._position.with_done(lease.epoch, lease.index, lease.samples)
            del self._out[lease.number]

    def give_back(self, lease: Lease) -> None:
        """The batch of a lease was not trained: it comes again, by another lease, before new ones."""
        with self._lock:
            self._check_out(lease)
            self._back.append(self._out.pop(lease.number))

    def discount(self, epoch: int) -> None:
        """Take the trouble of an epoch out of `counts`: it was read ahead, and nothing of it is trained."""
        with self._lock:
            for name, number in self._epoch_counts.pop(epoch, {}).items():
                self.counts[name] -= number

    def position(self) -> Position:
        """Where a resume goes on: everything that is not done comes then."""
        return self._position

    def _check_out(self, lease: Lease) -> None:
        if lease.number not in self._out:
            reasons = f"it was done, given back, void by a new iteration, or {self.held} newer ones are out"
            raise InputError(f"lease {lease.number} of batch {lease.index}, epoch {lease.epoch}: is not out: {reasons}")

    def _returned(self) -> tuple[Lease, Batch] | None:
        with self._lock:
            if not self._back:
                return None
            lease, batch = self._back.popleft()
            return self._leased(lease.epoch, lease.index, batch)

    def _next(self, items: Generator[_Read, None, None]) -> tuple[Lease, Batch] | None:
        """What comes next from the reader; at its end what was given back meanwhile."""
        while True:
            start = time.perf_counter()
            item = next(items, None)
            self.waited_s += time.perf_counter() - start
            if item is None:
                return self._returned()
            with self._lock:
                self._count(item.epoch, item.counts)
                if item.batch is not None:
                    return self._leased(item.epoch, item.index, item.batch)
                self._position = self._position.with_end(item.epoch, item.index)

    def _leased(self, epoch: int, index: int, batch: Batch) -> tuple[Lease, Batch]:
        lease = Lease(self._position.leases, epoch, index, len(batch))
        self._position = self._position.with_lease()
        self._out[lease.number] = (lease, batch)
        if self.held is not None and len(self._out) > self.held:  # the consumer reports no lease: memory has a bound
            del self._out[next(iter(self._out))]
        return lease, batch

    def _count(self, epoch: int, counts: dict[str, int]) -> None:
        of_epoch = self._epoch_counts.setdefault(epoch, {})
        for name, number in counts.items():
            for total in (self.counts, of_epoch):
                total[name] = total.get(name, 0) + number
        self.counts["malformed_lines"] = self.source.trouble.malformed

    # What follows runs in the reading thread: it changes nothing of the loader.

    def _read(self, position: Position) -> Generator[_Read, None, None]:
        for epoch in count(position.epoch) if self.epochs is None else range(position.epoch, self.epochs):
            for item in self._epoch(position, epoch, position.mark(epoch)):
                yield item
                if self.epochs is None and item.batch is None and item.index == 0:
                    raise InputError("epochs=None: the source gives no batch, so reading would never end: is it empty?")

    def _epoch(self, position: Position, epoch: int, mark: Mark) -> Iterator[_Read]:
        counts: dict[str, int] = {}
        index = mark.below
        for batch in batches_of(self._pieces(position, epoch, mark, counts), position.batch):
            if position.drop_last and len(batch) < position.batch:
                counts["dropped_samples"] = counts.get("dropped_samples", 0) + len(batch)
                continue
            if not mark.holds(index):
                yield _Read(epoch, index, batch, counts.copy())
                counts.clear()
            index += 1
        if mark.above and mark.above[-1] >= index:
            raise InputError(_changed(f"batch {mark.above[-1]} of epoch {epoch} is done, but there are only {index}"))
        yield _Read(epoch, index, None, counts.copy())

    def _pieces(self, position: Position, epoch: int, mark: Mark, counts: dict[str, int]) -> Iterator[Batch]:
        """The epoch's rows in order, from the first batch that is not done; windows that are done are jumped over."""
        first = mark.below * position.batch
        if position.shuffle == 0:
            return self._decoded(first, counts)
        number, within = divmod(first, position.shuffle)
        order = window_order(position.seed, epoch)
        pieces = self._decoded(number * position.shuffle, counts)
        return shuffled(pieces, position.shuffle, order, number, within)

    def _decoded(self, skip: int, counts: dict[str, int]) -> Iterator[Batch]:
        if isinstance(self.source, BatchSource):
            pieces = self.source.read_batches(skip, labels=self.labels)
        else:
            pieces = (self._decoder.batch(record, self.labels) for record in self.source.read(skip))
        for piece in pieces:
            for name, number in piece.counts.items():
                counts[name] = counts.get(name, 0) + number
            yield piece


def _checked(position: Position, fresh: Position, source: Source) -> Position:
    """A position to resume from, if it can be of these settings and this source."""
    if not isinstance(position, Position):
        raise ConfigError(f"position is a {type(position).__name__}: give a Position, or Position.of(document)")
    position.check_same(batch=fresh.batch, shuffle=fresh.shuffle, seed=fresh.seed, drop_last=fresh.drop_last)
    rows = source.rows()
    for mark in position.marks:
        done = mark.above[-1] + 1 if mark.above else mark.below
        if rows is not None and done > -(-rows // position.batch):
            raise InputError(_changed(f"{done} batches of {position.batch} are done, but there are only {rows:,} rows"))
    return position


def _changed(found: str) -> str:
    return f"position: {found}: the data has changed since: start again without the position"
