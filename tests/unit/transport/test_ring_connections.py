"""Rings between real clients and servers: when they are made, when they are used, and when they are closed."""

import gc
import logging
import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from struct import pack
from typing import Any

import numpy as np
import pytest
import zmq

from hotrow.transport import envelope
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.envelope import lent
from hotrow.transport.errors import RemoteFault
from hotrow.transport.limits import Limits, RetryPolicy
from hotrow.transport.messages import Done
from hotrow.transport.ring_memory import PAGE, OfferedMemory
from hotrow.transport.rings import PLACED_LEAST, Rings
from hotrow.transport.security import Session
from hotrow.transport.server import Request, RpcServer
from hotrow.types import Security
from unit.transport.cable import Cable
from unit.transport.parts import HASTY, KEY, OTHER_KEY, READY, Raw, answer_of, echo, running, until, wire_to

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memfd and /proc are of Linux")

SHARED: tuple[Security, ...] = ("off", "key")
SMALL = Limits(ring_bytes=1 << 18)
NONE = Limits(ring_bytes=0)
FRAME = np.random.default_rng(0).integers(0, 256, PLACED_LEAST, dtype=np.uint8)


def ringed(wire: RpcClient) -> RpcClient:
    """After the server has accepted its offer: the reply to that comes before the reply to a request."""
    answer_of(wire.request("shard", READY))
    return wire


def watched(end: RpcServer | RpcClient) -> int:
    """Rings that are open at one end."""
    return len(end._ring_watch if isinstance(end, RpcServer) else end._loop._ring_watch)


def mapped() -> int:
    """Shared memories that this process has, both ends together."""
    gc.collect()  # what earlier tests left in cycles
    with open("/proc/self/maps") as maps:
        return sum("hotrow-ring" in line for line in maps)


@pytest.mark.parametrize("security", SHARED)
def test_large_frames_of_one_host_go_through_shared_memory(security: Security) -> None:
    frames = [b"small", FRAME, np.tile(FRAME, 20), b""]
    with running(security) as server, ringed(wire_to(server, security)) as wire:
        for _ in range(50):
            answer = answer_of(wire.request("shard", READY, frames))
            assert [bytes(each) for each in answer.frames] == [bytes(each) for each in lent(frames)]
        del answer
        nbytes = 50 * 21 * PLACED_LEAST
        assert (wire.counts.ring_bytes_out, wire.counts.ring_bytes_in) == (nbytes, nbytes)
        assert (server.counts.ring_bytes_out, server.counts.ring_bytes_in) == (nbytes, nbytes)
        assert (wire.counts.ring_full, server.counts.ring_full) == (0, 0)
        assert server.counts.bytes_in > nbytes < wire.counts.bytes_out


@pytest.mark.parametrize(
    ("security", "of_client", "of_server", "refused"),
    [("curve", None, None, 0), ("key", NONE, None, 0), ("key", None, NONE, 1), ("key", None, SMALL, 1)],
)
def test_without_a_ring_frames_go_through_the_socket(
    security: Security, of_client: Limits | None, of_server: Limits | None, refused: int
) -> None:
    with (
        running(security, limits=of_server) as server,
        ringed(wire_to(server, security, limits=of_client)) as wire,
    ):
        assert answer_of(wire.request("shard", READY, [FRAME])).frames == [FRAME.tobytes()]
        assert (wire.counts.rings, server.counts.rings) == (0, 0)
        assert (wire.counts.rings_refused, server.counts.rings_refused) == (refused, refused)
        assert (watched(server), watched(wire), mapped()) == (0, 0, 0)


def test_a_smaller_ring_than_the_server_allows_is_used() -> None:
    with running() as server, ringed(wire_to(server, limits=SMALL)) as wire:
        answer_of(wire.request("shard", READY, [FRAME]))
        assert server.counts.ring_bytes_in == PLACED_LEAST


def test_a_full_ring_falls_back_to_the_socket_and_is_used_again_later() -> None:
    held: list[Request] = []
    with running(handle=held.append) as server, ringed_later(server, held) as wire:
        futures = [wire.request("shard", READY, [FRAME]) for _ in range(6)]  # four fit into the ring
        until(lambda: len(held) == 6)
        assert (wire.counts.ring_full, server.counts.ring_bytes_in) == (2, 4 * PLACED_LEAST)
        assert all(each.frames[0] == FRAME.tobytes() for each in held)
        finish(held, futures)
        futures = [wire.request("shard", READY, [FRAME])]
        until(lambda: len(held) == 1)
        assert (wire.counts.ring_full, server.counts.ring_bytes_in) == (2, 5 * PLACED_LEAST)
        finish(held, futures)


def ringed_later(server: RpcServer, held: list[Request]) -> RpcClient:
    wire = wire_to(server, limits=SMALL)
    asked = wire.request("shard", READY)
    until(lambda: len(held) == 1)
    finish(held, [asked])
    return wire


