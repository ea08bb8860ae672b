"""Messages without a reply: they arrive once or never, in order, and nothing waits for them."""

import numpy as np
import pytest

from hotrow.errors import InputError
from hotrow.transport import envelope
from hotrow.transport.client import RpcClient
from hotrow.transport.envelope import decode, encode
from hotrow.transport.messages import BatchesDue, LoadAhead, Message, Query, RowBlockHeader
from hotrow.transport.peers import OneWay, Peers, Refused
from hotrow.types import Security
from unit.transport.parts import KEY, READY, running, until
from unit.transport.test_wire_conversation import Talk

HINT = LoadAhead((RowBlockHeader("t", 3, 4, keys=True),))


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[tuple[Message, list[bytes]]] = []

    def __call__(self, message: Message, frames: list[memoryview]) -> None:
        if isinstance(message, Query):
            raise InputError("not this one")
        if isinstance(message, BatchesDue):
            raise ArithmeticError("a bug")
        self.messages.append((message, [bytes(frame) for frame in frames]))


def client_of(security: Security) -> RpcClient:
    return RpcClient(security=security, key=None if security == "off" else KEY)


@pytest.mark.parametrize("message", [HINT, LoadAhead(()), BatchesDue(1, 2, 3)])
def test_headers_survive_the_way(message: Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize("security", ["off", "key", "curve"])
@pytest.mark.parametrize("nbytes", [0, 24, 1 << 20], ids=["empty", "small", "in a ring"])
def test_messages_arrive_once_and_in_order_between_requests(security: Security, nbytes: int) -> None:
    heard, frame = Heard(), np.arange(nbytes, dtype=np.uint8)
    with running(security, take=heard) as server, client_of(security) as client:
        client.connect("shard", server.address)
        client.request("shard", READY).result(20)  # the connection is there
        for _ in range(5):
            client.send_one_way("shard", HINT, [frame])
            client.request("shard", READY).result(20)
        assert heard.messages == [(HINT, [frame.tobytes()])] * 5
        assert (server.counts.one_way, server.counts.requests) == (5, 6)
        assert (client.counts.one_way, client.counts.one_way_unsent) == (5, 0)


def test_without_a_connection_a_message_is_dropped_and_counted_and_later_ones_arrive() -> None:
    heard = Heard()
    with running(take=heard) as server, client_of("key") as client:
        client.connect("shard", "tcp://127.0.0.1:9")
        client.send_one_way("shard", HINT, [b"lost"])
        until(lambda: client.counts.one_way_unsent == 1)
        client.connect("shard", server.address)
        client.request("shard", READY).result(20)
        client.send_one_way("shard", HINT, [b"here"])
        client.request("shard", READY).result(20)
        assert heard.messages == [(HINT, [b"here"])]
        with pytest.raises(InputError, match="there is no such peer"):
            client.send_one_way("nobody", HINT)


def test_a_message_that_is_refused_is_counted_and_the_server_goes_on() -> None:
    heard = Heard()
    with running(take=heard) as server, client_of("key") as client:
        client.connect("shard", server.address)
        client.request("shard", READY).result(20)
        for message in (READY, BatchesDue(1, 0, 0), HINT):
            client.send_one_way("shard", message)
        client.request("shard", READY).result(20)
        assert heard.messages == [(HINT, [])]
        assert (server.counts.one_way, server.counts.refused_one_way) == (3, 2)


def test_a_role_that_takes_none_refuses_all() -> None:
    with running() as server, client_of("key") as client:
        client.connect("shard", server.address)
        client.request("shard", READY).result(20)
        client.send_one_way("shard", HINT)
        client.request("shard", READY).result(20)
        assert (server.counts.one_way, server.counts.refused_one_way) == (1, 1)


def test_a_lost_message_is_not_sent_again() -> None:
    talk = Talk()
    talk.request(1)
    talk.step()
    assert talk.answered == [1]
    talk.drops = lambda: True
    talk.connection.send_one_way(encode(HINT), ())
    talk.step()
    talk.drops = lambda: False
    talk.step(100)
    assert talk.connection.outbox == []
    assert talk.counts.one_way == 1


def test_a_message_without_a_session_or_that_comes_twice_is_refused() -> None:
    talk = Talk()
    talk.request(1)
    talk.step()
    talk.connection.send_one_way(encode(HINT), envelope.lent([b"12345678"]))
    frames = list(envelope.lent(talk.connection.outbox.pop().frames))
    assert isinstance(Peers(KEY, talk.limits, macs=True).receive(b"me", frames), Refused)
    altered = [*frames[:-1], memoryview(b"1234")]
    assert talk.peers.receive(b"me", altered) == Refused("mac", envelope.UNAUTHENTICATED)
    first = talk.peers.receive(b"me", frames)
    assert isinstance(first, OneWay)
    assert decode(first.opened.header) == HINT
    assert talk.peers.receive(b"me", frames) == Refused("mac", envelope.UNAUTHENTICATED)
