"""Batches of a source by lease: read, decoded and shuffled in a thread ahead of the consumer, and a position.

A batch is identified by (epoch, index): the source and the loader's settings alone determine its rows. A lease is one
handing out of it. Every iteration hands out what is not done yet; what is given back comes again first.
"""

import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from threading import Lock
from typing import Protocol, cast

from hotrow.data.background import read_ahead
from hotrow.data.batch import Batch
from hotrow.data.position import Position
from hotrow.data.reading import AnyBatch, BatchName, BatchRead, BatchReader
from hotrow.data.source import Source
from hotrow.errors import ConfigError, InputError
from hotrow.sizes import MOST
from hotrow.spec import whole_number

RowPut = Callable[[], object]  # puts rows that were read into memory; they stay there while it is held
RowReading = Callable[[Batch], RowPut | None]  # reads rows that are on disk; None: nothing is left to do
READ_AND_PUT = 3  # batches whose rows are read, between the two threads, and put
HELD = 128  # leases out at once that can still be given back: their batches are held


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


class RemoteReading(Protocol):
    """Loaders of a cluster that read in place of this process."""

    def read(self, position: Position) -> Generator[BatchRead, None, None]:
        """What is not done at a position, in the order of `BatchReader`; batches by name."""

    def release(self, batch: BatchName) -> None:
        """Drop a batch that is not needed any more."""


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
        self.remote: RemoteReading | None = None  # loaders that read; None: a thread of this process
        self.thread_started: Callable[[], None] | None = None  # called first in it, and in those of `load_rows`
        self.load_rows: RowReading | None = None  # of batches that were read ahead
        self.loads_ahead = True  # rows on disk come into memory ahead of their batch; measurements turn it off
        fresh = Position(batch=batch, shuffle=shuffle, seed=seed, drop_last=drop_last)
        self._position = fresh if position is None else _checked(position, fresh, source)
        self._out: dict[int, tuple[Lease, AnyBatch]] = {}  # by number, oldest first
        self._back: deque[tuple[Lease, AnyBatch]] = deque()
        self._lock = Lock()
        self._reading = False

    def __iter__(self) -> Generator[tuple[Lease, Batch], None, None]:
        """What is not done yet. Leases of an earlier iteration still out are void: their batches come again.

        While `remote` is set, batches come by name.
        """
        if self._reading:
            raise InputError(
                "this loader is being iterated already: close that iteration first, or make another loader"
            )
        with self._lock:
            self._out.clear()
            self._back.clear()
        self._reading = True
        items = self._read(self._position)
        try:
            while (pair := self._returned() or self._next(items)) is not None:
                yield cast(tuple[Lease, Batch], pair)
        finally:
            self._reading = False
            items.close()

    def done(self, lease: Lease) -> None:
        """The batch of a lease is trained and will not come again."""
        with self._lock:
            self._check_out(lease)
            self._position = self._position.with_done(lease.epoch, lease.index, lease.samples)
            self._drop(lease.number)

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

    def _returned(self) -> tuple[Lease, AnyBatch] | None:
        with self._lock:
            if not self._back:
                return None
            lease, batch = self._back.popleft()
            return self._leased(lease.epoch, lease.index, batch)

    def _next(self, items: Generator[BatchRead, None, None]) -> tuple[Lease, AnyBatch] | None:
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
                self._end_epoch(item.epoch, item.index)

    def _leased(self, epoch: int, index: int, batch: AnyBatch) -> tuple[Lease, AnyBatch]:
        lease = Lease(self._position.leases, epoch, index, len(batch))
        self._position = self._position.with_lease()
        self._out[lease.number] = (lease, batch)
        if self.held is not None and len(self._out) > self.held:  # the consumer reports no lease: memory has a bound
            self._drop(next(iter(self._out)))
        return lease, batch

    def _drop(self, number: int) -> None:
        """Give up the batch of a lease."""
        _, batch = self._out.pop(number)
        if self.remote is not None and isinstance(batch, BatchName):
            self.remote.release(batch)

    def _count(self, epoch: int, counts: dict[str, int]) -> None:
        of_epoch = self._epoch_counts.setdefault(epoch, {})
        for name, number in counts.items():
            for total in (self.counts, of_epoch):
                total[name] = total.get(name, 0) + number
        self.counts["malformed_lines"] = self.source.trouble.malformed

    def _end_epoch(self, epoch: int, batches: int) -> None:
        if self.epochs is None and batches == 0:
            raise InputError("epochs=None: the source gives no batch, so reading would never end: is it empty?")
        above = () if epoch < self._position.epoch else self._position.mark(epoch).above
        if above and above[-1] >= batches:
            raise InputError(_changed(f"batch {above[-1]} of epoch {epoch} is done, but there are only {batches}"))
        self._position = self._position.with_end(epoch, batches)

    def _read(self, position: Position) -> Generator[BatchRead, None, None]:
        if self.remote is not None:
            return self.remote.read(position)
        reader = BatchReader(self.source, epochs=self.epochs, labels=self.labels)
        batches = read_ahead(reader.read(position), self.prefetch, self.thread_started)
        if self.load_rows is None:
            return batches
        read = read_ahead(_rows_read(batches, self.load_rows), 1, self.thread_started)
        put = read_ahead(_rows_put(read), max(1, self.prefetch - READ_AND_PUT), self.thread_started)
        return _rows_held(put)


def _rows_read(
    batches: Generator[BatchRead, None, None], load_rows: RowReading
) -> Generator[tuple[BatchRead, RowPut | None], None, None]:
    """Batches whose rows are read, in a thread of its own, beside the one that reads batches."""
    with closing(batches):
        for each in batches:
            yield each, load_rows(each.batch) if isinstance(each.batch, Batch) else None


def _rows_put(
    read: Generator[tuple[BatchRead, RowPut | None], None, None],
) -> Generator[tuple[BatchRead, RowPut | None], None, None]:
    """Batches whose rows are in memory, in another thread: rows of the next batch are read meanwhile."""
    with closing(read):
        for item in read:
            if item[1] is not None:
                item[1]()
            yield item
            del item  # the consumer's alone while the next one is read


def _rows_held(ready: Generator[tuple[BatchRead, RowPut | None], None, None]) -> Generator[BatchRead, None, None]:
    """The batches. Rows of one stay in memory until the next one is asked for, by when it was looked up as a rule."""
    with closing(ready):
        for each, _put in ready:
            yield each


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
