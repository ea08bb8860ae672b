"""The side that asks: peers by name, answers as futures, and a bound on what is open. The work is done in loop.py."""

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import count

import zmq

from hotrow.errors import ConfigError, InputError
from hotrow.transport import sockets
from hotrow.transport.authenticator import ZapAuthenticator
from hotrow.transport.client_loop import Answer, ClientLoop, PeerConnection
from hotrow.transport.connection import Connection
from hotrow.transport.counts import WireCounts
from hotrow.transport.envelope import Buffer, check_sizes, encode, lent
from hotrow.transport.errors import PeerLost
from hotrow.transport.limits import Limits, RetryPolicy
from hotrow.transport.messages import Message
from hotrow.transport.pending import PendingRequest
from hotrow.transport.security import ClusterKey, Security, checked_key

__all__ = ["Answer", "RpcClient"]


class RpcClient:
    """Asks peers by name, from any thread. Use it in a `with`, or close it."""

    def __init__(
        self,
        *,
        security: Security,
        key: ClusterKey | None = None,
        patience: RetryPolicy | None = None,
        limits: Limits | None = None,
        most_open: int = 64,
        delay_s: float = 0.0,
    ) -> None:
        if most_open < 1 or not 0 <= delay_s <= 60:
            raise ConfigError(f"most_open={most_open}, delay_s={delay_s}: must be 1 or more, and from 0 to 60 seconds")
        self._key, self._security = checked_key(security, key), security
        self._door = ZapAuthenticator(security, self._key)
        self._patience = RetryPolicy() if patience is None else patience
        self.limits = Limits() if limits is None else limits
        self._most_open = most_open
        self.counts = WireCounts()
        self._numbers = count(1)
        self._numbering = threading.Lock()  # asks go to the loop in the order of their numbers
        self._chance = random.Random().random
        self._peers: dict[str, PeerConnection] = {}
        self._lock = threading.Lock()
        self._context = zmq.Context()
        self._loop = ClientLoop(self.counts, delay_s)

    def connect(self, name: str, address: str, *, near: bool = False) -> None:
        """Make a peer known, or say that it has moved: what it was asked and has not answered goes to where it is.

        A `near` one is talked to without the wire's delay.
        """
        sockets.check_address("address", address, self._security)
        with self._lock:
            self._check_open()
            before = self._peers.get(name)
            if before is not None and before.address == address:
                return
            peer = self._new_peer(name, address, near, None if before is None else before.line.name)
            try:
                self._loop.begin(peer, before)
            except InputError:  # closed just now
                peer.socket.close()
                raise
            self._peers[name] = peer
            if before is not None:
                before.leave("it has moved")

    def ask(
        self, name: str, message: Message, frames: Sequence[Buffer] = (), *, deadline: bool = True
    ) -> "Future[Answer]":
        """The answer to come. The frames must not change until then. Waits while `most_open` asks of a peer are open.

        Fails with PeerLost when nothing was heard of the peer for `Patience.give_up_s` (never with deadline=False), and
        with RemoteFault where the peer refuses. A peer that is slow but says so is not lost, and one that is busy is
        asked again until it has room. Callbacks of the future run in the wire's own thread: they may ask, and should be
        short.
        """
        header, views = encode(message), lent(frames)
        check_sizes(header, views, self.limits)
        peer = self._enter(name, deadline)
        with self._numbering:
            ask = PendingRequest(next(self._numbers), header, views, deadline, time.monotonic())
            ask.future.set_running_or_notify_cancel()  # it is as good as sent: there is nothing to cancel
            self._loop.put(peer, ask)
        return ask.future

    def forget(self, name: str) -> None:
        """End a connection. What is open fails with PeerLost."""
        with self._lock:
            self._check_open()
            peer = self._peers.pop(name, None)
            if peer is None:
                raise InputError(f"{name!r}: there is no such peer; there are: {', '.join(sorted(self._peers))}")
            peer.leave("it was forgotten")
            self._loop.forget(peer)

    def close(self) -> None:
        """End all connections and give everything back. What is open fails with PeerLost."""
        if self._loop.is_here:
            raise RuntimeError("close() inside a callback would wait for itself: call it in another thread")
        self._loop.end()
        with self._lock:  # a connection that is being made is given up first
            self._context.term()

    def __enter__(self) -> "RpcClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._loop.ended:
            raise InputError("this wire is closed: make a new one")

    def _new_peer(self, name: str, address: str, near: bool, known_as: bytes | None) -> PeerConnection:
        macs = self._security == "key"
        line = Connection(
            self._key, macs=macs, patience=self._patience, chance=self._chance, counts=self.counts, name=known_as
        )
        socket = self._context.socket(zmq.DEALER)
        try:
            sockets.tune(socket, self.limits, address, linger_ms=0)
            socket.setsockopt(zmq.SNDHWM, max(self.limits.queued, 2 * self._most_open))  # room for asks and probes
            self._door.unlock(socket)
            sockets.attempt("address", address, socket.connect)
        except ConfigError:
            socket.close()
            raise
        return PeerConnection(name, address, line, socket, near)

    def _enter(self, name: str, deadline: bool) -> PeerConnection:
        """The peer, once there is room for one more ask."""
        began = time.monotonic()
        while True:
            self._check_open()
            peer = self._peers.get(name)
            if peer is None:
                raise InputError(f"{name!r}: there is no such peer; connect to it first")
            with peer.room:
                if peer.gone is None and (peer.open < self._most_open or self._loop.is_here):
                    peer.open += 1
                    return peer
                silent = time.monotonic() - max(began, peer.line.heard_s)
                if deadline and silent >= self._patience.give_up_s:
                    message = f"{peer.open} asks are open and nothing was heard for {silent:.1f} s: {peer.line.trouble}"
                    raise PeerLost(name, peer.address, silent, message)
                peer.room.wait(min(1.0, self._patience.give_up_s / 4))
