"""What the driver knows of one loader in one reading: the batches it has announced, and those it may make."""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from hotrow.data.reading import BatchName, BatchRead
from hotrow.data.source import FileTrouble, Malformed, Trouble
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.errors import PeerLost
from hotrow.transport.messages import BatchesMade, Fault, NextBatches, TroubleMet
from hotrow.types import RoleId

WAKE_S = 0.1  # how long the loss of a loader may go unnoticed
LOSS_S = 2.0  # from a failure until the lost role that caused it is known


class LoaderGone(HotrowError):
    """A loader that the run survives is lost: what was not handed out is read by the others."""


class LoaderLink:
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
        self._asked = self._ended = self._closed = self._gone = False
        self._error: BaseException | None = None

    def next(self) -> BatchRead:
        """Wait for the next item; the error that ended the reading comes after the last one. LoaderGone: it is lost."""
        while (item := self._take_next()) is None:
            self._check_alive()
        self.request()
        return item

    def _take_next(self) -> BatchRead | None:
        """None where nothing has come for a while."""
        with self._changed:
            if not self._items and self._error is None and not self._ended and not self._gone:
                self._changed.wait(WAKE_S)
            if self._items and not self._gone:
                self._taken += 1
                return self._items.popleft()
            waits = self._error is None and not self._ended and not self._gone
        if waits:
            return None
        raise self._reason()

    def lose(self) -> None:
        """The loader is lost, and what it has made with it."""
        with self._changed:
            self._gone = True
            self._items.clear()
            self._changed.notify_all()

    def request(self) -> None:
        """Ask for more, unless a request is open or enough is there."""
        with self._changed:
            until = self._taken + self._ahead
            if self._asked or self._ended or self._gone or self._error is not None or self._received >= until:
                return
            self._asked = True
            released, self._released = tuple(self._released), []
            message = NextBatches(self._reading, self._received, until, released)
        try:
            self._rpc.request(self._name, message).add_done_callback(self._answered)
        except InputError:
            if not self._gone:  # the client is closed
                raise

    def release(self, batch: BatchName) -> None:
        """Told with the next request."""
        with self._changed:
            self._released.append((batch.epoch, batch.index))

    def close(self) -> None:
        """Ask for nothing more, and drop what was announced."""
        with self._changed:
            self._ended = self._closed = True
            self._items.clear()

    def wait(self, asked: Future[Answer]) -> Answer:
        """Wait for a reply; RoleLost or LoaderGone where a role ends meanwhile."""
        while True:
            try:
                return asked.result(WAKE_S)
            except TimeoutError:
                if asked.done():
                    raise
                self._check_alive()
            except PeerLost as error:
                self._error = error
                raise self._reason() from None

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
            _merge(self._trouble, made.trouble)
        if self._closed:
            return
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
        while isinstance(self._error, PeerLost) and not self._gone and time.monotonic() < until:
            self._check_alive()
            time.sleep(WAKE_S)
        if self._gone:
            return LoaderGone(f"{self._name} is gone")
        return self._error or InputError(f"{self._name}: has no more batches of reading {self._reading}")


def _error(name: RoleId, fault: Fault) -> HotrowError:
    """As it would be raised here, if this process read the data."""
    kinds: dict[str, type[HotrowError]] = {"input": InputError, "config": ConfigError}
    return kinds[fault.kind](fault.sentence) if fault.kind in kinds else HotrowError(f"{name}: {fault.sentence}")


def _merge(trouble: Trouble, met: TroubleMet) -> None:
    """Take over the malformed lines that a loader has met."""
    files = {name: FileTrouble(*counts) for name, counts in met.files.items()}
    trouble.merge(files, [Malformed(each.file, each.line, each.reason, each.text) for each in met.first])
