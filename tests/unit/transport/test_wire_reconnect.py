"""A connection that breaks between a request and its answer: what was asked has effect once, and is answered."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hotrow.transport.client import RpcClient
from hotrow.transport.client_loop import ClientLoop, PeerConnection
from hotrow.transport.messages import Done, Fault
from hotrow.transport.pending import PendingRequest
from hotrow.transport.server import Request
from hotrow.types import Security
from unit.transport.cable import Cable
from unit.transport.parts import HASTY, KEY, LONG_S, READY, running, until

ALL: tuple[Security, ...] = ("off", "key", "curve")


def wire_through(cable: Cable, security: Security) -> RpcClient:
    wire = RpcClient(security=security, key=KEY, retry=HASTY)
    wire.connect("trainer", cable.address)
    return wire


@pytest.mark.parametrize("security", ALL)
def test_an_ask_in_hand_is_not_handled_again_and_its_answer_goes_to_the_new_connection(security: Security) -> None:
    held: list[Request] = []
    with (
        running(security, held.append) as server,
        Cable(server.address) as cable,
        wire_through(cable, security) as wire,
    ):
        asked = wire.request("trainer", READY, [b"a batch"])
        until(lambda: len(held) == 1)
        cable.cut()
        until(lambda: wire.counts.handshakes == 2)
        until(lambda: server.counts.repeated == 1)  # it came again, as the wire cannot know
        assert (len(held), cable.connections) == (1, 2)
        held[0].reply(Done(), [b"computed"])
        assert [bytes(frame) for frame in asked.result(LONG_S).frames] == [b"computed"]
        assert (server.counts.requests, server.counts.replies_lost) == (1, 0)


@pytest.mark.parametrize("security", ALL)
def test_an_answer_that_was_lost_is_given_again_and_nothing_is_done_twice(security: Security) -> None:
    handled: list[bytes] = []

    def handle(request: Request) -> None:
        handled.append(bytes(request.frames[0]))
        request.reply(Done(), [b"done " + handled[-1]])

    with (
        running(security, handle) as server,
        Cable(server.address) as cable,
        wire_through(cable, security) as wire,
    ):
        wire.request("trainer", READY, [b"first"]).result(LONG_S)
        cable.deaf = True
        asked = [wire.request("trainer", READY, [name]) for name in (b"second", b"third")]
        until(lambda: len(handled) == 3)
        until(lambda: cable.lost > 0)
        cable.cut()
        cable.deaf = False
        assert [bytes(each.result(LONG_S).frames[0]) for each in asked] == [b"done second", b"done third"]
        assert handled == [b"first", b"second", b"third"]
        assert server.counts.again >= 2  # and more often where somebody probed meanwhile
        assert wire.counts.handshakes == 2


def test_a_fault_is_given_again_but_not_that_there_was_no_room() -> None:
    kinds: list[str] = []

    def handle(request: Request) -> None:
        kinds.append("busy" if len(kinds) < 3 else "input")
        request.reply(Fault(kinds[-1], "told"))  # type: ignore[arg-type]

    with running("off", handle) as server, Cable(server.address) as cable, wire_through(cable, "off") as wire:
        assert wire.request("trainer", READY).exception(LONG_S) is not None
        assert (kinds, wire.counts.busy, server.counts.busy) == (["busy"] * 3 + ["input"], 3, 3)
        cable.deaf = True
        asked = wire.request("trainer", READY)
        until(lambda: len(kinds) == 5)
        cable.cut()
        cable.deaf = False
        assert asked.exception(LONG_S) is not None
        assert (len(kinds), server.counts.faults) == (5, 2)
        assert server.counts.again >= 1


def test_two_connections_of_one_wire_are_two() -> None:
    with running("off") as server, RpcClient(security="off", retry=HASTY) as wire:
        for name in ("one", "other"):
            wire.connect(name, server.address)
        asked = [wire.request(name, READY, [name.encode()]) for name in ("one", "other") * 5]
        assert [bytes(each.result(LONG_S).frames[0]) for each in asked] == [b"one", b"other"] * 5
        assert (server.counts.requests, server.counts.again, server.counts.repeated) == (10, 0, 0)


def test_asks_of_several_threads_go_out_in_the_order_of_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lower number after a higher one would be taken for an old copy of something answered long ago."""
    numbers: list[int] = []
    put = ClientLoop.put

    def put_slowly(loop: ClientLoop, peer: PeerConnection, request: PendingRequest) -> None:
        if request.number < 5:
            time.sleep(0.02)  # whoever is next could overtake it here
        numbers.append(request.number)
        put(loop, peer, request)

    monkeypatch.setattr(ClientLoop, "put", put_slowly)
    with running("off") as server, RpcClient(security="off") as wire, ThreadPoolExecutor(4) as threads:
        wire.connect("shard", server.address)
        for asked in threads.map(lambda _: wire.request("shard", READY), range(20)):
            asked.result(LONG_S)
        assert numbers == list(range(1, 21))
        assert (server.counts.requests, server.counts.repeated) == (20, 0)
