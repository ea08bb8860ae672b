"""Server and wire over real sockets, under every security."""

import logging
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from hotrow.errors import ConfigError, InputError, SegmentError
from hotrow.transport.client import Answer, Outcome, RpcClient
from hotrow.transport.errors import RemoteFault
from hotrow.transport.limits import Limits, RetryPolicy
from hotrow.transport.messages import Done, Fault, Query, QueryReply, Stop
from hotrow.transport.server import Request, RpcServer
from hotrow.types import Security
from unit.transport.parts import KEY, READY, answer_of, echo, running, until, wire_to

ALL: tuple[Security, ...] = ("off", "key", "curve")


@pytest.mark.parametrize("security", ALL)
def test_frames_go_there_and_back_as_they_are(security: Security) -> None:
    large = np.random.default_rng(0).integers(0, 256, 1_000_000, dtype=np.uint8)
    frames = [b"", b"abc", large, np.arange(6, dtype=np.float32).reshape(2, 3), torch.arange(5), np.empty((0, 4))]
    with running(security) as server, wire_to(server, security, RetryPolicy()) as wire:  # no probes: bytes are counted
        answer = answer_of(wire.request("shard", READY, frames))
        assert answer.message == Done()
        back = [bytes(frame) for frame in answer.frames]
        assert back == [np.asarray(frame).tobytes() if not isinstance(frame, bytes) else frame for frame in frames]
        assert np.array_equal(np.frombuffer(answer.frames[2], np.uint8), large)
        sent = 1_000_000 + 3 + 24 + 40
        assert sent < server.counts.bytes_in < sent + 100
        offer = {"off": 57, "key": 73, "curve": 0}[security]
        assert server.counts.bytes_in == wire.counts.bytes_out - (33 + 49 + offer)  # less hello, proof and offer
        assert (server.counts.requests, wire.counts.answers, wire.counts.handshakes) == (1, 1, 1)


