"""A server that is sent nonsense by the hundred thousand, by strangers and by those who know the key, and goes on.

Every message is accounted for: handled, or refused and counted. 100,000 in the suite, a million with --slow.
"""

import random
import socket
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from hotrow.transport import envelope
from hotrow.transport.client import RpcClient
from hotrow.transport.frames import RowBlock, frames_of, pack, unpack
from hotrow.transport.limits import Limits
from hotrow.transport.messages import (
    ApplyOrder,
    Arrival,
    Done,
    Exchange,
    Export,
    Message,
    OrderPart,
    Perform,
    Policy,
    PullRows,
    PushRows,
    Query,
    QueryReply,
    RowBlockHeader,
    Stop,
)
from hotrow.transport.server import Request, RpcServer
from hotrow.types import Security
from unit.transport.parts import HASTY, KEY, LONG_S, READY, Raw, running, sealed_ask, until

DIMS = {"item": 4, "user": 2}
LIMITS = Limits(frame_bytes=1 << 20, frames=16)
ROUND = 50  # messages between looks at what came back
SIZES = [pytest.param(1, id="100k"), pytest.param(10, id="1M", marks=pytest.mark.slow)]


def handle(request: Request) -> None:
    """As a shard does: what decodes is checked against its frames before anything is made of it."""
    match request.message:
        case Exchange(push=push, pull=pull):
            pushed = () if push is None else push.blocks
            split = frames_of(pushed)
            unpack(pushed, request.frames[:split], DIMS)
            unpack(() if pull is None else pull.blocks, request.frames[split:], DIMS)
    request.reply(Done())


