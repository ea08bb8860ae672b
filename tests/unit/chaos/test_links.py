"""Proxies between roles: bytes pass both ways, later where they are delayed, and not at all where they are cut."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hotrow.chaos.leftovers import is_open
from hotrow.chaos.links import Links
from hotrow.types import RoleId

SHARD = RoleId("shard", 0)
ENDED = r"reset|Broken pipe"


@contextmanager
def echoing() -> Iterator[str]:
    """A server that sends back what it gets; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(4096):
                        connection.sendall(data)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def connected(address: str) -> socket.socket:
    port = int(address.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def said(connection: socket.socket, text: bytes) -> bytes:
    connection.sendall(text)
    return connection.recv(4096)


def test_bytes_pass_and_are_late_by_the_delay_both_ways() -> None:
    with echoing() as address, Links() as links, connected(links.route(SHARD, address)) as connection:
        assert said(connection, b"one") == b"one"
        links.delay(SHARD, 0.2)
        began = time.monotonic()
        assert said(connection, b"two") == b"two"
        assert time.monotonic() - began >= 0.4
        links.restore(SHARD)
        assert said(connection, b"three") == b"three"


def test_a_cut_ends_connections_and_refuses_new_ones_until_it_is_over() -> None:
    with echoing() as address, Links() as links:
        there = links.route(SHARD, address)
        with connected(there) as before:
            assert said(before, b"one") == b"one"
            links.cut(SHARD)
            with pytest.raises(OSError, match=ENDED):
                said(before, b"two") or said(before, b"three")
        with connected(there) as during, pytest.raises(OSError, match=ENDED):
            said(during, b"four") or said(during, b"five")
        links.restore(SHARD)
        with connected(there) as after:
            assert said(after, b"six") == b"six"


def test_a_role_that_starts_again_keeps_its_proxy() -> None:
    with Links() as links:
        with echoing() as address:
            there = links.route(SHARD, address)
        with echoing() as address:
            assert links.route(SHARD, address) == there
            with connected(there) as connection:
                assert said(connection, b"one") == b"one"
        [port] = links.ports
        assert is_open(port)
    assert not is_open(port)