@pytest.mark.parametrize("security", ALL)
def test_many_asks_of_many_threads_find_their_answers(security: Security) -> None:
    def told(request: Request) -> None:
        request.reply(QueryReply("shard", {"first": float(request.frames[0][0])}))

    def ask_all(wire: RpcClient, number: int, seen: list[float]) -> None:
        answers = [answer_of(wire.request("shard", READY, [bytes([number])])).message for _ in range(30)]
        seen += [each.figures["first"] for each in answers if isinstance(each, QueryReply)]

    with running(security, told) as server, wire_to(server, security) as wire:
        seen: list[list[float]] = [[] for _ in range(4)]
        threads = [threading.Thread(target=ask_all, args=(wire, number, seen[number])) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == [[float(number)] * 30 for number in range(4)]


def test_answers_may_come_from_other_threads_later_and_out_of_order() -> None:
    held: list[Request] = []
    with running(handle=held.append) as server, wire_to(server) as wire:
        futures = [wire.request("shard", READY) for _ in range(3)]
        until(lambda: len(held) == 3)
        for number in (2, 0, 1):
            held[number].reply(QueryReply("shard", {"number": number}))
            assert answer_of(futures[number]).message == QueryReply("shard", {"number": number})
        with pytest.raises(InputError, match="a second reply to one Query"):
            held[0].reply(Done())


def test_a_reply_without_a_future_goes_to_its_callback_and_so_does_a_refusal() -> None:
    def refused(request: Request) -> None:
        raise InputError("no such table")

    outcomes: list[Outcome] = []
    with running(handle=refused) as unwilling, wire_to(unwilling) as wire:
        wire.send("shard", READY, (), outcomes.append)
        until(lambda: len(outcomes) == 1)
    with running() as server, wire_to(server) as wire:
        wire.send("shard", READY, [b"abc"], outcomes.append)
        until(lambda: len(outcomes) == 2)
    error, reply = outcomes
    assert isinstance(error, RemoteFault)
    assert error.sentence == "no such table"
    assert isinstance(reply, Answer)
    assert [bytes(frame) for frame in reply.frames] == [b"abc"]


def test_a_callback_that_raises_is_logged_and_the_client_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def fail(outcome: Outcome) -> None:
        raise ValueError("a fault of the caller")

    with running() as server, wire_to(server) as wire, caplog.at_level(logging.ERROR, "hotrow.transport"):
        wire.send("shard", READY, (), fail)
        assert answer_of(wire.request("shard", READY)).message == Done()
    assert "a callback for the reply of shard failed" in caplog.text
    assert "a fault of the caller" in caplog.text


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (InputError("rows=3: too few"), "input", "rows=3: too few"),
        (ConfigError("dim=0: too small"), "config", "dim=0: too small"),
        (SegmentError("no room"), "internal", "no room"),
        (KeyError("slip"), "internal", "an error in handling Query, see the log of shard 3: KeyError: 'slip'"),
    ],
)
def test_what_a_handler_raises_is_told_and_the_server_goes_on(
    error: Exception, kind: str, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(request: Request) -> None:
        if request.frames:
            raise error
        echo(request)

    with running(handle=handle, name="shard 3") as server, wire_to(server) as wire:
        with caplog.at_level(logging.ERROR), pytest.raises(RemoteFault) as caught:
            answer_of(wire.request("shard", READY, [b"bad"]))
        assert (caught.value.kind, caught.value.sentence, caught.value.peer) == (kind, sentence, "shard")
        assert answer_of(wire.request("shard", READY)).message == Done()
        assert server.counts.faults == 1
        assert bool(caplog.records) is isinstance(error, KeyError)


def test_an_error_after_the_answer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def handle(request: Request) -> None:
        request.reply(Done())
        raise InputError("too late")

    with running(handle=handle) as server, wire_to(server) as wire:
        assert answer_of(wire.request("shard", READY)).message == Done()
        until(lambda: bool(caplog.records))
        assert "after the reply to Query" in caplog.text


def test_a_request_that_is_dropped_answers_for_itself() -> None:
    with running(handle=lambda request: None) as server, wire_to(server) as wire:
        with pytest.raises(RemoteFault, match="the Query was dropped without an answer"):
            answer_of(wire.request("shard", READY))
        assert server.counts.faults == 1


def test_a_fault_can_be_answered_as_such() -> None:
    with (
        running(handle=lambda request: request.reply(Fault("stale", "incarnation 3 is over"))) as server,
        wire_to(server) as wire,
        pytest.raises(RemoteFault, match="shard: incarnation 3 is over") as caught,
    ):
        answer_of(wire.request("shard", READY))
    assert caught.value.kind == "stale"


def test_what_is_too_large_is_refused_before_it_is_sent() -> None:
    limits = Limits(frame_bytes=2000, frames=4)

    def handle(request: Request) -> None:
        request.reply(Done(), [bytes(len(request.frames[0]) + 1)] if request.frames else [b""] * 3)

    with running(handle=handle, limits=limits) as server, wire_to(server, limits=limits) as wire:
        assert answer_of(wire.request("shard", READY, [bytes(1999), b""])).frames[0].nbytes == 2000
        with pytest.raises(InputError, match="2,001 bytes: at most 2,000"):
            wire.request("shard", READY, [bytes(2001)])
        with pytest.raises(InputError, match="5 frames: at most 4"):
            wire.request("shard", READY, [b""] * 3)
        with pytest.raises(RemoteFault, match="2,001 bytes: at most 2,000"):
            answer_of(wire.request("shard", READY, [bytes(2000)]))
        with pytest.raises(RemoteFault, match="5 frames: at most 4"):
            answer_of(wire.request("shard", READY))


@pytest.mark.parametrize("frame", [np.zeros((4, 4))[:, ::2], 5, torch.zeros(3, dtype=torch.bfloat16)])
def test_what_lends_no_plain_memory_is_refused(frame: object) -> None:
    with RpcClient(security="off") as wire, pytest.raises(InputError, match="frame"):
        wire.request("shard", READY, [frame])


def test_stop_lets_the_last_answer_out() -> None:
    with RpcServer(security="key", key=KEY) as server:

        def handle(request: Request) -> None:
            request.reply(Done())
            if isinstance(request.message, Stop):
                server.stop()

        thread = threading.Thread(target=server.serve, args=(handle,))
        thread.start()
        with wire_to(server) as wire:
            assert answer_of(wire.request("shard", Stop())).message == Done()
            thread.join()


def test_close_inside_a_handler_is_refused() -> None:
    with (
        running(handle=lambda request: server.close()) as server,
        wire_to(server) as wire,
        pytest.raises(RemoteFault, match="call stop"),
    ):
        answer_of(wire.request("shard", READY))


def test_an_answer_to_who_is_gone_is_counted() -> None:
    held: list[Request] = []
    with running(handle=held.append) as server:
        with wire_to(server) as wire:
            wire.request("shard", READY)
            until(lambda: len(held) == 1)

        def answered_nobody() -> bool:
            held[0]._once[:] = [True]  # try until the socket has noticed that the peer is gone
            held[0].reply(Done())
            return server.counts.replies_lost > 0

        until(answered_nobody)


def test_a_process_that_closes_nothing_ends_all_the_same(tmp_path: Path) -> None:
    program = tmp_path / "careless.py"
    program.write_text(
        "import threading\n"
        "from hotrow.transport.messages import Done, Query\n"
        "from hotrow.transport.security import ClusterKey\n"
        "from hotrow.transport.server import RpcServer\n"
        "from hotrow.transport.client import RpcClient\n"
        "key = ClusterKey.generate()\n"
        "server = RpcServer(security='key', key=key)\n"
        "threading.Thread(target=server.serve, args=(lambda request: request.reply(Done()),), daemon=True).start()\n"
        "wire = RpcClient(security='key', key=key)\n"
        "wire.connect('shard', server.address)\n"
        "print(wire.request('shard', Query('ready')).result(60).message)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "Done()\n"


def test_nothing_is_left_behind() -> None:
    before = threading.active_count()
    with running() as server, wire_to(server) as wire:
        answer_of(wire.request("shard", Query("status")))
    assert server._context.closed
    assert wire._context.closed
    collector = 1 if any("Garbage" in type(each).__name__ for each in threading.enumerate()) else 0  # pyzmq's own
    assert threading.active_count() <= before + collector
