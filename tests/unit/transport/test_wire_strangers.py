"""Without the key nobody can read, write or stop anything; nor can one who listens, records and sends again.

`Raw` with the right key at the door stands for somebody who has listened: the password of the door travels in the
clear under `key`. What it cannot do is prove the key or seal a header.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest
import zmq

from hotrow.transport import envelope
from hotrow.transport.client import RpcClient
from hotrow.transport.counts import ServerCounts
from hotrow.transport.messages import Done, Stop
from hotrow.transport.security import Challenge, ClientHandshake, Session
from hotrow.transport.server import Request, RpcServer
from hotrow.types import Security
from unit.transport.parts import HASTY, KEY, LONG_S, OTHER_KEY, READY, Raw, running, sealed_ask, small, until

Alter = Callable[[list[bytes]], list[bytes]]


def still_answers(server: RpcServer, security: Security = "key") -> bool:
    with RpcClient(security=security, key=KEY, retry=HASTY) as wire:
        wire.connect("shard", server.address)
        return wire.request("shard", READY).result(LONG_S).message == Done()


@pytest.mark.parametrize("security", ["key", "curve"])
def test_who_has_no_key_does_not_come_through_the_door(security: Security) -> None:
    with running(security) as server:
        others = [("off", None), ("key", OTHER_KEY), ("curve", OTHER_KEY)]
        for other, key in others:
            with Raw(server.address, security=other, key=key) as stranger:  # type: ignore[arg-type]
                stranger.send(envelope.HELLO + bytes(32))
                stranger.send(b"q" + bytes(32), envelope.encode(Stop()))
                assert stranger.receive(0.2) is None
        assert still_answers(server, security)
        assert server.counts.refused_connections == (
            1 if security == "key" else 0
        )  # other mechanisms do not get that far
        assert (server.counts.requests, server.counts.refused_unproven) == (1, 0)


def test_knowing_the_server_s_public_key_is_not_enough() -> None:
    with running("curve") as server, Raw(server.address, security="curve", connect=False) as stranger:
        public, secret = zmq.curve_keypair()
        stranger.socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
        stranger.socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
        stranger.socket.connect(server.address)
        stranger.send(envelope.HELLO + bytes(32))
        until(lambda: server.counts.refused_connections == 1)
        assert stranger.receive(0.1) is None
        assert still_answers(server, "curve")


def test_names_that_libzmq_would_trip_over_do_not_come_through_the_door() -> None:
    """A peer may choose its routing id. One that foresees the next that libzmq gives out would end the process."""
    peers: list[bytes] = []

    def handle(request: Request) -> None:
        peers.append(request.peer)
        request.reply(Done())

    with running(handle=handle) as server:
        assert still_answers(server)
        next_one = int.from_bytes(peers[0][1:], "big")
        for ahead in range(1, 20):
            name = b"\0" + ((next_one + ahead) % 2**32).to_bytes(4, "big")
            with Raw(server.address, key=OTHER_KEY, name=name) as stranger:
                stranger.send(b"anything")
                assert stranger.receive(0.02) is None
        assert still_answers(server)


def test_who_listened_at_the_door_is_asked_for_the_key_and_heard_no_further() -> None:
    with running() as server, Raw(server.address) as listener:
        for frames in ([b"q" + bytes(32), envelope.encode(Stop())], [envelope.PROOF + bytes(32)], [b"?" + bytes(32)]):
            listener.send(*frames)
            assert listener.receive() == [envelope.UNAUTHENTICATED]
        listener.send(envelope.HELLO + bytes(32))
        told = listener.receive()
        assert told is not None
        listener.send(envelope.PROOF + told[0][-32:])  # the server's own proof
        assert listener.receive() == [envelope.UNAUTHENTICATED]
        assert server.counts.refused_unproven == 4
        assert (server.counts.requests, server._peers.sizes) == (0, (0, 0))
        assert still_answers(server)


def test_what_was_recorded_is_of_no_use_on_the_same_connection_or_another() -> None:
    with running() as server, Raw(server.address) as victim:
        handshake = ClientHandshake(KEY, macs=True)
        recorded = [[envelope.HELLO + handshake.hello]]
        victim.send(*recorded[0])
        told = victim.receive()
        assert told is not None
        challenge = Challenge.parse(told[0][1:])
        assert challenge is not None
        proven = handshake.prove(challenge)
        assert proven is not None
        recorded += [[envelope.PROOF + proven[0]], sealed_ask(proven[1], 1), sealed_ask(proven[1], 2)]
        for frames in recorded[1:]:
            victim.send(*frames)
        assert victim.receive() is not None
        assert victim.receive() is not None
        assert server.counts.requests == 2
        for frames in recorded[2:]:
            victim.send(*frames)
            assert victim.receive() == [envelope.UNAUTHENTICATED]
        assert server.counts.refused_mac == 2
        with Raw(server.address) as other:
            for frames in recorded:
                other.send(*frames)
            until(lambda: server.counts.refused_unproven == 3)
        victim.send(*recorded[1])  # the proof again: the session goes on
        assert victim.receive() == [envelope.UNAUTHENTICATED]
        victim.send(*sealed_ask(proven[1], 3))
        assert victim.receive() is not None
        assert server.counts.requests == 3


ALTERATIONS: dict[str, Alter] = {
    "another header": lambda frames: [frames[0], envelope.encode(Stop()), *frames[2:]],
    "another number": lambda frames: [frames[0][:1] + b"\x63" + frames[0][2:], *frames[1:]],
    "another place in the order": lambda frames: [frames[0][:9] + b"\x63" + frames[0][10:], *frames[1:]],
    "another kind": lambda frames: [envelope.PROBE + frames[0][1:], *frames[1:]],
    "a seal cut off": lambda frames: [frames[0][:-1], *frames[1:]],
    "no seal": lambda frames: [frames[0][:9], *frames[1:]],
    "a frame more": lambda frames: [*frames, b""],
    "a frame less": lambda frames: frames[:-1],
    "a longer frame": lambda frames: [*frames[:-1], frames[-1] + b"x"],
    "a shorter frame": lambda frames: [*frames[:-1], frames[-1][:-1]],
    "frames in another order": lambda frames: [*frames[:2], frames[3], frames[2]],
    "no header": lambda frames: frames[:1],
}


@pytest.mark.parametrize("alter", ALTERATIONS.values(), ids=ALTERATIONS)
def test_what_was_altered_on_the_way_is_refused(alter: Alter) -> None:
    with running() as server, Raw(server.address) as client:
        session = client.prove()
        frames = sealed_ask(session, 1, frames=[b"four", b"seven77"])
        client.send(*alter(frames))
        assert client.receive() == [envelope.UNAUTHENTICATED]
        assert (server.counts.requests, server.counts.refused_mac) == (0, 1)
        client.send(*frames)
        answer = client.receive()
        assert answer is not None
        assert answer[2:] == [b"four", b"seven77"]


@pytest.mark.parametrize("security", ["off", "key"])
def test_a_proven_peer_that_talks_nonsense_is_told_so(security: Security) -> None:
    with running(security) as server, Raw(server.address, security=security) as client:
        session: Session = client.prove()
        for number, header in enumerate([b"", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x91\xa4nope", b"\x91" * 1000], 1):
            client.send(*sealed_ask(session, number, header))
            answer = client.receive()
            assert answer is not None
            assert b"a header that is not a message" in answer[1]
        assert (server.counts.refused_decode, server.counts.requests) == (5, 0)
        for first in (b"", b"z", b"h", b"h" * 40, bytes(500)):
            client.send(first)
        until(lambda: server.counts.refused_decode == 10)
        client.send(b"q" * 10, *[b""] * 5000)  # more frames than a message may have
        until(lambda: server.counts.refused_decode == 11)
        assert still_answers(server, security)


def test_a_frame_beyond_the_limit_ends_the_connection_and_nothing_else() -> None:
    with running(limits=small(frame_bytes=10_000)) as server:
        with Raw(server.address) as client:
            session = client.prove()
            client.send(*sealed_ask(session, 1, frames=[bytes(10_000)]))
            assert client.receive() is not None
            client.send(*sealed_ask(session, 2, frames=[bytes(10_001)]))
            assert client.receive(0.3) is None
        assert server.counts.requests == 1
        assert still_answers(server)


def test_strangers_in_the_middle_of_a_handshake_take_no_more_room_than_allowed() -> None:
    with running(limits=small(unproven_peers=3, peers=2)) as server:
        listeners = [Raw(server.address) for _ in range(8)]
        for listener in listeners:
            listener.send(envelope.HELLO + os.urandom(32))
            assert listener.receive() is not None
        assert server._peers.sizes == (3, 0)
        assert still_answers(server)
        for listener in listeners:
            listener.__exit__()


def test_a_stranger_cannot_fill_the_memory_with_a_message_that_never_ends() -> None:
    """libzmq keeps all frames of a message until its last one, without a bound: only the door keeps them out."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
    command = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
    more = b"\x03" + (1 << 18).to_bytes(8, "big") + bytes(1 << 18)
    with running() as server:
        host, port = server.address.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port))) as stranger, pytest.raises(ConnectionError):
            stranger.sendall(greeting + b"\x04" + bytes([len(command)]) + command + 200 * more)
        assert still_answers(server)


def test_bytes_that_are_not_even_zeromq_do_no_harm() -> None:
    with running() as server:
        host, port = server.address.removeprefix("tcp://").split(":")
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
        for opening in (
            b"",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\xff" * 100,
            greeting,
            greeting + os.urandom(5000),
            bytes(10_000),
        ):
            with socket.create_connection((host, int(port))) as stranger, suppress(ConnectionError):
                stranger.sendall(opening)  # it may be thrown out before it has finished
        assert still_answers(server)
        assert server.counts == ServerCounts(
            requests=1, rings=1, bytes_in=server.counts.bytes_in, bytes_out=server.counts.bytes_out
        )
