"""A network that loses messages: everything is answered all the same, and answers that come twice are dropped."""

import random
import re
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import TracebackType

import pytest
import zmq

from hotrow.transport import client_loop
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Done
from hotrow.transport.server import Request
from unit.transport.parts import HASTY, LONG_S, READY, running, until


class Proxy:
    """Between a wire and a server, without security: says how often each message there or back is passed on."""

    def __init__(self, target: str, *, there: Callable[[], int], back: Callable[[], int]) -> None:
        self._there, self._back, self._target = there, back, target
        self._context = zmq.Context()
        self._front = self._context.socket(zmq.ROUTER)
        self._front.linger = 0
        self.address = f"tcp://127.0.0.1:{self._front.bind_to_random_port('tcp://127.0.0.1')}"
        self._backs: dict[bytes, zmq.Socket[bytes]] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            if self._front.poll(5):
                who, *frames = self._front.recv_multipart()
                if who not in self._backs:
                    self._backs[who] = self._context.socket(zmq.DEALER)
                    self._backs[who].linger = 0
                    self._backs[who].connect(self._target)
                for _ in range(self._there()):
                    self._backs[who].send_multipart(frames)
            for who, back in self._backs.items():
                while back.poll(0):
                    frames = back.recv_multipart()
                    for _ in range(self._back()):
                        self._front.send_multipart([who, *frames])

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._context.destroy(linger=0)


def test_lost_asks_and_lost_answers_are_looked_after() -> None:
    chance = random.Random(7)

    def mostly() -> int:
        return int(chance.random() > 0.25)

    handled: list[int] = []

    def handle(request: Request) -> None:
        handled.append(request.frames[0][0])
        request.reply(Done(), [bytes(request.frames[0])])

    with (
        running("off", handle) as server,
        Proxy(server.address, there=mostly, back=mostly) as proxy,
        RpcClient(security="off", retry=HASTY) as wire,
    ):
        wire.connect("shard", proxy.address)
        futures = [wire.request("shard", READY, [bytes([number])]) for number in range(40)]
        assert [bytes(future.result(LONG_S).frames[0])[0] for future in futures] == list(range(40))
        assert wire.counts.resends > 0
        assert set(handled) == set(range(40))
        assert wire.counts.unexpected == 0


def test_answers_that_come_twice_are_used_once() -> None:
    with (
        running("off") as server,
        Proxy(server.address, there=lambda: 1, back=lambda: 2) as proxy,
        RpcClient(security="off", retry=HASTY) as wire,
    ):
        wire.connect("shard", proxy.address)
        for number in range(20):
            answer = wire.request("shard", READY, [bytes([number])]).result(LONG_S)
            assert answer.frames == [bytes([number])]
        assert (server.counts.requests, wire.counts.answers) == (20, 20)
        until(
            lambda: wire.counts.refused_mac >= 20
        )  # the order of a session is kept without MACs too; an offer counts too


def test_a_shard_that_is_silent_is_told_once_and_one_that_holds_a_request_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client_loop, "LATE_S", 0.4)
    held: list[Request] = []
    passed = {"shard 0": 1, "shard 1": 1, "trainer 0": 1}
    with (
        running("off", held.append) as server,
        ExitStack() as stack,
        RpcClient(security="off", retry=HASTY) as wire,
    ):
        for name in passed:
            pass_on = partial(passed.__getitem__, name)
            proxy = stack.enter_context(Proxy(server.address, there=pass_on, back=pass_on))
            wire.connect(name, proxy.address)
            wire.request(name, READY)
        until(lambda: len(held) == 3)
        passed |= {"shard 1": 0, "trainer 0": 0}
        until(lambda: "answers late" in caplog.text)
        before = wire.counts.probes
        until(lambda: wire.counts.probes > before + 12)  # some pauses later
        (told,) = (each.getMessage() for each in caplog.records)
        assert re.fullmatch(
            r"shard 1 at tcp://\S+ answers late: nothing was heard from it for 0\.\d s, with 1 requests open: "
            r"is its host overloaded, or its process stopped\? `hotrow cluster status` queries it",
            told,
        )
