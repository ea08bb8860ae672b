"""Restarts, moves, silence, slowness, too much at once: what becomes of requests that are open."""

import pickle
import threading
import time
from concurrent.futures import Future

import pytest

from hotrow.errors import InputError
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.errors import PeerLost, RemoteFault
from hotrow.transport.limits import RetryPolicy
from hotrow.transport.messages import Done, QueryReply
from hotrow.transport.security import ClusterKey
from hotrow.transport.server import Request, RpcServer
from hotrow.types import Security
from unit.transport.parts import KEY, OTHER_KEY, READY, answer_of, echo, running, until, wire_to

ALL: tuple[Security, ...] = ("off", "key", "curve")
BRIEF = RetryPolicy(first_s=0.05, most_s=0.1, give_up_s=0.5)


@pytest.mark.parametrize("security", ALL)
def test_a_server_that_was_started_again_goes_on_with_what_is_open(security: Security) -> None:
    held: list[Request] = []
    with running(security, held.append) as server:
        wire = wire_to(server, security)
        futures = [wire.request("shard", READY, [b"first"], deadline=False) for _ in range(3)]
        until(lambda: len(held) == 3)
        address = server.address
    held.clear()
    with wire, running(security, bind=address) as server:
        assert all(answer_of(future).frames == [b"first"] for future in futures)
        assert (server.counts.requests, wire.counts.resends) == (3, 3)


def test_a_peer_that_moved_gets_what_is_open() -> None:
    held: list[Request] = []
    with running(handle=held.append) as old, running() as new, wire_to(old) as wire:
        future = wire.request("shard", READY, [b"first"])
        until(lambda: len(held) == 1)
        wire.connect("shard", old.address)  # where it is already: nothing changes
        wire.connect("shard", new.address)
        assert answer_of(future).frames == [b"first"]
        assert answer_of(wire.request("shard", READY, [b"second"])).frames == [b"second"]
        assert (old.counts.requests, new.counts.requests) == (1, 2)
        held.clear()


def test_a_dead_peer_is_lost_by_name_and_others_are_not() -> None:
    with running() as server, wire_to(server, retry=BRIEF) as wire:
        with RpcServer(security="key", key=KEY) as deaf:
            wire.connect("shard 7", deaf.address)
            lost = wire.request("shard 7", READY)
            assert answer_of(wire.request("shard", READY)).message == Done()
            with pytest.raises(PeerLost, match=r"shard 7 at tcp://127.0.0.1:.*nothing was heard for") as caught:
                answer_of(lost)
        assert (caught.value.name, caught.value.address) == ("shard 7", deaf.address)
        assert caught.value.seconds >= BRIEF.give_up_s
        assert answer_of(wire.request("shard", READY)).message == Done()


@pytest.mark.parametrize(
    "error", [PeerLost("shard 1", "tcp://h:1", 2.5, "silent"), RemoteFault("stale", "over", "shard")]
)
def test_what_is_raised_survives_the_way_to_another_process(error: PeerLost | RemoteFault) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_closing_does_not_wait_for_a_callback_that_connects() -> None:
    refused: list[Exception] = []

    def connect(_: object) -> None:
        try:
            wire.connect("other", server.address)
        except InputError as error:
            refused.append(error)

    with RpcServer(security="key", key=KEY) as server:
        wire = wire_to(server)
        wire.request("shard", READY).add_done_callback(connect)
        wire.close()
    assert len(refused) == 1


def test_without_a_deadline_an_ask_outlives_silence() -> None:
    with RpcServer(security="key", key=KEY) as server, wire_to(server, retry=BRIEF) as wire:
        patient = wire.request("shard", READY, deadline=False)
        with pytest.raises(PeerLost):
            answer_of(wire.request("shard", READY))
        assert not patient.done()
        thread = threading.Thread(target=server.serve, args=(echo,))
        thread.start()
        assert answer_of(patient).message == Done()
        server.stop()
        thread.join()


def test_a_slow_peer_is_not_lost_and_gets_the_frames_once() -> None:
    held: list[Request] = []
    with running(handle=held.append) as server, wire_to(server, retry=BRIEF) as wire:
        future = wire.request("shard", READY, [bytes(100_000)])
        until(lambda: wire.counts.probes >= 12)  # more than a second, with half a second of retry
        assert not future.done()
        held.pop().reply(Done())
        assert answer_of(future).message == Done()
        assert (server.counts.requests, wire.counts.resends) == (1, 0)


@pytest.mark.parametrize(("security", "key"), [("key", OTHER_KEY), ("curve", OTHER_KEY), ("curve", KEY), ("off", None)])
def test_a_wire_with_another_key_or_security_is_not_heard(security: Security, key: ClusterKey | None) -> None:
    heard: list[Request] = []
    with running(handle=heard.append) as server, RpcClient(security=security, key=key, retry=BRIEF) as wire:
        wire.connect("shard", server.address)
        with pytest.raises(PeerLost, match="same key and security"):
            answer_of(wire.request("shard", READY))
        assert (server.counts.requests, heard) == (0, [])


