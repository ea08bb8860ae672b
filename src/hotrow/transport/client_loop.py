"""The thread behind a wire: all sockets of a role that asks, in one loop that nobody else's work can delay.

It only moves frames and keeps time: what is said to a peer is decided in line.py. Other threads hand it commands.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import TypeVar

import zmq

from hotrow.errors import InputError
from hotrow.transport import sockets
from hotrow.transport.connection import Answered, Connection
from hotrow.transport.counts import WireCounts
from hotrow.transport.envelope import decode
from hotrow.transport.errors import PeerLost, RemoteFault
from hotrow.transport.faults import strange
from hotrow.transport.messages import Fault, Message
from hotrow.transport.pending import NEVER, PendingRequest
from hotrow.transport.sockets import Socket

_log = logging.getLogger("hotrow.transport")

Expected = TypeVar("Expected", bound=Message)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a peer said. The frames lie in the memory they were received in."""

    message: Message
    frames: list[memoryview]

    def of(self, kind: type[Expected], peer: str) -> Expected:
        """The message, which has to be of a kind."""
        if not isinstance(self.message, kind):
            raise InputError(f"{peer} {strange(self.message)}")
        return self.message


@dataclass(slots=True, eq=False)
class PeerConnection:
    """A connection: its line and socket belong to the loop, the count of open asks to everybody, under `room`."""

    name: str
    address: str
    line: Connection
    socket: Socket
    near: bool  # nothing is delayed
    room: threading.Condition = field(default_factory=threading.Condition)
    open: int = 0
    gone: str | None = None  # why nothing can be asked any more
    moved: "PeerConnection | None" = None  # where it is instead

    def leave(self, why: str) -> None:
        with self.room:
            self.gone = why
            self.room.notify_all()


