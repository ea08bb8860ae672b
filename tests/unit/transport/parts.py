"""What the tests of the wire share: a server that runs, a client that knows the language and keeps no rule."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import zmq

from hotrow.transport import envelope
from hotrow.transport.authenticator import ZapAuthenticator
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.limits import Limits, RetryPolicy
from hotrow.transport.messages import Done, Message, Query
from hotrow.transport.security import NO_KEY, Challenge, ClientHandshake, ClusterKey, Session
from hotrow.transport.server import OneWayHandler, Request, RpcServer, refuse_one_way
from hotrow.types import Security

KEY, OTHER_KEY = ClusterKey(b"k" * 32), ClusterKey(b"o" * 32)
READY = Query("ready")
LONG_S = 60.0  # more than any wait takes on a busy machine; a test that fails may take it
HASTY = RetryPolicy(first_s=0.05, most_s=0.2, give_up_s=LONG_S)


def echo(request: Request) -> None:
    request.reply(Done(), request.frames)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, as long as it takes within reason."""
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.002)


@contextmanager
def running(
    security: Security = "key",
    handle: Callable[[Request], None] = echo,
    *,
    take: OneWayHandler = refuse_one_way,
    bind: str = "tcp://127.0.0.1:*",
    **settings: Any,
) -> Iterator[RpcServer]:
    """A server whose loop runs in a thread."""
    key = None if security == "off" else KEY
    with RpcServer(bind, security=security, key=key, **settings) as server:
        thread = threading.Thread(target=server.serve, args=(handle, take))
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()


class Raw:
    """A bare DEALER: sends whatever it is told to."""

    def __init__(
        self,
        address: str,
        *,
        security: Security = "key",
        key: ClusterKey | None = None,
        name: bytes = b"",
        connect: bool = True,
    ) -> None:
        self.key = NO_KEY if security == "off" else key or KEY
        self.macs = security == "key"
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.sndtimeo = 20_000
        if name:
            self.socket.setsockopt(zmq.ROUTING_ID, name)
        ZapAuthenticator(security, self.key).configure_client(self.socket)
        if connect:
            self.socket.connect(address)

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.context.term()

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def receive(self, wait_s: float = LONG_S) -> list[bytes] | None:
        return self.socket.recv_multipart() if self.socket.poll(int(wait_s * 1000)) else None

    def drain(self) -> int:
        """Read and forget all that is there; gives back how much it was."""
        count = 0
        while self.receive(0) is not None:
            count += 1
        return count

    def prove(self) -> Session:
        """The handshake, as it should be."""
        handshake = ClientHandshake(self.key, macs=self.macs)
        self.send(envelope.HELLO + handshake.hello)
        told = self.receive()
        assert told is not None
        challenge = Challenge.parse(told[0][1:])
        assert challenge is not None
        proven = handshake.prove(challenge)
        assert proven is not None
        self.send(envelope.PROOF + proven[0])
        return proven[1]


def sealed_ask(
    session: Session, number: int, message: Message | bytes = READY, frames: Sequence[bytes] = ()
) -> list[bytes]:
    """All frames of a request."""
    header = message if isinstance(message, bytes) else envelope.encode(message)
    return [envelope.sealed(session, envelope.REQUEST, number, header, envelope.lent(frames)), header, *frames]


def small(**limits: int) -> Limits:
    return Limits(**limits)


def wire_to(server: RpcServer, security: Security = "key", retry: RetryPolicy = HASTY, **settings: object) -> RpcClient:
    wire = RpcClient(security=security, key=KEY, retry=retry, **settings)  # type: ignore[arg-type]
    wire.connect("shard", server.address)
    return wire


def answer_of(future: "Future[Answer]") -> Answer:
    return future.result(LONG_S)
