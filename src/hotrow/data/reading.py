"""Batches of a source in order, from its rows and the settings of a position alone: read, decoded and shuffled.

Several readers of one source, each with its own stretches of batches, make together what one of them makes alone.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from hotrow.data.batch import Batch
from hotrow.data.decode import Decoder
from hotrow.data.position import Mark, Position
from hotrow.data.row_ranges import RowSpan, read_ranges
from hotrow.data.shuffle import batches_of, shuffled, window_order
from hotrow.data.source import Source
from hotrow.data.stretches import Assignment
from hotrow.errors import InputError
from hotrow.sizes import MOST


@runtime_checkable
class BatchSource(Protocol):
    """A source that makes batches by itself, without Arrow between, and reaches any row at once."""

    def read_batches(self, skip: int = 0, *, labels: bool = True) -> Iterator[Batch]: ...


@dataclass(frozen=True, slots=True)
class BatchName:
    """A batch that is kept by a loader of a cluster. The trainer that computes it pulls it there."""

    loader: str  # its name, as "loader 0"
    address: str
    reading: int  # of this loader
    epoch: int
    index: int
    samples: int
    labels: None = field(default=None, init=False)  # are where the batch is
    weights: None = field(default=None, init=False)

    def __len__(self) -> int:
        return self.samples


AnyBatch: TypeAlias = Batch | BatchName


@dataclass(frozen=True, slots=True)
class BatchRead:
    """A batch, or the end of an epoch before batch `index`; with the trouble met since the last one."""

    epoch: int
    index: int
    batch: AnyBatch | None
    counts: dict[str, int]


class BatchReader:
    """Reads the batches that an assignment names, epoch by epoch."""

    def __init__(
        self,
        source: Source,
        *,
        epochs: int | None = 1,
        labels: bool = True,
        assignment: Assignment | None = None,
    ) -> None:
        self._source, self._epochs, self._labels = source, epochs, labels
        self._assignment = assignment or Assignment()
        self._decoder = Decoder(source.schema)

    def read(self, position: Position) -> Generator[BatchRead, None, None]:
        """What is not done yet. Each epoch closes with its end, as far as this reader knows it: the first batch of its
        own that does not exist."""
        for epoch in epochs_from(position, self._epochs):
            yield from self._epoch(position, epoch, position.mark(epoch))

    def _epoch(self, position: Position, epoch: int, mark: Mark) -> Iterator[BatchRead]:
        counts: dict[str, int] = {}
        stretches = self._assignment.stretches(mark.below)
        rows = _Rows(self._raw(position, mark))
        for stretch in stretches:
            index = stretch.start
            for batch in islice(self._batches(position, epoch, mark, stretch, rows, counts), len(stretch)):
                if position.drop_last and len(batch) < position.batch:
                    counts["dropped_samples"] = counts.get("dropped_samples", 0) + len(batch)
                    continue
                if not mark.holds(index):
                    yield BatchRead(epoch, index, batch, counts.copy())
                    counts.clear()
                index += 1
            if index < stretch.stop:
                break
        yield BatchRead(epoch, index, None, counts.copy())

    def _batches(
        self, position: Position, epoch: int, mark: Mark, stretch: range, rows: "_Rows", counts: dict[str, int]
    ) -> Iterator[Batch]:
        start, stop = _span(position, stretch)
        first = stretch.start * position.batch
        # A window that begins in the stretch before is counted there, if that is read.
        counted = start if stretch.start == mark.below or start == first else start + position.shuffle
        pieces = self._decoded(rows, stop, counted, counts)
        if position.shuffle:
            order = window_order(position.seed, epoch)
            pieces = shuffled(pieces, position.shuffle, order, start // position.shuffle, first - start)
        return batches_of(pieces, position.batch)

    def _decoded(self, rows: "_Rows", stop: int, counted: int, counts: dict[str, int]) -> Iterator[Batch]:
        """Decoded rows before `stop`; their trouble is counted from row `counted` on."""
        for row, raw in rows.before(stop, counted):
            piece = self._decoder.batch(raw, self._labels) if isinstance(raw, pa.RecordBatch) else raw
            for name, number in piece.counts.items() if row >= counted else ():
                counts[name] = counts.get(name, 0) + number
            yield piece

    def _raw(self, position: Position, mark: Mark) -> "Iterator[tuple[int, RawRows]]":
        """The rows of all stretches, with the number of the first of each piece."""
        spans = (_span(position, stretch) for stretch in self._assignment.stretches(mark.below))
        if isinstance(self._source, BatchSource):
            yield from _batch_ranges(self._source, spans, labels=self._labels)
        elif self._assignment.stretch < MOST:
            yield from read_ranges(self._source, spans)
        else:
            row, _ = next(spans)
            for record in self._source.read(row):
                yield row, record
                row += record.num_rows


RawRows: TypeAlias = pa.RecordBatch | Batch


def in_order(
    position: Position, epochs: int | None, assignment: Assignment, next_of: Callable[[int], BatchRead]
) -> Generator[BatchRead, None, None]:
    """What one reader would give, from the items of several, which `next_of` waits for."""
    for epoch in epochs_from(position, epochs):
        heads: dict[int, BatchRead] = {}
        for index in count(position.mark(epoch).below):
            owner = assignment.owner(index)
            head = heads[owner] = heads.get(owner) or next_of(owner)
            if head.batch is not None and head.index == index:
                yield heads.pop(owner)
            elif head.batch is None and head.index <= index:
                break
        ends = [heads.get(loader) or next_of(loader) for loader in range(assignment.loaders)]
        if further := [each for each in ends if each.batch is not None]:
            found = f"one has batch {further[0].index} of epoch {epoch}, another only {head.index} batches"
            raise InputError(f"the loaders read different data: {found}: give each the same files")
        counts: Counter[str] = Counter()
        for each in ends:
            counts.update(each.counts)
        yield BatchRead(epoch, head.index, None, dict(counts))


def advanced(position: Position, item: BatchRead) -> Position:
    """The position for reading on after an item: whatever comes before it is left out."""
    if item.batch is None:
        return position.model_copy(update={"epoch": item.epoch + 1, "marks": position.marks_from(item.epoch + 1)})
    mark = position.mark(item.epoch)
    below, above = item.index + 1, [each for each in mark.above if each > item.index]
    while above and above[0] == below:
        below += 1
        del above[0]
    marks = (Mark(below=below, above=tuple(above)), *position.marks_from(item.epoch + 1))
    return position.model_copy(update={"epoch": item.epoch, "marks": marks})


def epochs_from(position: Position, epochs: int | None) -> Iterable[int]:
    """The epochs that are not over."""
    return count(position.epoch) if epochs is None else range(position.epoch, epochs)


def _span(position: Position, stretch: range) -> RowSpan:
    """The rows that a stretch is made of: whole shuffle windows."""
    start, stop = stretch.start * position.batch, stretch.stop * position.batch
    window = position.shuffle or 1
    return start - start % window, -(-stop // window) * window


def _batch_ranges(source: BatchSource, spans: Iterator[RowSpan], *, labels: bool) -> Iterator[tuple[int, Batch]]:
    for start, stop in spans:
        row = start
        for batch in source.read_batches(start, labels=labels):
            yield row, batch if len(batch) <= stop - row else batch.slice(0, stop - row)
            row += len(batch)
            if row >= stop:
                break
        else:
            return


class _Rows:
    """Rows that come in order, handed out stretch by stretch."""

    def __init__(self, rows: Iterator[tuple[int, RawRows]]) -> None:
        self._rows = rows
        self._next: tuple[int, RawRows] | None = None

    def before(self, stop: int, counted: int) -> Iterator[tuple[int, RawRows]]:
        """The next ones before row `stop`, cut at row `counted`."""
        while (found := self._next or next(self._rows, None)) is not None:
            self._next = None
            row, raw = found
            if row >= stop:
                self._next = found
                return
            size = len(raw)
            if row < counted < row + size:
                yield row, _cut(raw, 0, counted - row)
                row, raw = counted, _cut(raw, counted - row, size)
            yield row, raw


def _cut(raw: RawRows, start: int, stop: int) -> RawRows:
    return raw.slice(start, stop) if isinstance(raw, Batch) else raw.slice(start, stop - start)
