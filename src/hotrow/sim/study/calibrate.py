"""Measurements of this machine for a simulated cluster: seconds of a batch, and of a message.

Batches are timed at two sizes; the line through them gives the cost of a batch and of a sample. The network is a TCP
connection on the loopback device.
"""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from threading import Thread

MESSAGE, ROUNDS = 1 << 20, 32  # bytes of a message that shows the bandwidth, and how many
PINGS = 400
TAKES = 5  # of each size of a batch


@dataclass(frozen=True, slots=True)
class Compute:
    """Seconds of a batch: batch_s + samples * sample_s."""

    batch_s: float
    sample_s: float


@dataclass(frozen=True, slots=True)
class LoopbackWire:
    """Latency and bandwidth of a connection on this machine."""

    latency_s: float  # one way
    bandwidth: int  # bytes per second


def measured_compute(train: Callable[[int], None], samples: int) -> Compute:
    """`train(n)` computes and applies one batch of n samples; timed at `samples` and at half of them."""
    half = max(1, samples // 2)
    for size in (samples, half):
        train(size)  # warms caches, rows and buffers
    long_s = median(_seconds(train, samples) for _ in range(TAKES))
    if half == samples:
        return Compute(0.0, long_s)
    return line_through(half, median(_seconds(train, half) for _ in range(TAKES)), samples, long_s)


def line_through(few: int, short_s: float, many: int, long_s: float) -> Compute:
    """Neither part is below 0: where noise would make it so, the other part gets all."""
    slope = (long_s - short_s) / (many - few)
    if slope <= 0:
        return Compute(max(long_s, short_s), 0.0)
    rest = long_s - slope * many
    return Compute(rest, slope) if rest >= 0 else Compute(0.0, long_s / many)


def measured_wire() -> LoopbackWire:
    """Half of a ping for the latency, a stream of large messages for the bandwidth."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = Thread(target=_answer, args=(server,), daemon=True)
        thread.start()
        with socket.create_connection(server.getsockname()) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pings = [_ping(client) for _ in range(PINGS)]
            stream_s = _stream(client)
        thread.join()
    return LoopbackWire(median(pings) / 2, round(MESSAGE * ROUNDS / stream_s))


def _seconds(train: Callable[[int], None], samples: int) -> float:
    start = time.perf_counter()
    train(samples)
    return time.perf_counter() - start


def _ping(client: socket.socket) -> float:
    start = time.perf_counter()
    client.sendall(b"?")
    _receive(client, 1)
    return time.perf_counter() - start


def _stream(client: socket.socket) -> float:
    message = bytes(MESSAGE)
    start = time.perf_counter()
    for _ in range(ROUNDS):
        client.sendall(message)
    _receive(client, 1)
    return time.perf_counter() - start


def _answer(server: socket.socket) -> None:
    """The other end: answers pings, then takes a stream in and answers once."""
    peer, _ = server.accept()
    with peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(PINGS):
            _receive(peer, 1)
            peer.sendall(b"!")
        _receive(peer, MESSAGE * ROUNDS)
        peer.sendall(b"!")


def _receive(connection: socket.socket, size: int) -> None:
    buffer = bytearray(min(size, MESSAGE))
    while size:
        got = connection.recv_into(buffer, min(size, MESSAGE))
        if not got:
            raise ConnectionError("the loopback connection was closed while it was measured")
        size -= got