def valid_messages() -> list[tuple[Message, list[bytes]]]:
    """Some of each kind, with the frames that belong to them."""
    keys, values = np.arange(7, dtype=np.uint64), np.ones((7, 4), np.float32)
    blocks, frames = pack([RowBlock("item", keys, values, np.arange(7, dtype=np.uint32))], "fp16-scaled")
    push = PushRows(1, 0, 2, 3, 64, blocks, Arrival(64, 1.0, 0.5))
    pull = PullRows(0, 64, True, True, "fp32", (RowBlockHeader("user", 3, 2, True),))
    data = [bytes(frame) for frame in frames]
    part = OrderPart(1, 2, 3, 64, 1.0)
    return [
        (Exchange(1, push, pull), [*data, bytes(24)]),
        (Exchange(1, push), data),
        (Exchange(1, None, pull), [bytes(24)]),
        (Perform(1, 2, (ApplyOrder("both", 1, 64, 1.0, (part, part)),), (1, 2)), []),
        (Policy(1, 2, "batch", '{"name": "cutoff"}'), []),
        (Export("item", 0, 100), []),
        (QueryReply("shard", {"rows": 1.0}), []),
        (Query("status"), []),
        (Stop(), []),
    ]


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bits turned, pieces cut, doubled or put in, counts made giant."""
    what = chance.randrange(6)
    place = chance.randrange(len(data) + 1)
    if what == 0:
        return data[:place]
    if what == 1:
        return data[:place] + chance.randbytes(chance.randrange(1, 9)) + data[place:]
    if what == 2:
        return data[:place] + data[chance.randrange(len(data) + 1) :]
    if what == 3:  # arrays, maps, strings and numbers that claim to be as large as can be
        giant = chance.choice([b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xcf\xff\xff\xff\xff", b"\xc9"])
        return data[:place] + giant + b"\xff\xff\xff\xff" + data[place:]
    changed = bytearray(data or b"\0")
    for _ in range(1 if what == 4 else 4):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def of_strangers(chance: random.Random, recorded: list[list[bytes]]) -> Iterator[list[bytes]]:
    """Random frames, and recorded messages with one frame changed, left out or doubled."""
    while True:
        if chance.random() < 0.4:
            kinds = [chance.randbytes(1), chance.choice([b"h", b"p", b"q", b"?", b"c", b"w", b""])]
            first = chance.choice(kinds) + chance.randbytes(chance.choice([0, 8, 24, 32, 33, 64, 96, 300]))
            yield [first, *(chance.randbytes(chance.randrange(100)) for _ in range(chance.choice([0, 0, 1, 2, 20])))]
            continue
        frames = list(chance.choice(recorded))
        place = chance.randrange(len(frames))
        how = chance.randrange(4)
        if how == 0 and len(frames) > 1:
            del frames[place]
        elif how == 1:
            frames.insert(place, frames[place])
        else:
            frames[place] = mutated(frames[place], chance)
        yield frames


def still_answers(server: RpcServer, security: Security) -> bool:
    with RpcClient(security=security, key=KEY, retry=HASTY, limits=LIMITS) as wire:
        wire.connect("shard", server.address)
        return wire.request("shard", READY).result(LONG_S).message == Done()


def accounted(server: RpcServer) -> int:
    counts = server.counts
    refused = counts.refused_unproven + counts.refused_mac + counts.refused_decode + counts.refused_busy
    return counts.requests + counts.repeated + refused


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("proven", [False, True], ids=["unproven", "proven"])
def test_frames_of_somebody_who_cannot_seal_are_all_refused(proven: bool, times: int) -> None:
    """One who listened to a whole conversation, at the door only or on a connection that somebody else proved."""
    chance = random.Random(f"stranger {proven}")
    handled: list[Request] = []
    with (
        running(handle=handled.append, limits=LIMITS) as server,
        Raw(server.address) as peer,
        Raw(server.address) as past,
    ):
        session = past.prove()
        recorded = [sealed_ask(session, number, *said) for number, said in enumerate(valid_messages(), 1)]
        recorded += [[envelope.HELLO + bytes(32)], [envelope.PROOF + bytes(32)]]
        if proven:
            peer.prove()
        hellos = send_all(peer, of_strangers(chance, recorded), 25_000 * times)
        until(lambda: accounted(server) == 25_000 * times - hellos)
        assert handled == []
        assert still_answers_after(server, handled)
        assert max(server._peers.sizes) <= 3


def still_answers_after(server: RpcServer, handled: list[Request]) -> bool:
    """Whether a good client is heard by a server that only collects."""
    with RpcClient(security="key", key=KEY, retry=HASTY, limits=LIMITS) as wire:
        wire.connect("shard", server.address)
        future = wire.request("shard", READY)
        until(lambda: len(handled) == 1)
        handled[0].reply(Done())
        return future.result(LONG_S).message == Done()


def send_all(peer: Raw, messages: Iterator[list[bytes]], count: int) -> int:
    """Send so many; gives back how many of them were a proper hello, which is answered and no fault."""
    hellos = 0
    for number in range(count):
        frames = next(messages)
        hellos += len(frames) == 1 and len(frames[0]) == 33 and frames[0][:1] == envelope.HELLO
        peer.send(*frames)
        if number % ROUND == 0:
            peer.drain()
    return hellos


@pytest.mark.parametrize("times", SIZES)
@pytest.mark.parametrize("security", ["off", "key"])
def test_fuzzed_headers_of_a_proven_peer_are_answered_with_a_fault(security: Security, times: int) -> None:
    chance, valid = random.Random(f"proven {security}"), valid_messages()
    count = 25_000 * times
    with running(security, handle, limits=LIMITS) as server, Raw(server.address, security=security) as peer:
        session, answers = peer.prove(), 0
        for number in range(1, count + 1):
            message, frames = chance.choice(valid)
            header = envelope.encode(message)
            if chance.random() < 0.9:
                header = mutated(header, chance)
            if chance.random() < 0.3:
                frames = [mutated(frame, chance) for frame in frames[: chance.randrange(len(frames) + 1)]]
            peer.send(*sealed_ask(session, number, header, frames))
            while number - answers > ROUND:  # the order of asks is kept: as many answers as asks
                assert peer.receive() is not None, f"no answer to one of the last {ROUND} before {number}"
                answers += 1
        while answers < count:
            assert peer.receive() is not None
            answers += 1
        assert accounted(server) == count
        assert server.counts.refused_mac == server.counts.refused_unproven == server.counts.replies_lost == 0
        assert min(server.counts.refused_decode, server.counts.requests, server.counts.faults) > count // 50
        assert still_answers(server, security)


@pytest.mark.parametrize("security", ["off", "key", "curve"])
def test_bytes_on_a_bare_connection_do_no_harm(security: Security) -> None:
    chance = random.Random(f"bytes {security}")
    with running(security, handle, limits=LIMITS) as server:
        host, port = server.address.removeprefix("tcp://").split(":")
        for _ in range(200):
            with socket.create_connection((host, int(port))) as stranger, suppress(ConnectionError):
                stranger.sendall(greeting(chance))  # it may be thrown out before it has finished
        assert still_answers(server, security)


def greeting(chance: random.Random) -> bytes:
    """The start of a ZMTP conversation, right up to some place and then not."""
    mechanism = chance.choice([b"NULL", b"PLAIN", b"CURVE", chance.randbytes(4)])
    start = b"\xff" + bytes(8) + b"\x7f\x03" + bytes([chance.randrange(2)]) + mechanism.ljust(20, b"\0") + bytes(32)
    command = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
    rest = b"\x04" + bytes([len(command)]) + command + b"\x01\x04abcd\x00\x02ef" * 3
    hello = b"\x05HELLO\x06hotrow" + bytes([64]) + b"f" * 64
    whole = start + (rest if mechanism == b"NULL" else b"\x04" + bytes([len(hello)]) + hello + rest)
    return mutated(whole, chance) if chance.random() < 0.8 else whole
