"""Answers a loader's requests: in a process of its own, or beside the work of a trainer.

Each reading has a thread. It reads as far as the driver has granted, and answers the request that waits for batches.
"""

import json
import socket
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pyarrow import fs

from hotrow.data.batch import Batch
from hotrow.data.files import File
from hotrow.data.position import Position
from hotrow.data.reading import BatchRead, BatchReader
from hotrow.data.row_ranges import files_of
from hotrow.data.source import Source, Trouble
from hotrow.data.stretches import Assignment
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.loading.core import ReadingBuffer
from hotrow.transport.batches import pack_batch
from hotrow.transport.faults import fault_of
from hotrow.transport.ids import pack_ids
from hotrow.transport.messages import (
    BatchesDue,
    BatchesMade,
    BatchGiven,
    BatchHead,
    CloseReading,
    Done,
    Fault,
    FileFacts,
    ForgetSource,
    IdsGiven,
    KeepBatches,
    MalformedLine,
    Message,
    NextBatches,
    OpenReading,
    PrepareSource,
    PullBatch,
    TroubleMet,
)
from hotrow.transport.request import Request

FetchSource: TypeAlias = Callable[[str], Source]  # by key
Announce: TypeAlias = Callable[[Batch], None]  # its rows are looked up soon

LOADING = PrepareSource | ForgetSource | OpenReading | NextBatches | KeepBatches | CloseReading | PullBatch
JOIN_S = 5.0  # a reader that hangs in its input longer than this ends by itself once its input comes


def no_source(key: str) -> Source:
    """The `FetchSource` of a role that was started without one."""
    raise InputError(f"source {key!r}: this role was started without a way to fetch it")


class LoaderService:
    """Sources and readings of one loader."""

    def __init__(self, fetch: FetchSource = no_source, announce: Announce | None = None) -> None:
        """`announce` is called with batches that are handed out soon, in the thread of their reading."""
        self._fetch, self._announce = fetch, announce
        self._sources: dict[str, Source] = {}  # by key: of a fit, and of an evaluation during it
        self._readings: dict[int, _Reading] = {}
        self._closed: list[_Reading] = []  # whose threads have not ended
        self.batches = self.samples = 0  # announced by readings that are closed

    @staticmethod
    def handles(message: Message) -> bool:
        """Whether a request is for a loader."""
        return isinstance(message, LOADING)

    def handle(self, request: Request) -> None:
        """Answer now or later. In the thread of the server."""
        match request.message:
            case PrepareSource() as prepare:
                threading.Thread(
                    target=self._prepare, args=(prepare, request), name="hotrow-source", daemon=True
                ).start()
            case ForgetSource(key):
                self._sources.pop(key, None)
                request.reply(Done())
            case OpenReading() as opened:
                self._open(opened)
                request.reply(Done())
            case NextBatches() as asked:
                self._reading(asked.reading).ask(asked, request)
            case KeepBatches(number, kept):
                self._reading(number).keep(kept)
                request.reply(Done())
            case CloseReading(reading):
                self._close(reading)
                request.reply(Done())
            case PullBatch() as pull:
                request.reply(*_given(self.batch(pull.reading, pull.epoch, pull.index), pull.part))

    def take(self, message: Message) -> None:
        """A message without a reply. A reading that is closed meanwhile has nothing to announce."""
        if not isinstance(message, BatchesDue):
            raise InputError(f"a {type(message).__name__} needs a reply: send it as a request")
        if (reading := self._readings.get(message.reading)) is not None:
            reading.expect(message.epoch, message.index)

    def batch(self, reading: int, epoch: int, index: int) -> Batch:
        """A batch of a reading."""
        return self._reading(reading).batch(epoch, index)

    def figures(self) -> dict[str, float]:
        """Counters by name."""
        now = list(self._readings.values())
        return {
            "loaded_batches": float(self.batches + sum(each.batches for each in now)),
            "loaded_samples": float(self.samples + sum(each.samples for each in now)),
            "kept_batches": float(sum(each.kept for each in now)),
        }

    def close(self) -> None:
        """End all readings, and wait for their threads."""
        for reading in list(self._readings):
            self._close(reading)
        for closed in self._closed:
            closed.join(JOIN_S)

    def _prepare(self, prepare: PrepareSource, request: Request) -> None:
        """In a thread of its own: files may be far away."""
        try:
            if prepare.key not in self._sources:
                self._sources[prepare.key] = self._fetch(prepare.key)
            check_files(self._sources[prepare.key], prepare.files)
            request.reply(Done())
        except HotrowError as error:
            request.reply(fault_of(error))
        except Exception as error:  # the source cannot be made here: a module is missing, or its file system
            request.reply(Fault.of("input", f"the source cannot be opened here: {type(error).__name__}: {error}"))

    def _open(self, opened: OpenReading) -> None:
        if (source := self._sources.get(opened.key)) is None:
            raise InputError(f"source {opened.key!r}: is not here: send PrepareSource first")
        if opened.number >= opened.loaders:
            message = f"number={opened.number}: must be below loaders={opened.loaders}, they are numbered from 0"
            raise InputError(message)
        if opened.reading not in self._readings:
            self._readings[opened.reading] = _Reading(source, opened, _position(opened.position), self._announce)

    def _close(self, number: int) -> None:
        """Its thread ends when its input comes: the server does not wait for that."""
        self._closed = [each for each in self._closed if each.is_reading]
        if (reading := self._readings.pop(number, None)) is not None:
            reading.close()
            self._closed.append(reading)
            self.batches += reading.batches
            self.samples += reading.samples

    def _reading(self, number: int) -> "_Reading":
        if (found := self._readings.get(number)) is None:
            raise InputError(f"reading {number}: is not open here")
        return found


