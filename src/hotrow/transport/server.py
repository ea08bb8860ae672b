"""The server of a role: a ROUTER socket, read by one thread. Replies may come from any thread, later.

The loop only moves frames: peers.py holds sessions and open requests, authenticator.py accepts connections.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import zmq

from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.transport import authenticator, sockets
from hotrow.transport.authenticator import ZapAuthenticator
from hotrow.transport.counts import ServerCounts
from hotrow.transport.envelope import Buffer, Opened, check_sizes, decode, encode, lent
from hotrow.transport.faults import fault_of
from hotrow.transport.limits import Limits
from hotrow.transport.messages import Fault, FaultKind, Message
from hotrow.transport.peers import Accepted, CachedReply, OneWay, Peers, Refused, Respond
from hotrow.transport.request import Request
from hotrow.transport.ring_ends import RingServer, RingWatch, uses_rings
from hotrow.transport.security import ClusterKey, checked_key
from hotrow.types import Security

_COUNTED = {"repeated": "repeated", "stale": "stale_rings"}  # refused messages that are no fault of the peer
LINGER_MS = 1_000  # for the last replies, after the loop has ended

_log = logging.getLogger("hotrow.transport")

__all__ = ["Request", "RpcServer"]


RequestHandler: TypeAlias = Callable[[Request], None]
OneWayHandler: TypeAlias = Callable[[Message, list[memoryview]], None]


def refuse_one_way(message: Message, frames: list[memoryview]) -> None:
    """The `OneWayHandler` of a role that takes no message without a reply."""
    raise InputError(f"a {type(message).__name__} needs a reply: send it as a request")


@dataclass(frozen=True, slots=True)
class _Answer:
    """A reply that the loop has to send."""

    name: bytes  # of the peer
    number: int
    header: bytes
    frames: tuple[memoryview, ...]
    fault: FaultKind | None


class RpcServer:
    """Binds at once; handles no request until `serve` runs. Use it in a `with`, or close it."""

    def __init__(
        self,
        bind: str = "tcp://127.0.0.1:*",
        *,
        security: Security,
        key: ClusterKey | None = None,
        limits: Limits | None = None,
        name: str = "server",
    ) -> None:
        proven = checked_key(security, key)
        sockets.check_address("bind", bind, security)
        self.name, self.counts = name, ServerCounts()
        self.limits = Limits() if limits is None else limits
        self._authenticator = ZapAuthenticator(security, proven)
        self._poller = zmq.Poller()
        self._ring_watch = RingWatch(self._poller)
        rings = RingServer(self.limits, self.counts, self._ring_watch.add) if uses_rings(security) else None
        self._peers = Peers(proven, self.limits, macs=security == "key", rings=rings)
        self._answers: deque[_Answer] = deque()
        self._wake = sockets.Wake()
        self._stopping, self._idle, self._thread = threading.Event(), threading.Event(), 0
        self._idle.set()
        self._context = zmq.Context()
        self._zap = self._context.socket(zmq.REP)
        self._socket = self._context.socket(zmq.ROUTER)
        try:
            self._bind(bind)
        except ConfigError:
            self.close()
            raise
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def _bind(self, address: str) -> None:
        self._zap.setsockopt(zmq.LINGER, 0)
        self._zap.bind(authenticator.ENDPOINT)
        sockets.tune(self._socket, self.limits, address, LINGER_MS)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a reply that cannot be sent is an error and counted
        self._authenticator.configure_server(self._socket)
        sockets.attempt("bind", address, self._socket.bind)

    def serve(self, handle: RequestHandler, take: OneWayHandler = refuse_one_way) -> None:
        """Pass each request to `handle`, in this thread, until `stop`. Replies given by then are still sent.

        One-way messages go to `take`; those that it refuses with a HotrowError are counted.
        """
        self._idle.clear()
        self._thread = threading.get_ident()
        for source in (self._wake.fileno(), self._zap, self._socket):
            self._poller.register(source, zmq.POLLIN)
        try:
            while not self._stopping.is_set():
                ready = dict(self._poller.poll())
                if self._wake.fileno() in ready:
                    self._wake.clear()
                if self._zap in ready:
                    self._admit()
                ended = self._ring_watch.ended(ready)
                if self._socket in ready:
                    self._read(handle, take)
                for rings in ended:
                    rings.close()
                self._send_answers()
            self._send_answers()
        finally:
            self._thread = 0
            self._idle.set()
            self.counts.replies_lost += len(self._answers)

    def stop(self) -> None:
        """End `serve`, from any thread."""
        self._stopping.set()
        self._wake.set()

    def close(self) -> None:
        """End `serve` if it runs, and close the sockets. A handler must call `stop` instead."""
        if self._context.closed:
            return
        if self._thread == threading.get_ident():
            raise RuntimeError("close() inside a handler would wait for itself: call stop()")
        self.stop()
        self._idle.wait()
        self._ring_watch.close()
        self._socket.close()
        self._zap.close()
        self._context.term()
        self._wake.close()

    def __enter__(self) -> "RpcServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _admit(self) -> None:
        welcome, answer = self._authenticator.answer(self._zap.recv_multipart())
        self._zap.send_multipart(answer)
        self.counts.refused_connections += not welcome

    def _read(self, handle: RequestHandler, take: OneWayHandler) -> None:
        for _ in range(sockets.TURN):
            try:
                who, *frames = self._socket.recv_multipart(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                return
            self._receive(who.bytes, [frame.buffer for frame in frames], handle, take)
            if self._stopping.is_set():
                return

    def _receive(self, who: bytes, frames: list[memoryview], handle: RequestHandler, take: OneWayHandler) -> None:
        match self._peers.receive(who, frames):
            case Accepted() as accepted:
                self.counts.bytes_in += sum(frame.nbytes for frame in frames)
                self._handle(accepted, handle)
            case OneWay(opened):
                self.counts.bytes_in += sum(frame.nbytes for frame in frames)
                self._handle_one_way(opened, take)
            case CachedReply(answer):
                self.counts.again += 1
                self.counts.replies_lost += not self._send([who, *answer])
            case Respond(answer):
                self._respond(who, answer)
            case Refused(reason, frame):
                field = _COUNTED.get(reason, f"refused_{reason}")
                setattr(self.counts, field, getattr(self.counts, field) + 1)
                self._respond(who, () if frame is None else (frame,))

    def _handle_one_way(self, opened: Opened, take: OneWayHandler) -> None:
        """There is no reply that could say what is wrong with it: it is counted, and a bug of ours is logged."""
        try:
            message = decode(opened.header)
        except InputError:
            self.counts.refused_decode += 1
            return
        self.counts.one_way += 1
        try:
            take(message, opened.frames)
        except HotrowError as error:
            self.counts.refused_one_way += 1
            _log.debug("%s: a one-way %s was refused: %s", self.name, type(message).__name__, error)
        except Exception:
            self.counts.refused_one_way += 1
            _log.exception("%s: an error in handling a one-way %s", self.name, type(message).__name__)

    def _handle(self, accepted: Accepted, handle: RequestHandler) -> None:
        name, opened = accepted.name, accepted.opened

        def answer(message: Message, frames: Sequence[Buffer], later: bool) -> None:
            self._answer(name, opened.number, message, frames, later)

        try:
            if accepted.fault is not None:
                raise InputError(accepted.fault)
            message = decode(opened.header)
        except InputError as error:
            self.counts.refused_decode += 1
            answer(Fault.of("input", f"{self.name}: {error}"), (), False)
            return
        self.counts.requests += 1
        request = Request(name, message, opened.frames, answer)
        try:
            handle(request)
        except Exception as error:  # the server continues; the client gets the error, and a bug of ours is logged
            if request.answered:
                _log.error("%s: an error after the reply to %s", self.name, type(message).__name__, exc_info=error)
            else:
                request.reply(self._fault(message, error))

    def _fault(self, message: Message, error: Exception) -> Fault:
        if isinstance(error, HotrowError):
            return fault_of(error)
        what = type(message).__name__
        _log.error("%s: an error in handling %s", self.name, what, exc_info=error)
        text = f"an error in handling {what}, see the log of {self.name}: {type(error).__name__}: {error}"
        return Fault.of("internal", text)

    def _answer(self, name: bytes, number: int, message: Message, frames: Sequence[Buffer], later: bool) -> None:
        fault = message.kind if isinstance(message, Fault) else None
        answer = _Answer(name, number, encode(message), lent(frames), fault)
        check_sizes(answer.header, answer.frames, self.limits)
        if not later and self._thread == threading.get_ident():
            self._send_answer(answer)
        elif self._idle.is_set():
            self.counts.replies_lost += 1  # the loop has ended
        else:
            self._answers.append(answer)
            self._wake.set()

    def _send_answers(self) -> None:
        for _ in range(len(self._answers)):
            self._send_answer(self._answers.popleft())

    def _send_answer(self, answer: _Answer) -> None:
        self.counts.busy += answer.fault == "busy"
        self.counts.faults += answer.fault not in (None, "busy")
        final = answer.fault != "busy"
        way = self._peers.answer(answer.name, answer.number, answer.header, answer.frames, final=final)
        if way is None:
            self.counts.replies_lost += 1
            return
        who, message = way
        if self._send([who, *message.frames]):
            self.counts.bytes_out += message.nbytes
        else:
            message.unsent()
            self.counts.replies_lost += 1

    def _respond(self, who: bytes, frames: Sequence[bytes]) -> None:
        if frames and not self._send([who, *frames]):
            self.counts.replies_lost += 1

    def _send(self, frames: Sequence[bytes | memoryview]) -> bool:
        try:
            self._socket.send_multipart(frames, zmq.DONTWAIT, copy=False)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                raise
            return False
        return True
