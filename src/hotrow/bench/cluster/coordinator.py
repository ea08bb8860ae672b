"""The coordinator by itself: grants and pushes of many workers, without computing, without a model, without sockets.

The training loop, the discipline, leases, orders and the executor are those of a cluster. Messages are encoded,
sealed with MACs, opened and decoded on both sides of each connection; between the two they are handed over in memory.
The time of the other side, which has processes of its own on a cluster, is measured and not counted.
"""

import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import cast

import numpy as np
from torch import Tensor

from hotrow.bench.cluster.plan import ClusterPlan
from hotrow.bench.rounds import BenchProgress, Figures
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.row_loader import RowLoader
from hotrow.checkpoint.saving import TablesCut
from hotrow.data.batch import Batch
from hotrow.data.loader import Lease, Loader
from hotrow.modes import GBA, Async, Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.clock import RunClock
from hotrow.runtime.cluster.executor import RemoteExecutor
from hotrow.runtime.cluster.remote_parameters import RemoteParameters
from hotrow.runtime.cluster.roles import Roles
from hotrow.runtime.state import RunState
from hotrow.transport.client import Answer, Outcome, RpcClient, complete
from hotrow.transport.connection import Connection
from hotrow.transport.counts import WireCounts
from hotrow.transport.envelope import Buffer, check_sizes, decode, encode, lent
from hotrow.transport.limits import Limits, RetryPolicy
from hotrow.transport.messages import (
    BatchReply,
    BatchRequest,
    Done,
    Exchange,
    Exchanged,
    Message,
    OrderResult,
    Perform,
    Policy,
)
from hotrow.transport.peers import Accepted, Peers, Respond
from hotrow.transport.pending import PendingRequest
from hotrow.transport.security import ClusterKey
from hotrow.types import RoleId

MODES: tuple[Mode, ...] = (GBA(), Async())
LOCAL_BATCH = 4096
CLIENT = b"coordinator"  # the routing id of its connections


def measure(plan: ClusterPlan, watch: BenchProgress) -> Figures:
    """Batches per second that the coordinator grants and applies, by mode; the headline is the slowest mode."""
    watch.stage("the coordinator by itself", len(MODES) * plan.rounds)
    found: Figures = {}
    for mode in MODES:
        rates = []
        for _ in range(plan.rounds):
            rates.append(_batches_per_s(plan, mode))
            watch.tick()
        found[f"coordinator_{mode.name}_batches_per_s"] = float(np.median(rates))
    found["coordinator_batches_per_s"] = min(value for value in found.values() if value is not None)
    return found


def _batches_per_s(plan: ClusterPlan, mode: Mode) -> float:
    facts = RunFacts(plan.workers, LOCAL_BATCH, plan.workers * LOCAL_BATCH)
    backend = _Backend(plan)
    loop = TrainingLoop(backend, RunState(), mode=mode, facts=facts)
    leases = LeaseQueue(_leases(plan.workers + plan.granted))
    leases.open_epoch()
    gc.collect()
    gc.disable()  # a collection of everything that was imported would be timed
    try:
        steps = loop.steps(leases, 0)
        trained = 0
        while trained < plan.workers:  # connections are made, every worker holds a batch
            trained += len(next(steps).batches)
        began, elsewhere = time.thread_time(), backend.rpc.elsewhere_s
        timed = sum(len(stepped.batches) for stepped in steps)
        seconds = time.thread_time() - began - (backend.rpc.elsewhere_s - elsewhere)
    finally:
        gc.enable()
        loop.close()
    return timed / seconds


def _leases(count: int) -> Iterator[tuple[Lease, Batch]]:
    """Leases of one batch without features: reading and its bytes are not the coordinator's rate."""
    batch = Batch((), np.zeros((LOCAL_BATCH, 0), np.float32), np.zeros((LOCAL_BATCH, 0), np.float32))
    for number in range(count):
        yield Lease(number, 0, number, LOCAL_BATCH), batch


