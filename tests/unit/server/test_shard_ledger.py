"""A shard process that is killed under load: a ledger outside of it compares rows with the pushes that were sent."""

import multiprocessing
import random
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
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
    Resume,
)
from hotrow.transport.server import RpcServer

KEYS, KEYS_OF_PUSH, PATIENCE_S = 500, 40, 60
DELAY_S = 0.02  # of replies: the shard has applied what the ledger does not know yet
NOWHERE = "tcp://127.0.0.1:9"


def run_shard(folder: Path, restarted: bool, pipe: Connection) -> None:
    """One process; a row loses 1 with every push that has its key."""
    table = hr.Table(
        dim=4,
        optimizer=hr.SGD(lr=1.0),
        init=hr.Constant(value=0.0),
        segment=hr.Segment(run="ledger", directory=folder),
    )
    shard = Shard({"t": table}, number=0, shards=1, restarted=restarted)
    with RpcServer(security="off") as server:
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
    with RpcClient(security="off", delay_s=DELAY_S, most_open=1_024) as wire:
        ledger = Ledger(wire, random.Random(seed))
        here, there = context.Pipe()
        process = context.Process(target=run_shard, args=(tmp_path, False, there))
        process.start()
        wire.connect("shard", here.recv())
        blocks, frames = pack([RowBlock("t", np.arange(KEYS, dtype=np.uint64), dim=4)], "fp32")
        wire.request("shard", Exchange(1, None, PullRows(0, 0, True, False, "fp32", blocks)), frames).result(PATIENCE_S)
        for grant in range(1, 401):
            ledger.push(grant)
            if grant > 60 and not (grant - 60) % 2:
                ledger.order(grant - 60)
        time.sleep(1.5 * DELAY_S)
        process.kill()
        wire.reconnect("shard", NOWHERE)  # replies under way are lost with the connection
        process.join()
        applied_unknown = len(ledger.ordered) - ledger.answered
        process = context.Process(target=run_shard, args=(tmp_path, True, there))
        process.start()
        wire.reconnect("shard", here.recv())
        wire.request("shard", Resume(ledger.answered)).result(PATIENCE_S)
        for grant in range(342, 401, 2):
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
    assert applied_unknown > 0
    assert lost > 0  # pushes that were acknowledged and parked
    assert KEYS_OF_PUSH * lost <= missing <= KEYS_OF_PUSH * (lost + partly)
    assert figures["again"] > 0  # the log knew pushes that were applied and not answered
