"""Options and addresses of sockets, and waking a loop that waits in a poll."""

import ipaddress
import socket as plain
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias
from urllib.parse import urlsplit

import zmq

from hotrow.errors import ConfigError
from hotrow.transport.limits import Limits
from hotrow.types import Security

Socket: TypeAlias = "zmq.Socket[bytes]"

HEARTBEAT_MS = 5_000  # of libzmq: finds a host that vanished without closing, and reconnects
HEARTBEAT_PATIENCE_MS = 30_000
RECONNECT_MS, RECONNECT_MOST_MS = 50, 2_000
TURN = 64  # messages read in a row before the loop does anything else


def tune(socket: Socket, limits: Limits, address: str, linger_ms: int) -> None:
    """Set limits and timeouts of a socket, before it is bound or connected."""
    socket.setsockopt(zmq.MAXMSGSIZE, limits.frame_bytes)
    socket.setsockopt(zmq.SNDHWM, limits.queued)
    socket.setsockopt(zmq.RCVHWM, limits.queued)
    socket.setsockopt(zmq.LINGER, linger_ms)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_PATIENCE_MS)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MOST_MS)
    socket.setsockopt(zmq.IPV6, 1 if "[" in address else 0)


def check_address(what: str, address: str, security: Security) -> None:
    """ConfigError for what is not a TCP address, and for another machine's where security is off."""
    parts = urlsplit(address)
    if parts.scheme != "tcp" or not parts.netloc.rpartition(":")[0] or not parts.netloc.rpartition(":")[2]:
        raise ConfigError(f"{what}={address!r}: must be tcp://host:port")
    if security == "off" and not is_loopback(address):
        raise ConfigError(f"{what}={address!r}: security='off' is for loopback only: use 'key' or 'curve'")


def is_loopback(address: str) -> bool:
    """Whether an address is on this machine only. Names other than localhost are not looked up."""
    host = urlsplit(address).netloc.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def attempt(what: str, address: str, action: Callable[[str], object]) -> None:
    """Bind or connect; an error of libzmq becomes a ConfigError."""
    try:
        action(address)
    except zmq.ZMQError as error:
        raise ConfigError(f"{what}={address!r}: {error.strerror}") from None


class Wake:
    """Ends a poll from any thread. Many calls before the loop is awake are one."""

    def __init__(self) -> None:
        self._reader, self._writer = plain.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    def set(self) -> None:
        with suppress(OSError):  # full: it is awake already; closed: the loop has ended
            self._writer.send(b"!")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while len(self._reader.recv(4096)) == 4096:
                pass

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