class _Reading:
    """A thread that reads, the request that waits for it, and a thread that announces batches where one is to."""

    def __init__(
        self, source: Source, opened: OpenReading, position: Position, announce: Announce | None = None
    ) -> None:
        self.batches = self.samples = 0
        self._buffer = ReadingBuffer()
        self._trouble = source.trouble
        self._announced = 0  # items
        self._told = self._known = TroubleMet({}, ())  # in the reply before, and what the driver has for certain
        self._waiting: Request | None = None
        self._changed = threading.Condition()
        self._closed = False
        reader = BatchReader(
            source,
            epochs=opened.epochs,
            labels=opened.labels,
            assignment=Assignment(opened.number, opened.loaders, opened.stretch),
        )
        self._thread = threading.Thread(target=self._run, args=(reader, position), name="hotrow-loader", daemon=True)
        self._thread.start()
        self._announcing: threading.Thread | None = None
        if announce is not None:
            self._announcing = threading.Thread(
                target=self._announce, args=(announce,), name="hotrow-announcer", daemon=True
            )
            self._announcing.start()

    @property
    def kept(self) -> int:
        return self._buffer.kept

    def ask(self, asked: NextBatches, request: Request) -> None:
        with self._changed:
            if asked.received > self._buffer.received:  # else the reply may be lost
                self._known = self._told
            self._buffer.grant(asked.received, asked.until, asked.released)
            self._waiting = request
            self._changed.notify_all()
            self._answer()

    def expect(self, epoch: int, index: int) -> None:
        with self._changed:
            self._buffer.expect(epoch, index)
            self._changed.notify_all()

    def batch(self, epoch: int, index: int) -> Batch:
        with self._changed:
            return self._buffer.batch(epoch, index)

    def keep(self, kept: Sequence[tuple[int, int]]) -> None:
        with self._changed:
            self._closed = True
            self._buffer.keep(kept)
            self._answer()
            self._changed.notify_all()

    @property
    def is_reading(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._buffer.end()
            self._answer()
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        for thread in (self._thread, self._announcing):
            if thread is not None:
                thread.join(seconds)

    def _run(self, reader: BatchReader, position: Position) -> None:
        error: BaseException | None = None
        try:
            items = reader.read(position)
            while self._may_make() and (item := next(items, None)) is not None:
                self._made(item)
                del item  # the buffer's alone from here on
        except Exception as raised:
            error = raised
        with self._changed:
            self._buffer.end(error)
            self._answer()

    def _announce(self, announce: Announce) -> None:
        """Beside the thread that reads, which may wait for the driver while batches come due."""
        while True:
            with self._changed:
                while not self._closed and not (due := self._buffer.take_due()):
                    self._changed.wait()
                if self._closed:
                    return
            for batch in due:
                announce(batch)
            due.clear()  # the buffer's alone again
            del batch

    def _may_make(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._buffer.may_make)
            return not self._closed

    def _made(self, item: BatchRead) -> None:
        with self._changed:
            if not self._closed:
                self._buffer.add(item)
                self._answer()
                self._changed.notify_all()  # the batch may be due

    def _answer(self) -> None:
        """Reply to the request that waits, if there is something to tell."""
        if (request := self._waiting) is None or (items := self._buffer.made()) is None:
            return
        self._waiting = None
        heads = tuple(_head(item) for item in items)
        new = heads[self._announced - self._buffer.received :]
        self._announced += len(new)
        self.batches += sum(each.samples is not None for each in new)
        self.samples += sum(each.samples or 0 for each in new)
        self._told = _trouble_met(self._trouble)
        news = None if self._told == self._known else self._told
        request.reply(BatchesMade(heads, self._buffer.ended, _fault(self._buffer.error), news))


def check_files(source: Source, expected: Sequence[FileFacts]) -> None:
    """InputError where this host sees other files than the driver."""
    here = {facts.name: facts.size for facts in file_facts(files_of(source) or ())}
    for facts in expected:
        size = here.get(facts.name)
        if size != facts.size:
            found = "there is no such file" if size is None else f"has {size:,} bytes here, and {facts.size:,} there"
            raise InputError(f"{facts.name} on host {socket.gethostname()}: {found}")


def file_facts(files: Sequence[File]) -> tuple[FileFacts, ...]:
    """Names and sizes; a file that is not there has none."""
    by_system: dict[int, list[File]] = {}
    for file in files:
        by_system.setdefault(id(file.filesystem), []).append(file)
    found: dict[str, int | None] = {}
    for group in by_system.values():
        infos = group[0].filesystem.get_file_info([file.path for file in group])
        for file, info in zip(group, infos, strict=True):
            found[file.name] = info.size if info.type == fs.FileType.File else None
    return tuple(FileFacts(name, size) for name, size in found.items())


def _position(document: str) -> Position:
    try:
        return Position.of(json.loads(document))
    except (ValueError, ConfigError) as error:
        raise InputError(f"position: {error}: send the document of a Position, as JSON") from None


def _given(batch: Batch, part: str) -> tuple[Message, Sequence[object]]:
    if part == "ids":
        parts, frames = pack_ids(batch)
        return IdsGiven(len(batch), parts), frames
    header, arrays = pack_batch(batch, ids=part == "all")
    return BatchGiven(header), arrays


def _head(item: BatchRead) -> BatchHead:
    return BatchHead(item.epoch, item.index, None if item.batch is None else len(item.batch), item.counts)


def _trouble_met(trouble: Trouble) -> TroubleMet:
    files = {
        name: (file.up_to, file.malformed, file.blank)
        for name, file in list(trouble.files.items())
        if file.malformed or file.blank
    }
    return TroubleMet(
        files, tuple(MalformedLine(each.file, each.line, each.reason, each.text) for each in trouble.first)
    )


def _fault(error: BaseException | None) -> Fault | None:
    if error is None:
        return None
    return (
        fault_of(error) if isinstance(error, HotrowError) else Fault.of("internal", f"{type(error).__name__}: {error}")
    )
