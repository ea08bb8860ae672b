"""The client: peers by name, replies as futures, and a bound on open requests. Its thread is in client_loop.py."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count

import zmq

from hotrow.errors import ConfigError, InputError
from hotrow.transport import sockets
from hotrow.transport.authenticator import ZapAuthenticator
from hotrow.transport.client_loop import Answer, ClientLoop, Outcome, PeerConnection
from hotrow.transport.connection import Connection
from hotrow.transport.counts import WireCounts
from hotrow.transport.envelope import Buffer, check_sizes, encode, lent
from hotrow.transport.errors import PeerLost
from hotrow.transport.limits import Limits, RetryPolicy
from hotrow.transport.link import GBPS, EmulatedLink
from hotrow.transport.messages import Message
from hotrow.transport.pending import PendingRequest
from hotrow.transport.ring_ends import RingClient, uses_rings
from hotrow.transport.security import ClusterKey, checked_key
from hotrow.types import Security

__all__ = ["Answer", "Outcome", "RpcClient"]


class RpcClient:
    """Sends requests to peers by name, from any thread. Use it in a `with`, or close it."""

    def __init__(
        self,
        *,
        security: Security,
        key: ClusterKey | None = None,
        retry: RetryPolicy | None = None,
        limits: Limits | None = None,
        most_open: int = 64,
        delay_s: float = 0.0,
        link_gbps: float = 0.0,
    ) -> None:
        """`delay_s` and `link_gbps` emulate a slow network: a delay, and a rate of all connections in each direction.

        With a rate nothing goes through shared memory. 0: none.
        """
        if most_open < 1 or not 0 <= delay_s <= 60:
            raise ConfigError(f"most_open={most_open}, delay_s={delay_s}: must be 1 or more, and from 0 to 60 seconds")
        if link_gbps < 0:
            raise ConfigError(f"link_gbps={link_gbps}: must be 0 (no limit) or more")
        self._key, self._security = checked_key(security, key), security
        self._authenticator = ZapAuthenticator(security, self._key)
        self._retry = RetryPolicy() if retry is None else retry
        self.limits = Limits() if limits is None else limits
        self._most_open = most_open
        self.counts = WireCounts()
        self._numbers = count(1)
        self._numbering = threading.Lock()  # requests reach the loop in the order of their numbers
        self._chance = random.Random().random
        self._peers: dict[str, PeerConnection] = {}
        self._lock = threading.Lock()
        self._context = zmq.Context()
        self._loop = ClientLoop(self.counts, EmulatedLink(delay_s, link_gbps * GBPS or None))
        rings = uses_rings(security) and not link_gbps
        self._rings = RingClient(self.limits, self.counts, self._loop.watch_rings) if rings else None

    def connect(self, name: str, address: str, *, near: bool = False) -> None:
        """Add a peer, or change its address: its open requests are sent to the new one.

        Messages to a `near` peer are not slowed by `delay_s` and `link_gbps`.
        """
        self._connect(name, address, near=near)

    def suspend_deadlines(self, name: str) -> None:
        """A peer is being started again: its open requests wait until `reconnect`, as long as that takes."""
        with self._lock:
            self._loop.suspend_deadlines(self._peer(name))

    def reconnect(self, name: str, address: str) -> None:
        """A peer was started again, at the same address or another: send its open requests at once.

        The deadline of each starts again.
        """
        with self._lock:
            near = self._peer(name).near
        self._connect(name, address, near=near, anew=True)

    def _connect(self, name: str, address: str, *, near: bool, anew: bool = False) -> None:
        sockets.check_address("address", address, self._security)
        with self._lock:
            self._check_open()
            before = self._peers.get(name)
            if before is not None and before.address == address and not anew:
                return
            peer = self._new_peer(name, address, near, None if before is None else before.connection.name)
            try:
                self._loop.begin(peer, before)
            except InputError:  # closed meanwhile
                peer.socket.close()
                raise
            self._peers[name] = peer
            if before is not None:
                before.leave("it has moved")

    def request(
        self, name: str, message: Message, frames: Sequence[Buffer] = (), *, deadline: bool = True
    ) -> "Future[Answer]":
        """Send a request; the future gets the reply. The frames must not change until then.

        Waits while `most_open` requests to the peer are open. The future fails with PeerLost when nothing was received
        from the peer for `RetryPolicy.give_up_s` (never with deadline=False), and with RemoteFault where the peer
        refuses the request. A peer that reports a request as in progress is not lost; to one that is busy the request
        is sent again until it is accepted. Callbacks of the future run in the thread of the client: they may send
        requests, and should be short.
        """
        future: Future[Answer] = Future()
        future.set_running_or_notify_cancel()  # from here on it cannot be cancelled
        self.send(name, message, frames, partial(complete, future), deadline=deadline)
        return future

    def send(
        self,
        name: str,
        message: Message,
        frames: Sequence[Buffer],
        done: Callable[[Outcome], None],
        *,
        deadline: bool = True,
    ) -> None:
        """Send a request as `request` does, without a future: `done` gets the reply or the error, in the thread of the
        client. For callers that wait for no single reply."""
        header, views = encode(message), lent(frames)
        check_sizes(header, views, self.limits)
        peer = self._enter(name, deadline)
        with self._numbering:
            request = PendingRequest(next(self._numbers), header, views, deadline, time.monotonic(), done)
            self._loop.put(peer, request)

    def send_one_way(self, name: str, message: Message, frames: Sequence[Buffer] = ()) -> None:
        """Send a message that has no reply, and that may be lost: it is not sent again.

        Never waits: without a connection the message is dropped, and counted as `one_way_unsent`. The frames must not
        change any more.
        """
        header, views = encode(message), lent(frames)
        check_sizes(header, views, self.limits)
        with self._lock:
            self._check_open()
            peer = self._peer(name)
        self._loop.send_one_way(peer, header, views)

    def address_of(self, name: str) -> str:
        """The address of a peer."""
        with self._lock:
            return self._peer(name).address

    def forget(self, name: str) -> None:
        """Close a connection. Its open requests fail with PeerLost."""
        with self._lock:
            self._check_open()
            peer = self._peer(name)
            del self._peers[name]
            peer.leave("it was forgotten")
            self._loop.forget(peer)

    def close(self) -> None:
        """Close all connections. Open requests fail with PeerLost."""
        if self._loop.is_here:
            raise RuntimeError("close() inside a callback would wait for itself: call it in another thread")
        self._loop.end()
        with self._lock:  # not while a connection is being made
            self._context.term()

    def __enter__(self) -> "RpcClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._loop.ended:
            raise InputError("this client is closed: make a new one")

    def _peer(self, name: str) -> PeerConnection:
        if (peer := self._peers.get(name)) is None:
            raise InputError(f"{name!r}: there is no such peer; there are: {', '.join(sorted(self._peers))}")
        return peer

    def _new_peer(self, name: str, address: str, near: bool, known_as: bytes | None) -> PeerConnection:
        macs = self._security == "key"
        connection = Connection(
            self._key,
            macs=macs,
            retry=self._retry,
            chance=self._chance,
            counts=self.counts,
            name=known_as,
            rings=self._rings,
        )
        socket = self._context.socket(zmq.DEALER)
        try:
            sockets.tune(socket, self.limits, address, linger_ms=0)
            socket.setsockopt(zmq.SNDHWM, max(self.limits.queued, 2 * self._most_open))  # requests and probes
            self._authenticator.configure_client(socket)
            sockets.attempt("address", address, socket.connect)
        except ConfigError:
            socket.close()
            raise
        return PeerConnection(name, address, connection, socket, near)

    def _enter(self, name: str, deadline: bool) -> PeerConnection:
        """The peer, once one more request to it may be open."""
        began = time.monotonic()
        while True:
            self._check_open()
            peer = self._peers.get(name)
            if peer is None:
                raise InputError(f"{name!r}: there is no such peer; connect to it first")
            with peer.changed:
                if peer.gone is None and (peer.open < self._most_open or self._loop.is_here):
                    peer.open += 1
                    return peer
                silent = time.monotonic() - max(began, peer.connection.received_s)
                if deadline and silent >= self._retry.give_up_s:
                    message = f"{peer.open} requests are open and nothing was heard for {silent:.1f} s"
                    raise PeerLost(name, peer.address, silent, f"{message}: {peer.connection.trouble}")
                peer.changed.wait(min(1.0, self._retry.give_up_s / 4))


def complete(future: "Future[Answer]", outcome: Outcome) -> None:
    """Set the result of a request."""
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
