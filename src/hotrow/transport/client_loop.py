"""The thread of a client: all its sockets in one loop, which no other work can delay.

It only moves frames and measures time; connection.py decides what is sent. Other threads queue commands for it.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import TypeAlias, TypeVar

import zmq
from msgspec import Struct

from hotrow.errors import InputError
from hotrow.transport import sockets
from hotrow.transport.connection import Answered, Connection
from hotrow.transport.counts import WireCounts
from hotrow.transport.envelope import Outgoing, decode
from hotrow.transport.errors import PeerLost, RemoteFault
from hotrow.transport.faults import unexpected_reply
from hotrow.transport.link import Direction, EmulatedLink
from hotrow.transport.messages import Fault, Message
from hotrow.transport.pending import NEVER, PendingRequest
from hotrow.transport.ring_ends import RingWatch
from hotrow.transport.rings import Rings
from hotrow.transport.sockets import Socket

_log = logging.getLogger("hotrow.transport")

LATE_S = 10.0  # without a message from a shard that has requests open

Outcome: TypeAlias = "Answer | Exception"
Expected = TypeVar("Expected", bound=Message)


class Answer(Struct, frozen=True):
    """The reply of a peer. Its frames are in the memory they were received in."""

    message: Message
    frames: list[memoryview]

    def of(self, kind: type[Expected], peer: str) -> Expected:
        """The message; InputError where it is of another kind."""
        if not isinstance(self.message, kind):
            raise InputError(f"{peer} {unexpected_reply(self.message)}")
        return self.message


@dataclass(slots=True, eq=False)
class PeerConnection:
    """A connection:

    `connection` and `socket` belong to the loop; the number of open requests to all threads, under `changed`.
    """

    name: str
    address: str
    connection: Connection
    socket: Socket
    near: bool  # nothing is delayed, and no rate holds
    changed: threading.Condition = field(default_factory=threading.Condition)
    open: int = 0
    gone: str | None = None  # why no request can be sent any more
    moved: "PeerConnection | None" = None  # the connection to its new address
    is_late: bool = False  # a shard that was silent for long, which is told once

    def leave(self, why: str) -> None:
        with self.changed:
            self.gone = why
            self.changed.notify_all()


class ClientLoop:
    """Runs in its own thread until `end`. Other threads call the public methods only."""

    def __init__(self, counts: WireCounts, link: EmulatedLink) -> None:
        self._counts, self._link = counts, link
        self._commands: deque[Callable[[], None]] = deque()
        self._live: list[PeerConnection] = []
        self._poller = zmq.Poller()
        self._ring_watch = RingWatch(self._poller)
        self._wake = sockets.Wake()
        self._lock, self._ending = threading.Lock(), False
        self._thread = threading.Thread(target=self._run, name="hotrow-client", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the caller runs in the loop's thread, in a callback of a future: it must not wait for the loop."""
        return threading.current_thread() is self._thread

    @property
    def ended(self) -> bool:
        return self._ending

    def begin(self, peer: PeerConnection, before: PeerConnection | None) -> None:
        """Add a connection; `before` is the one to the peer's old address."""
        self._do(partial(self._begin, peer, before))

    def put(self, peer: PeerConnection, request: PendingRequest) -> None:
        self._do(partial(self._put, peer, request))

    def send_one_way(self, peer: PeerConnection, header: bytes, frames: Sequence[memoryview]) -> None:
        self._do(partial(self._tell, peer, header, frames))

    def forget(self, peer: PeerConnection) -> None:
        self._do(partial(self._end, peer))

    def suspend_deadlines(self, peer: PeerConnection) -> None:
        """No request to a peer is lost until there is a new connection to it."""
        self._do(partial(setattr, peer.connection, "received_s", NEVER))

    def watch_rings(self, rings: Rings) -> None:
        """Close these rings when the peer's end is gone. Connections call it in the loop's thread."""
        self._ring_watch.add(rings)

    def end(self) -> None:
        """Close all sockets and wait until that is done. Open requests fail."""
        with self._lock:
            self._ending = True
        self._wake.set()
        if not self.is_here:
            self._thread.join()

    def _do(self, command: Callable[[], None]) -> None:
        with self._lock:  # a loop that has ended would never run it
            if self._ending:
                raise InputError("this client is closed: make a new one")
            self._commands.append(command)
        self._wake.set()

    def _run(self) -> None:
        self._poller.register(self._wake.fileno(), zmq.POLLIN)
        try:
            while not self._ending:
                self._turn()
        except Exception:
            _log.exception("the loop of a client failed")  # a bug of ours; open requests fail below
        finally:
            with self._lock:
                self._ending = True
            while self._commands:
                self._commands.popleft()()
            for peer in list(self._live):
                peer.leave("the client was closed")
                self._end(peer)
            self._wake.close()

    def _turn(self) -> None:
        ready = dict(self._poller.poll(self._rest_ms()))
        if self._wake.fileno() in ready:
            self._wake.clear()
        ended = self._ring_watch.ended(ready)
        while self._commands:
            self._commands.popleft()()
        for peer in self._live:
            if peer.socket in ready:
                self._read(peer)
        for rings in ended:
            rings.close()
        now = time.monotonic()
        for action in self._link.due(now):
            action()
        for peer in self._live:
            for request in peer.connection.tick(now):
                silent = now - max(request.created_s, peer.connection.received_s)
                message = f"nothing was heard for {silent:.1f} s: {peer.connection.trouble}"
                self._finish(peer, request, PeerLost(peer.name, peer.address, silent, message))
            self._report_late(peer, now)
            self._flush(peer)

    def _report_late(self, peer: PeerConnection, now: float) -> None:
        """A line about a silent shard. One that holds requests until a step is applied answers probes meanwhile."""
        if peer.is_late or not peer.name.startswith("shard") or (oldest := peer.connection.requests.oldest) is None:
            return
        silent = now - max(oldest.created_s, peer.connection.received_s)
        if silent >= LATE_S:
            peer.is_late = True
            message = (
                f"nothing was heard from it for {silent:.1f} s, with {len(peer.connection.requests)} requests open"
            )
            remedy = "is its host overloaded, or its process stopped? `hotrow cluster status` queries it"
            _log.warning("%s at %s answers late: %s: %s", peer.name, peer.address, message, remedy)

    def _rest_ms(self) -> int | None:
        """How long the loop may wait in the poll."""
        next_s = min((peer.connection.next_s for peer in self._live), default=NEVER)
        next_s = min(next_s, self._link.next_s)
        return None if next_s == NEVER else max(0, ceil((next_s - time.monotonic()) * 1000))

    def _begin(self, peer: PeerConnection, before: PeerConnection | None) -> None:
        self._live.append(peer)
        self._poller.register(peer.socket, zmq.POLLIN)
        if before is None:
            return
        before.moved = peer
        peer.connection.received_s = time.monotonic()  # a new address is a sign of life: the deadline starts again
        for request in before.connection.requests.all():
            before.connection.requests.take(request.number)
            self._put(before, request)
        self._end(before)

    def _put(self, peer: PeerConnection, request: PendingRequest) -> None:
        while peer.moved is not None:
            peer = peer.moved
            with peer.changed:
                peer.open += 1
        if peer in self._live:
            peer.connection.put(request, time.monotonic())
        else:
            self._finish(peer, request, _lost(peer, request))

    def _tell(self, peer: PeerConnection, header: bytes, frames: Sequence[memoryview]) -> None:
        while peer.moved is not None:
            peer = peer.moved
        if peer in self._live:
            peer.connection.send_one_way(header, frames)
        else:
            self._counts.one_way_unsent += 1

    def _end(self, peer: PeerConnection) -> None:
        if peer not in self._live:
            return
        self._live.remove(peer)
        self._poller.unregister(peer.socket)
        peer.socket.close()
        peer.connection.close_rings()
        for request in peer.connection.requests.all():
            peer.connection.requests.take(request.number)
            self._finish(peer, request, _lost(peer, request))

    def _read(self, peer: PeerConnection) -> None:
        for _ in range(sockets.TURN):
            try:
                frames = [frame.buffer for frame in peer.socket.recv_multipart(zmq.DONTWAIT, copy=False)]
            except zmq.Again:
                return
            nbytes = sum(frame.nbytes for frame in frames)
            self._later(peer, "in", nbytes, partial(self._receive, peer, frames))

    def _receive(self, peer: PeerConnection, frames: list[memoryview]) -> None:
        self._counts.bytes_in += sum(frame.nbytes for frame in frames)
        answered = peer.connection.receive(frames, time.monotonic())
        if answered is not None:
            outcome = self._outcome(peer, answered)
            if isinstance(outcome, RemoteFault) and outcome.kind == "busy":
                peer.connection.put_off(answered.request, time.monotonic())
                return
            self._counts.answers += 1
            self._finish(peer, answered.request, outcome)

    def _outcome(self, peer: PeerConnection, answered: Answered) -> Answer | RemoteFault:
        try:
            if answered.fault is not None:
                raise InputError(answered.fault)
            message = decode(answered.header)
        except InputError as error:
            self._counts.refused_decode += 1
            return RemoteFault("internal", f"its answer cannot be read: {error}", peer.name)
        if isinstance(message, Fault):
            return RemoteFault(message.kind, message.sentence, peer.name)
        return Answer(message, answered.frames)

    def _finish(self, peer: PeerConnection, request: PendingRequest, outcome: Outcome) -> None:
        with peer.changed:
            peer.open -= 1
            peer.changed.notify()
        try:
            request.done(outcome)
        except Exception:  # the loop goes on: other requests are open
            _log.exception("a callback for the reply of %s failed", peer.name)

    def _flush(self, peer: PeerConnection) -> None:
        for message in peer.connection.outbox:
            self._later(peer, "out", message.nbytes, partial(self._send, peer, message))
        peer.connection.outbox.clear()

    def _later(self, peer: PeerConnection, direction: Direction, nbytes: int, action: Callable[[], None]) -> None:
        if self._link.is_slow and not peer.near:
            self._link.hold(direction, nbytes, time.monotonic(), action)
        else:
            action()

    def _send(self, peer: PeerConnection, message: Outgoing) -> None:
        if peer.socket.closed:
            return  # it was closed while this was delayed
        try:
            peer.socket.send_multipart(message.frames, zmq.DONTWAIT, copy=False)
            self._counts.bytes_out += message.nbytes
        except zmq.Again:
            message.unsent()
            if message.is_one_way:
                self._counts.one_way_unsent += 1
            else:
                self._counts.unsent += 1


def _lost(peer: PeerConnection, request: PendingRequest) -> PeerLost:
    waited = time.monotonic() - request.created_s
    return PeerLost(peer.name, peer.address, waited, f"{peer.gone} with a request open for {waited:.1f} s")