def test_forgetting_a_peer_fails_what_is_open() -> None:
    held: list[Request] = []
    with running(handle=held.append) as server, wire_to(server) as wire:
        future = wire.request("shard", READY, deadline=False)
        until(lambda: len(held) == 1)
        wire.forget("shard")
        with pytest.raises(PeerLost, match="it was forgotten with a request open"):
            answer_of(future)
        with pytest.raises(InputError, match="'shard': there is no such peer"):
            wire.request("shard", READY)
        with pytest.raises(InputError, match="'shard': there is no such peer"):
            wire.forget("shard")
        held.pop().reply(Done())  # to nobody; a new connection under the same name does not get it
        wire.connect("shard", server.address)
        again = wire.request("shard", READY)
        until(lambda: len(held) == 1)
        held.pop().reply(QueryReply("shard", {}))
        assert answer_of(again).message == QueryReply("shard", {})


def test_closing_fails_what_is_open_and_a_closed_wire_says_so() -> None:
    with RpcServer(security="key", key=KEY) as server:
        wire = wire_to(server)
        future = wire.request("shard", READY, deadline=False)
        wire.close()
        wire.close()
        with pytest.raises(PeerLost, match="the client was closed"):
            answer_of(future)
        for use in (lambda: wire.request("shard", READY), lambda: wire.connect("other", server.address)):
            with pytest.raises(InputError, match="this client is closed"):
                use()


def test_too_many_open_asks_make_the_next_one_wait() -> None:
    held: list[Request] = []
    with running(handle=held.append) as server, wire_to(server, most_open=3) as wire:
        futures: list[Future[Answer]] = []
        asking = threading.Thread(target=lambda: futures.extend(wire.request("shard", READY) for _ in range(5)))
        asking.start()
        until(lambda: len(held) == 3)
        time.sleep(0.05)
        assert (len(held), asking.is_alive()) == (3, True)
        for number in range(5):
            until(lambda number=number: len(held) > number)  # type: ignore[misc]
            held[number].reply(Done())
        asking.join()
        assert [answer_of(future).message for future in futures] == [Done()] * 5


def test_waiting_for_room_ends_with_a_dead_peer() -> None:
    with RpcServer(security="key", key=KEY) as server, wire_to(server, retry=BRIEF, most_open=1) as wire:
        wire.request("shard", READY, deadline=False)
        with pytest.raises(PeerLost, match="1 requests are open and nothing was heard"):
            wire.request("shard", READY)


def test_a_callback_may_ask_again_however_much_is_open() -> None:
    second: list[Future[Answer]] = []
    with running() as server, wire_to(server, most_open=1) as wire:
        first = wire.request("shard", READY)
        first.add_done_callback(lambda _: second.extend(wire.request("shard", READY) for _ in range(3)))
        until(lambda: len(second) == 3)
        assert [answer_of(each).message for each in second] == [Done()] * 3


def test_a_delay_is_kept_each_way_and_messages_overlap() -> None:
    held: list[Request] = []

    def handle(request: Request) -> None:
        held.append(request)
        if len(held) == 30:  # nobody is answered before all have asked
            for each in held:
                echo(each)

    with running(handle=handle) as server, wire_to(server, retry=RetryPolicy(), delay_s=0.05) as wire:
        began = time.monotonic()
        futures = [wire.request("shard", READY, [bytes([number])]) for number in range(30)]
        answers = [bytes(answer_of(future).frames[0])[0] for future in futures]
        assert answers == list(range(30))
        assert time.monotonic() - began >= 4 * 0.05  # a handshake and a request


def test_what_is_still_delayed_when_a_peer_is_forgotten_does_no_harm() -> None:
    with running() as server, wire_to(server, retry=RetryPolicy(), delay_s=0.1) as wire:
        future = wire.request("shard", READY)
        until(lambda: server.counts.bytes_out > 0)  # the answer is on its way, or held back
        wire.forget("shard")
        with pytest.raises(PeerLost, match="it was forgotten"):
            answer_of(future)
        wire.connect("shard", server.address)
        assert answer_of(wire.request("shard", READY)).message == Done()


def test_a_near_peer_is_talked_to_without_the_delay() -> None:
    with running() as far, running() as near, wire_to(far, retry=RetryPolicy(), delay_s=30.0) as wire:
        wire.connect("trainer", near.address, near=True)
        waiting = wire.request("shard", READY)
        assert answer_of(wire.request("trainer", READY)).message == Done()
        assert not waiting.done()
