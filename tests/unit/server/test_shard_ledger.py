"""A shard process that is killed under load: a ledger outside of it compares rows with the pushes that were sent."""

import multiprocessing
import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import pytest

import hotrow as hr
from hotrow.server.process import ShardServer
from hotrow.server.shard import Shard
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.frames import RowBlock, pack, unpack
from hotrow.transport.messages import (
    ApplyOrder,
    Arrival,
    Exchange,
    Exchanged,
    OrderPart,
    OrderResult,
    Perform,
    PullRows,
    PushRows,
    Query,
    QueryReply,
    ResumeShard,
)
from hotrow.transport.server import RpcServer

KEYS, KEYS_OF_PUSH, PATIENCE_S = 500, 40, 60
PUSHES, ANSWERED_PUSHES, ORDERED, HELD_ORDERS = 400, 300, 240, 15
NOWHERE = "tcp://127.0.0.1:9"


class GatedServer(RpcServer):
    """Holds replies while the gate is shut: the shard has applied what the ledger does not know. Reports the number."""

    def __init__(self, shut: Event, pipe: Connection) -> None:
        super().__init__(security="off")
        self._shut, self._pipe, self._held = shut, pipe, 0

    def _send(self, frames: Sequence[bytes | memoryview]) -> bool:
        if not self._shut.is_set():
            return super()._send(frames)
        self._held += 1
        self._pipe.send(self._held)
        return True


def run_shard(folder: Path, restarted: bool, shut: Event, pipe: Connection) -> None:
    """One process; a row loses 1 with every push that has its key."""
    table = hr.Table(
        dim=4,
        optimizer=hr.SGD(lr=1.0),
        init=hr.Constant(value=0.0),
        segment=hr.Segment(run="ledger", directory=folder),
    )
    shard = Shard({"t": table}, number=0, shards=1, restarted=restarted)
    with GatedServer(shut, pipe) as server:
        pipe.send(server.address)
        ShardServer(shard, server, restarted=restarted).serve()


@dataclass(slots=True)
class Ledger:
    """All pushes that were sent, and how the shard answered."""

    wire: RpcClient
    chance: random.Random
    sent: dict[int, list[int]] = field(default_factory=dict)  # by grant, its keys
    pushed: dict[int, Future[Answer]] = field(default_factory=dict)
    ordered: dict[int, Future[Answer]] = field(default_factory=dict)  # by order

    def push(self, grant: int) -> None:
        """Odd ones are applied on arrival, even ones parked until an order."""
        self.sent[grant] = keys = self.chance.sample(range(KEYS), KEYS_OF_PUSH)
        ones = np.ones((len(keys), 4), np.float32)
        blocks, frames = pack([RowBlock("t", np.array(keys, np.uint64), ones)], "fp32")
        arrival = Arrival(0, 1.0, 1.0) if grant % 2 else None
        self.pushed[grant] = self.wire.request(
            "shard", Exchange(1, PushRows(grant, 0, 0, 0, 1, blocks, arrival)), frames
        )

    def order(self, grant: int) -> None:
        """Apply a parked push, as the driver does once it is acknowledged."""
        self.pushed[grant].result(PATIENCE_S)
        number = len(self.ordered) + 1
        step = ApplyOrder("both", number, number, 1.0, (OrderPart(grant, number, number, 1, 1.0),))
        self.ordered[number] = self.wire.request("shard", Perform(1, number, (step,)))

    @property
    def answered(self) -> int:
        """The last order that was answered."""
        return next((number - 1 for number, each in self.ordered.items() if not each.done()), len(self.ordered))

    def missing(self) -> int:
        """Updates of rows that are missing; an AssertionError where one was made twice."""
        blocks, frames = pack([RowBlock("t", np.arange(KEYS, dtype=np.uint64), dim=4)], "fp32")
        pull = PullRows(len(self.ordered), 0, False, False, "fp32", blocks)
        answer = self.wire.request("shard", Exchange(1, None, pull), frames).result(PATIENCE_S)
        (rows,) = unpack(answer.of(Exchanged, "shard").blocks, answer.frames, {"t": 4})
        expected = Counter(key for keys in self.sent.values() for key in keys)
        short = np.array([expected[key] for key in range(KEYS)]) + np.array(rows.values)[:, 0]
        assert short.min() >= 0, "a push was applied twice"
        return int(short.sum())


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_rows_of_a_killed_shard_have_every_push_at_most_once_and_the_others_are_counted(
    seed: int, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("spawn")
    with RpcClient(security="off", most_open=1_024) as wire:
        ledger = Ledger(wire, random.Random(seed))
        here, there = context.Pipe()
        shut = context.Event()
        process = context.Process(target=run_shard, args=(tmp_path, False, shut, there))
        process.start()
        wire.connect("shard", here.recv())
        blocks, frames = pack([RowBlock("t", np.arange(KEYS, dtype=np.uint64), dim=4)], "fp32")
        wire.request("shard", Exchange(1, None, PullRows(0, 0, True, False, "fp32", blocks)), frames).result(PATIENCE_S)
        for grant in range(1, ANSWERED_PUSHES + 1):
            ledger.push(grant)
        for grant in range(2, ORDERED + 1, 2):
            ledger.order(grant)
        for each in (*ledger.pushed.values(), *ledger.ordered.values()):
            each.result(PATIENCE_S)
        shut.set()
        last = ORDERED + 2 * HELD_ORDERS
        for grant in range(ORDERED + 2, last + 1, 2):
            ledger.order(grant)
        for grant in range(ANSWERED_PUSHES + 1, PUSHES + 1):
            ledger.push(grant)
        enough = HELD_ORDERS + ledger.chance.randint(2, 60)  # the orders and a push that is applied on arrival
        while here.recv() < enough:
            pass
        process.kill()  # it may be applying another push
        wire.reconnect("shard", NOWHERE)
        process.join()
        applied_unknown = len(ledger.ordered) - ledger.answered
        here, there = context.Pipe()  # a killed process may leave half a report in it, and the event locked
        shut = context.Event()
        process = context.Process(target=run_shard, args=(tmp_path, True, shut, there))
        process.start()
        wire.reconnect("shard", here.recv())
        wire.request("shard", ResumeShard(ledger.answered)).result(PATIENCE_S)
        for grant in range(last + 2, PUSHES + 1, 2):
            ledger.order(grant)
        results = [each.result(PATIENCE_S).of(OrderResult, "shard") for each in ledger.ordered.values()]
        for each in ledger.pushed.values():
            each.result(PATIENCE_S)
        lost = sum(each.parked_lost for each in results)
        figures = wire.request("shard", Query("status")).result(PATIENCE_S).of(QueryReply, "shard").figures
        partly = int(figures["partly_applied"])
        missing = ledger.missing()
        process.kill()
        process.join()
    assert applied_unknown == HELD_ORDERS
    assert lost > 0  # pushes that were acknowledged and parked
    assert KEYS_OF_PUSH * lost <= missing <= KEYS_OF_PUSH * (lost + partly)
    assert figures["again"] > 0  # the log knew pushes that were applied and not answered