class ClientLoop:
    """Runs until `end`. `do` is for other threads; all other work is its own thread's."""

    def __init__(self, counts: WireCounts, delay_s: float) -> None:
        self._counts, self._delay_s = counts, delay_s
        self._commands: deque[Callable[[], None]] = deque()
        self._delayed: deque[tuple[float, Callable[[], None]]] = deque()  # one delay for all, so they stay in order
        self._live: list[PeerConnection] = []
        self._poller = zmq.Poller()
        self._wake = sockets.Wake()
        self._lock, self._ending = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, name="hotrow-wire", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the caller is the loop itself, in a callback of a future: it must not wait for the loop."""
        return threading.current_thread() is self._thread

    @property
    def ended(self) -> bool:
        return self._ending

    def begin(self, peer: PeerConnection, before: PeerConnection | None) -> None:
        """A new connection; `before` is where the peer was."""
        self._do(partial(self._begin, peer, before))

    def put(self, peer: PeerConnection, ask: PendingRequest) -> None:
        self._do(partial(self._put, peer, ask))

    def forget(self, peer: PeerConnection) -> None:
        self._do(partial(self._end, peer))

    def end(self) -> None:
        """Close all sockets and wait until that is done. What is open fails."""
        with self._lock:
            self._ending = True
        self._wake.set()
        if not self.is_here:
            self._thread.join()

    def _do(self, command: Callable[[], None]) -> None:
        with self._lock:  # after the loop has ended nobody would look
            if self._ending:
                raise InputError("this wire is closed: make a new one")
            self._commands.append(command)
        self._wake.set()

    def _run(self) -> None:
        self._poller.register(self._wake.fileno(), zmq.POLLIN)
        try:
            while not self._ending:
                self._turn()
        except Exception:
            _log.exception("the loop of a wire failed")  # a fault of ours; whoever waits is told below
        finally:
            with self._lock:
                self._ending = True
            while self._commands:
                self._commands.popleft()()
            for peer in list(self._live):
                peer.leave("the wire was closed")
                self._end(peer)
            self._wake.close()

    def _turn(self) -> None:
        ready = dict(self._poller.poll(self._rest_ms()))
        if self._wake.fileno() in ready:
            self._wake.clear()
        while self._commands:
            self._commands.popleft()()
        for peer in self._live:
            if peer.socket in ready:
                self._read(peer)
        now = time.monotonic()
        while self._delayed and self._delayed[0][0] <= now:
            self._delayed.popleft()[1]()
        for peer in self._live:
            for ask in peer.line.tick(now):
                silent = now - max(ask.asked_s, peer.line.heard_s)
                message = f"nothing was heard for {silent:.1f} s: {peer.line.trouble}"
                self._finish(peer, ask, PeerLost(peer.name, peer.address, silent, message))
            self._flush(peer)

    def _rest_ms(self) -> int | None:
        """How long nothing has to be done."""
        next_s = min((peer.line.next_s for peer in self._live), default=NEVER)
        if self._delayed:
            next_s = min(next_s, self._delayed[0][0])
        return None if next_s == NEVER else max(0, ceil((next_s - time.monotonic()) * 1000))

    def _begin(self, peer: PeerConnection, before: PeerConnection | None) -> None:
        self._live.append(peer)
        self._poller.register(peer.socket, zmq.POLLIN)
        if before is None:
            return
        before.moved = peer
        peer.line.heard_s = time.monotonic()  # who told us the address has seen it: patience begins anew
        for ask in before.line.asks.all():
            before.line.asks.take(ask.number)
            self._put(before, ask)
        self._end(before)

    def _put(self, peer: PeerConnection, ask: PendingRequest) -> None:
        while peer.moved is not None:
            peer = peer.moved
            with peer.room:
                peer.open += 1
        if peer in self._live:
            peer.line.put(ask, time.monotonic())
        else:
            self._finish(peer, ask, _lost(peer, ask))

    def _end(self, peer: PeerConnection) -> None:
        if peer not in self._live:
            return
        self._live.remove(peer)
        self._poller.unregister(peer.socket)
        peer.socket.close()
        for ask in peer.line.asks.all():
            peer.line.asks.take(ask.number)
            self._finish(peer, ask, _lost(peer, ask))

    def _read(self, peer: PeerConnection) -> None:
        for _ in range(sockets.TURN):
            try:
                frames = [frame.buffer for frame in peer.socket.recv_multipart(zmq.DONTWAIT, copy=False)]
            except zmq.Again:
                return
            self._later(peer, partial(self._hear, peer, frames))

    def _hear(self, peer: PeerConnection, frames: list[memoryview]) -> None:
        answered = peer.line.hear(frames, time.monotonic())
        if answered is not None:
            self._counts.bytes_in += sum(frame.nbytes for frame in frames)
            outcome = self._outcome(peer, answered)
            if isinstance(outcome, RemoteFault) and outcome.kind == "busy":
                peer.line.put_off(answered.ask, time.monotonic())
                return
            self._counts.answers += 1
            self._finish(peer, answered.ask, outcome)

    def _outcome(self, peer: PeerConnection, answered: Answered) -> Answer | RemoteFault:
        try:
            message = decode(answered.header)
        except InputError as error:
            self._counts.refused_decode += 1
            return RemoteFault("internal", f"its answer cannot be read: {error}", peer.name)
        if isinstance(message, Fault):
            return RemoteFault(message.kind, message.sentence, peer.name)
        return Answer(message, answered.frames)

    def _finish(self, peer: PeerConnection, ask: PendingRequest, outcome: Answer | Exception) -> None:
        with peer.room:
            peer.open -= 1
            peer.room.notify()
        if isinstance(outcome, Exception):
            ask.future.set_exception(outcome)
        else:
            ask.future.set_result(outcome)

    def _flush(self, peer: PeerConnection) -> None:
        for frames in peer.line.outbox:
            self._later(peer, partial(self._send, peer, frames))
        peer.line.outbox.clear()

    def _later(self, peer: PeerConnection, action: Callable[[], None]) -> None:
        if self._delay_s and not peer.near:
            self._delayed.append((time.monotonic() + self._delay_s, action))
        else:
            action()

    def _send(self, peer: PeerConnection, frames: Sequence[bytes | memoryview]) -> None:
        if peer.socket.closed:
            return  # it was forgotten while this was delayed
        try:
            peer.socket.send_multipart(frames, zmq.DONTWAIT, copy=False)
            self._counts.bytes_out += sum(memoryview(frame).nbytes for frame in frames)
        except zmq.Again:
            self._counts.unsent += 1


def _lost(peer: PeerConnection, ask: PendingRequest) -> PeerLost:
    waited = time.monotonic() - ask.asked_s
    return PeerLost(peer.name, peer.address, waited, f"{peer.gone} with an ask open for {waited:.1f} s")