def finish(held: list[Request], futures: "list[Future[Answer]]") -> None:
    while held:
        held.pop().reply(Done())
    for future in futures:
        answer_of(future)


def test_a_frame_larger_than_the_ring_goes_through_the_socket() -> None:
    large = np.tile(FRAME, 5)  # the ring has four
    with running() as server, ringed(wire_to(server, limits=SMALL)) as wire:
        answer = answer_of(wire.request("shard", READY, [FRAME, large]))
        assert answer.frames == [FRAME.tobytes(), large.tobytes()]
        assert (wire.counts.ring_full, server.counts.ring_full) == (1, 1)
        assert wire.counts.ring_bytes_in == PLACED_LEAST


def test_replies_that_are_kept_are_never_written_over() -> None:
    """Far more than the ring holds: what does not fit comes through the socket."""
    with running() as server, ringed(wire_to(server, limits=SMALL)) as wire:
        answers = [answer_of(wire.request("shard", READY, [FRAME + number])) for number in range(20)]
        assert server.counts.ring_full >= 16
        for number, answer in enumerate(answers):
            assert answer.frames == [(FRAME + number).tobytes()]


def test_threads_that_send_at_once_get_their_own_frames_back() -> None:
    def ask(number: int) -> bool:
        frame = FRAME + number
        return all(answer_of(wire.request("shard", READY, [frame])).frames == [frame.tobytes()] for _ in range(40))

    with running() as server, ringed(wire_to(server, limits=SMALL)) as wire, ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(4)))
        assert server.counts.ring_bytes_in > 0


def test_a_delayed_client_uses_its_ring() -> None:
    with running() as server, ringed(wire_to(server, delay_s=0.01)) as wire:
        futures = [wire.request("shard", READY, [FRAME + number]) for number in range(10)]
        for number, future in enumerate(futures):
            assert answer_of(future).frames == [(FRAME + number).tobytes()]
        assert server.counts.ring_bytes_in == 10 * PLACED_LEAST


@pytest.mark.parametrize("security", SHARED)
def test_a_connection_that_broke_gets_new_rings_and_the_old_are_closed(security: Security) -> None:
    with (
        running(security) as server,
        Cable(server.address) as cable,
        RpcClient(security=security, key=KEY, retry=HASTY) as wire,
    ):
        wire.connect("shard", cable.address)
        ringed(wire)
        kept = answer_of(wire.request("shard", READY, [FRAME]))
        cable.cut()
        assert answer_of(wire.request("shard", READY, [FRAME])).frames == [FRAME.tobytes()]
        assert wire.counts.handshakes == 2
        until(lambda: (watched(server), watched(wire)) == (1, 1))
        assert (server.counts.rings, wire.counts.rings) == (2, 2)
        assert kept.frames == [FRAME.tobytes()]
        assert mapped() == 3  # both ends of the new one, and what `kept` holds of the old one
        del kept
        assert mapped() == 2


def test_a_server_that_lost_its_sessions_gets_new_rings() -> None:
    with running() as server, ringed(wire_to(server)) as wire:
        server._peers._proven.clear()
        assert answer_of(wire.request("shard", READY, [FRAME])).frames == [FRAME.tobytes()]
        until(lambda: (watched(server), watched(wire)) == (1, 1))
        assert (server.counts.rings, wire.counts.rings) == (2, 2)


def test_a_client_beyond_the_most_peers_takes_its_rings_along() -> None:
    with running(limits=Limits(peers=1)) as server, ringed(wire_to(server)) as first, ringed(wire_to(server)):
        until(lambda: watched(first) == 0)
        assert watched(server) == 1


def test_a_client_that_proves_again_and_again_has_one_memory_at_the_server() -> None:
    with running() as server, Raw(server.address) as raw:
        offers = [OfferedMemory(PAGE) for _ in range(3)]
        for offered in offers:
            session, header = raw.prove(), offered.offer.encode()
            raw.send(envelope.sealed(session, envelope.OFFER, 0, header), header)
            assert raw.receive() is not None
        assert (watched(server), server.counts.rings) == (1, 3)
        for offered in offers:
            offered.close()


@pytest.mark.parametrize("kind", [envelope.PLACED_REQUEST, envelope.PLACED_ANSWER])
def test_a_message_that_the_socket_does_not_take_frees_its_slots(monkeypatch: pytest.MonkeyPatch, kind: bytes) -> None:
    send = zmq.Socket.send_multipart
    refused: list[bytes] = []

    def full_once(socket: Any, frames: list[Any], *settings: Any, **named: Any) -> Any:
        if not refused and any(bytes(frame[:1]) == kind for frame in frames[:2]):
            refused.append(kind)
            raise zmq.Again
        return send(socket, frames, *settings, **named)

    one, once = Limits(ring_bytes=PLACED_LEAST), RetryPolicy(first_s=0.5)  # one probe, on a busy machine too
    with running() as server, ringed(wire_to(server, retry=once, limits=one)) as wire:
        monkeypatch.setattr(zmq.Socket, "send_multipart", full_once)
        assert answer_of(wire.request("shard", READY, [FRAME])).frames == [FRAME.tobytes()]
        assert refused == [kind]
        assert (wire.counts.unsent, server.counts.replies_lost) == (int(kind == b"Q"), int(kind == b"A"))
        assert (wire.counts.resends, wire.counts.ring_full, server.counts.ring_full) == (1, 0, 0)


