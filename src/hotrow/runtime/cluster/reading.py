"""Reading on a cluster: loaders make the batches, the driver learns their names and hands them out in order.

The loaders are roles of their own, or the trainers. Where they change, what was not handed out yet is read again by
those that stay; a loader that leaves keeps its batches until they are done.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from itertools import count

from hotrow.data.loader import Loader
from hotrow.data.position import Position
from hotrow.data.reading import BatchName, BatchRead, advanced, in_order
from hotrow.data.row_ranges import group_rows_of
from hotrow.data.source import FileTrouble, Malformed, Trouble
from hotrow.data.stretches import Assignment, deal, stretch_of
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.errors import PeerLost
from hotrow.transport.futures import uncancellable_future
from hotrow.transport.messages import BatchesMade, CloseReading, Fault, NextBatches, OpenReading, TroubleMet
from hotrow.types import RoleId

WAKE_S = 0.1  # how long the loss of a loader may go unnoticed
LOSS_S = 2.0  # from a failure until the lost role that caused it is known

_numbers = count(1)  # of readings: none is used again


class ClusterReading:
    """The `RemoteReading` of a data loader. Used in the thread of the training loop, like the loader itself."""

    def __init__(
        self, rpc: RpcClient, check_alive: Callable[[], None], loaders: Sequence[RoleId], loader: Loader, key: str
    ) -> None:
        """`key`: of the source, which the loaders have prepared."""
        self._rpc, self._check_alive, self._loaders, self._loader, self._key = rpc, check_alive, loaders, loader, key
        self._stretch = 0
        self._sessions: list[_Session] = []  # the last one reads, the others have batches that are not done
        self._changed = False  # the loaders, since the last session began
        self._left: dict[RoleId, Future[None]] = {}

    def read(self, position: Position) -> Generator[BatchRead, None, None]:
        """What is not done at a position, in order."""
        self._stretch = stretch_of(position.batch, position.shuffle, group_rows_of(self._loader.source))
        reading: Position | None = position
        while reading is not None:
            reading = yield from self._read(reading)

    def close(self) -> None:
        """Drop all batches. The fit has ended."""
        self._close(self._sessions)

    def release(self, batch: BatchName) -> None:
        """Drop a batch that is not needed any more."""
        for session in self._sessions:
            if session.number == batch.reading:
                session.release(batch)
        self._close([each for each in self._sessions[:-1] if not each.handed_out])

    def leave(self, loader: RoleId) -> "Future[None]":
        """Read without a loader from the next batch on; the future is done when no batch of it is needed."""
        left = self._left[loader] = uncancellable_future()
        if len(self._loaders) > 1:  # the last one reads to the end
            self._loaders = [each for each in self._loaders if each != loader]
            self._changed = True
        self._finish_leaves()
        return left

    def join(self, loader: RoleId) -> None:
        """Read with one more loader, which has prepared the source, from the next batch on."""
        self._loaders = [*self._loaders, loader]
        self._changed = True

    def _read(self, position: Position) -> Generator[BatchRead, None, Position | None]:
        """Read with the current loaders; returns the position where they changed, None at the end."""
        dealt = deal(len(self._loaders), self._stretch)
        session = _Session(self._rpc, self._check_alive, self._loader, self._key, self._loaders, dealt, position)
        self._sessions.append(session)
        self._changed = False
        self._close([each for each in self._sessions[:-1] if not each.handed_out])
        for item in in_order(position, self._loader.epochs, dealt[0], session.next_of):
            position = advanced(position, item)
            if isinstance(item.batch, BatchName):
                session.handed_out[item.epoch, item.index] = item.batch.loader
            yield item
            if self._changed:
                return position
        return None

    def _close(self, sessions: "Sequence[_Session]") -> None:
        self._sessions = [each for each in self._sessions if each not in sessions]
        for session in sessions:
            session.close()
        self._finish_leaves()

    def _finish_leaves(self) -> None:
        """A loader is needed while it reads, and while a batch of it is not done."""
        busy = {name for session in self._sessions for name in session.handed_out.values()}
        busy |= {name for session in self._sessions[-1:] for name in session.names}
        for name in [each for each in self._left if each not in busy]:
            self._left.pop(name).set_result(None)


class _Session:
    """One reading on a fixed set of loaders."""

    def __init__(
        self,
        rpc: RpcClient,
        check_alive: Callable[[], None],
        loader: Loader,
        key: str,
        names: Sequence[RoleId],
        dealt: Sequence[Assignment],
        position: Position,
    ) -> None:
        self.number, self.names = next(_numbers), list(names)
        self.handed_out: dict[tuple[int, int], str] = {}  # and not released, with their loaders
        self._rpc = rpc
        ahead = loader.prefetch + (dealt[0].stretch if len(dealt) > 1 else 0)
        self._links = {
            name: _LoaderLink(rpc, name, self.number, ahead, loader.source.trouble, check_alive) for name in names
        }
        document = position.model_dump_json()
        opened = [
            rpc.request(
                name,
                OpenReading(
                    self.number, key, document, loader.epochs, loader.labels, each.number, each.loaders, each.stretch
                ),
            )
            for name, each in zip(names, dealt, strict=True)
        ]
        for asked, link in zip(opened, self._links.values(), strict=True):
            link.wait(asked)
            link.request()

    def next_of(self, loader: int) -> BatchRead:
        return self._links[self.names[loader]].next()

    def release(self, batch: BatchName) -> None:
        self.handed_out.pop((batch.epoch, batch.index), None)
        self._links[RoleId.parse(batch.loader)].release(batch)

    def close(self) -> None:
        """Drop what the loaders still keep. One that is lost, or whose connection is closed, has nothing to drop."""
        for name, link in self._links.items():
            link.close()
            try:
                self._rpc.request(name, CloseReading(self.number))
            except InputError:
                continue


class _LoaderLink:
    """The items of one loader: one request is open, and asks for as many as may be made ahead."""

    def __init__(
        self,
        rpc: RpcClient,
        name: RoleId,
        reading: int,
        ahead: int,
        trouble: Trouble,
        check_alive: Callable[[], None],
    ) -> None:
        self._rpc, self._name, self._reading, self._ahead = rpc, name, reading, ahead
        self._trouble, self._check_alive = trouble, check_alive
        self._address = rpc.address_of(name)
        self._changed = threading.Condition()
        self._items: deque[BatchRead] = deque()
        self._released: list[tuple[int, int]] = []
        self._received = self._taken = 0
        self._asked = self._ended = False
        self._error: BaseException | None = None

    def next(self) -> BatchRead:
        """Wait for the next item; the error that ended the reading comes after the last one."""
        with self._changed:
            while not self._items and self._error is None and not self._ended:
                if not self._changed.wait(WAKE_S):
                    self._check_alive()
            if not self._items:
                raise self._reason()
            self._taken += 1
            item = self._items.popleft()
        self.request()
        return item

    def request(self) -> None:
        """Ask for more, unless a request is open or enough is there."""
        with self._changed:
            until = self._taken + self._ahead
            if self._asked or self._ended or self._error is not None or self._received >= until:
                return
            self._asked = True
            released, self._released = tuple(self._released), []
            message = NextBatches(self._reading, self._received, until, released)
        self._rpc.request(self._name, message).add_done_callback(self._answered)

    def release(self, batch: BatchName) -> None:
        """Told with the next request."""
        with self._changed:
            self._released.append((batch.epoch, batch.index))

    def close(self) -> None:
        with self._changed:
            self._ended = True

    def wait(self, asked: Future[Answer]) -> Answer:
        """Wait for a reply; RoleLost where a role ends meanwhile."""
        while True:
            try:
                return asked.result(WAKE_S)
            except TimeoutError:
                if asked.done():
                    raise
                self._check_alive()

    def _answered(self, done: "Future[Answer]") -> None:
        """Runs in the client's thread."""
        with self._changed:
            self._asked = False
            try:
                self._take(done.result().of(BatchesMade, self._name))
            except HotrowError as error:
                self._error = error
            self._changed.notify_all()
        try:
            self.request()
        except InputError:  # the client is closed: the run ends
            return

    def _take(self, made: BatchesMade) -> None:
        if made.trouble is not None:
            merge(self._trouble, made.trouble)
        for head in made.items:
            batch = None
            if head.samples is not None:
                batch = BatchName(str(self._name), self._address, self._reading, head.epoch, head.index, head.samples)
            self._items.append(BatchRead(head.epoch, head.index, batch, dict(head.counts)))
        self._received += len(made.items)
        self._ended = self._ended or made.ended
        if made.fault is not None:
            self._error = _error(self._name, made.fault)

    def _reason(self) -> BaseException:
        """The error of the data, or of the connection: then the loss of the role that caused it, once it is known."""
        until = time.monotonic() + LOSS_S
        while isinstance(self._error, PeerLost) and time.monotonic() < until:
            self._check_alive()
            time.sleep(WAKE_S)
        return self._error or InputError(f"{self._name}: has no more batches of reading {self._reading}")


def _error(name: RoleId, fault: Fault) -> HotrowError:
    """As it would be raised here, if this process read the data."""
    kinds: dict[str, type[HotrowError]] = {"input": InputError, "config": ConfigError}
    return kinds[fault.kind](fault.sentence) if fault.kind in kinds else HotrowError(f"{name}: {fault.sentence}")


def merge(trouble: Trouble, met: TroubleMet) -> None:
    """Take over the malformed lines that a loader has met."""
    files = {name: FileTrouble(*counts) for name, counts in met.files.items()}
    trouble.merge(files, [Malformed(each.file, each.line, each.reason, each.text) for each in met.first])