class _Backend:
    """Opens a mode on roles that answer at once."""

    worker_pool = row_prefetch = None
    optimizer = None

    def __init__(self, plan: ClusterPlan) -> None:
        self.rpc = _MemoryRpc()
        shards = [RoleId("shard", number) for number in range(plan.shards)]
        trainers = [RoleId("trainer", number) for number in range(plan.workers)]
        self._roles = Roles(cast(RpcClient, self.rpc), shards, trainers, _AlwaysThere())

    def check_mode(self, mode: Mode, facts: RunFacts) -> None:
        mode.check(facts)

    def newest_grant(self) -> int:
        return 0

    def attached_samples(self) -> int:
        return 0

    def check_consistent(self) -> None: ...

    def take_scores(self) -> None: ...

    def track_changes(self) -> None: ...

    def begin_cut(self, place: Place, *, delta: bool) -> TablesCut:
        raise AssertionError("the coordinator alone has no rows")

    def check_alive(self) -> None: ...

    def row_loader(self) -> RowLoader:
        raise AssertionError("the coordinator alone has no rows")

    def look_ahead_choice(self, mode: Mode, facts: RunFacts) -> None: ...

    def reading(self, loader: Loader) -> AbstractContextManager[None]:
        return nullcontext()

    def open(self, mode: Mode, facts: RunFacts, clock: RunClock) -> tuple[RemoteParameters, RemoteExecutor]:
        parameters = RemoteParameters(mode, facts, self._roles, 0, "batch")
        executor = RemoteExecutor(
            self._roles, parameters, mode, facts, RunState(), lambda: None, lambda batch: batch, Counter()
        )
        return parameters, executor

    def predict(self, batch: Batch) -> Tensor:
        raise AssertionError("nothing is predicted here")

    def evaluate(self, loader: Loader) -> None:
        raise AssertionError("nothing is evaluated here")


class _AlwaysThere:
    def lost(self) -> Mapping[RoleId, str]:
        return {}

    def release(self, name: RoleId) -> None: ...

    def end(self, name: RoleId) -> None: ...


class _MemoryRpc:
    """What `RpcClient` and its loop do for a request, and what a server does for it, in the calling thread."""

    def __init__(self) -> None:
        self.limits, self.elsewhere_s = Limits(), 0.0
        self._key, self._counts, self._number = ClusterKey.generate(), WireCounts(), 0
        self._peers: dict[str, tuple[Connection, Peers]] = {}
        self._chance = random.Random(0).random

    def request(self, name: str, message: Message) -> "Future[Answer]":
        future: Future[Answer] = Future()
        future.set_running_or_notify_cancel()
        self.send(name, message, (), partial(complete, future))
        return future

    def send(
        self,
        name: str,
        message: Message,
        frames: Sequence[Buffer],
        done: Callable[[Outcome], None],
        *,
        deadline: bool = True,
    ) -> None:
        header, views = encode(message), lent(frames)
        check_sizes(header, views, self.limits)
        connection, peers = self._peers.get(name) or self._connected(name)
        now = time.monotonic()
        self._number += 1
        connection.put(PendingRequest(self._number, header, views, deadline, now, done), now)
        (sent,) = connection.outbox
        connection.outbox.clear()
        began = time.thread_time()
        reply = _served(peers, sent.frames)
        self.elsewhere_s += time.thread_time() - began
        answered = connection.receive([memoryview(frame) for frame in reply], now)
        assert answered is not None
        answered.request.done(Answer(decode(answered.header), answered.frames))

    def _connected(self, name: str) -> tuple[Connection, Peers]:
        """A connection after its handshake."""
        connection = Connection(self._key, macs=True, retry=RetryPolicy(), chance=self._chance, counts=self._counts)
        peers = Peers(self._key, self.limits, macs=True)
        connection.tick(time.monotonic())
        while connection.outbox:
            response = peers.receive(CLIENT, [memoryview(frame) for frame in connection.outbox.pop(0).frames])
            assert isinstance(response, Respond)
            if response.frames:
                connection.receive([memoryview(frame) for frame in response.frames], time.monotonic())
        self._peers[name] = connection, peers
        return connection, peers


def _served(peers: Peers, sent: Sequence[Buffer]) -> Sequence[Buffer]:
    accepted = peers.receive(CLIENT, [memoryview(frame) for frame in sent])
    assert isinstance(accepted, Accepted)
    header = encode(_reply(decode(accepted.opened.header)))
    way = peers.answer(accepted.name, accepted.opened.number, header, (), final=True)
    assert way is not None
    return way[1].frames


def _reply(message: Message) -> Message:
    match message:
        case BatchRequest() as work:
            assert work.batch is not None
            return BatchReply(work.grant, work.step, work.step, work.batch.count, 0.1, 0.5)
        case Perform(order=order) | Policy(order=order):
            return OrderResult(order)
        case Exchange():
            return Exchanged(0)
        case _:
            return Done()