def test_a_client_that_closes_frees_the_memory_at_the_server() -> None:
    with running() as server:
        with ringed(wire_to(server)) as wire:
            assert (watched(server), watched(wire)) == (1, 1)
            wire.forget("shard")
            until(lambda: watched(server) == 0)
        until(lambda: mapped() == 0)


def test_a_server_that_closes_frees_the_memory_at_the_client() -> None:
    with RpcServer(security="key", key=KEY) as server:
        thread = threading.Thread(target=server.serve, args=(echo,))
        thread.start()
        with ringed(wire_to(server)) as wire:
            server.stop()
            thread.join()
            server.close()
            until(lambda: watched(wire) == 0)
            until(lambda: mapped() == 0)


def test_who_does_not_know_the_key_gets_no_ring() -> None:
    with running("off") as server:  # no door: its offer reaches the server
        with Raw(server.address, security="off") as raw:
            session = Session(b"x" * 32, is_client=True, macs=True)
            offered = OfferedMemory(PAGE)
            header = offered.offer.encode()
            raw.send(envelope.sealed(session, envelope.OFFER, 0, header), header)
            assert raw.receive() == [envelope.UNAUTHENTICATED]
            offered.close()
        assert (server.counts.rings, server.counts.refused_unproven) == (0, 1)
    with running() as server, Raw(server.address) as raw:
        raw.prove()
        forged = Session(OTHER_KEY.secret, is_client=True, macs=True)
        offered = OfferedMemory(PAGE)
        header = offered.offer.encode()
        raw.send(envelope.sealed(forged, envelope.OFFER, 0, header), header)
        assert raw.receive() == [envelope.UNAUTHENTICATED]
        offered.close()
        assert (server.counts.rings, server.counts.refused_mac) == (0, 1)


def test_a_peer_with_the_key_that_names_places_outside_is_told_and_the_server_goes_on() -> None:
    with running() as server, Raw(server.address) as raw:
        session, offered = raw.prove(), OfferedMemory(16 * PAGE)
        header = offered.offer.encode()
        raw.send(envelope.sealed(session, envelope.OFFER, 0, header), header)
        reply = raw.receive()
        assert reply is not None
        assert reply[1] == offered.memory.nonce
        ask = envelope.encode(READY)
        for number, place in enumerate([(0, 0, 16 * PAGE, 1), (0, 2**32 - 1, 0, 1), (9, 0, 0, 1)], 1):
            table = offered.offer.token + pack("<IIQQ", *place)
            raw.send(envelope.sealed(session, envelope.PLACED_REQUEST, number, ask, table=table), ask, table)
            told = raw.receive()
            assert told is not None
            assert b"shared memory" in told[1]
        raw.send(envelope.sealed(session, envelope.PLACED_REQUEST, 4, ask, table=bytes(40)), ask, bytes(40))
        raw.send(envelope.PLACED_REQUEST + bytes(16), b"")
        until(lambda: server.counts.stale_rings == 1 and server.counts.refused_mac == 1)
        assert (server.counts.refused_decode, server.counts.requests) == (3, 0)
        offered.close()
        with wire_to(server) as wire:
            assert answer_of(wire.request("shard", READY)).message == Done()


def test_a_reply_with_places_outside_is_a_fault_of_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    with running() as server, ringed(wire_to(server)) as wire:
        answer_of(wire.request("shard", READY, [FRAME]))
        place = Rings.place

        def elsewhere(rings: Rings, frames: list[memoryview]) -> object:
            placement = place(rings, frames)
            if placement is None or threading.current_thread().name == "hotrow-client":
                return placement
            return placement._replace(table=placement.table[:24] + b"\xff" * 16)

        monkeypatch.setattr(Rings, "place", elsewhere)
        with pytest.raises(RemoteFault, match="its answer cannot be read: a frame outside of the shared memory"):
            answer_of(wire.request("shard", READY, [FRAME]))
        monkeypatch.undo()
        assert answer_of(wire.request("shard", READY, [FRAME])).frames == [FRAME.tobytes()]
        assert wire.counts.refused_decode == 1


def test_a_system_that_gives_no_memory_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(os, "ftruncate", refuse)
    with caplog.at_level(logging.WARNING), running() as server, ringed(wire_to(server)) as wire:
        wire.connect("again", server.address)
        assert answer_of(wire.request("again", READY, [FRAME])).frames == [FRAME.tobytes()]
    (line,) = caplog.messages
    assert line.startswith("no shared memory of 2 x 67,108,864 bytes (Cannot allocate memory)")
    assert "Limits.ring_bytes" in line
