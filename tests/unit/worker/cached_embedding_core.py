"""Embedding workers with caches and shards in this process, without sockets: a test decides when a message arrives."""

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

import hotrow as hr
from hotrow.client.pooled import PooledLookup, PooledRequest, PooledTables
from hotrow.client.sharded import PushFacts
from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.server.process import ShardServer
from hotrow.server.shard import Shard
from hotrow.transport.client import Answer
from hotrow.transport.counts import ServerCounts, WireCounts
from hotrow.transport.errors import RemoteFault
from hotrow.transport.ids import pack_ids, sample_id
from hotrow.transport.limits import Limits
from hotrow.transport.messages import Arrival, CacheFlushed, Fault, FlushCache, LookUp, Message, PullPooled, Query
from hotrow.transport.request import Request
from hotrow.worker.embedding import BufferLimits
from hotrow.worker.embedding_process import EmbeddingServer, EmbeddingSetup
from unit.worker.embedding_threads import batch_of, give_gradients, without_ids

CACHE = hr.Cache(capacity=9, staleness=3)
TABLES = {
    "a": hr.Table(dim=4, optimizer=hr.SGD(lr=0.5), cache=CACHE),
    "b": hr.Table(dim=3, optimizer=hr.SGD(lr=0.5)),
}
SAMPLES = 5


def received(answer: Message, frames: Sequence[Any], peer: str) -> Answer:
    if isinstance(answer, Fault):
        raise RemoteFault(answer.kind, answer.sentence, peer)
    return Answer(answer, [memoryview(frame).cast("B") for frame in frames])


def copies_of(frames: Sequence[Any]) -> list[bytes]:
    """As they are on the wire: the sender may change its own later."""
    return [bytes(memoryview(frame).cast("B")) for frame in frames]


def ask(handle: Any, message: Message, frames: Sequence[Any], peer: str) -> "Future[Answer]":
    """A request to a role, as its server makes it."""
    asked: Future[Answer] = Future()

    def answer(reply: Message, buffers: Sequence[Any], _: bool) -> None:
        try:
            asked.set_result(received(reply, buffers, peer))
        except RemoteFault as fault:
            asked.set_exception(fault)

    handle(Request(b"", message, [memoryview(frame).cast("B") for frame in frames], answer))
    return asked


@dataclass
class HeldWire:
    """The client of an embedding worker: requests arrive when a test says so, those to one shard in order."""

    shards: Mapping[str, ShardServer]
    held: bool = False
    twice: bool = False  # every request arrives a second time, later
    waiting: dict[str, deque[tuple[Any, ...]]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    counts: WireCounts = field(default_factory=WireCounts)

    def request(
        self, name: str, message: Message, frames: Sequence[Any] = (), *, deadline: bool = True
    ) -> "Future[Answer]":
        copies = copies_of(frames)
        if not self.held:
            return ask(self.shards[name]._handle, message, copies, name)
        asked: Future[Answer] = Future()
        self.waiting.setdefault(name, deque()).append((asked, message, copies))
        return asked

    def reconnect(self, name: str, address: str) -> None: ...

    def deliver(self, name: str, fault: Exception | None = None) -> None:
        """The oldest request to a shard arrives, or fails."""
        asked, message, frames = self.waiting[name].popleft()
        if fault is not None:
            asked.set_exception(fault)
            return
        reply = ask(self.shards[name]._handle, message, frames, name)
        if self.twice:
            ask(self.shards[name]._handle, message, frames, name)
        if (error := reply.exception()) is not None:
            asked.set_exception(error)
        else:
            asked.set_result(reply.result())

    def deliver_all(self) -> None:
        for name, requests in self.waiting.items():
            while requests:
                self.deliver(name)


@dataclass
class Silent:
    """The server of an embedding worker, which a test replaces."""

    counts: ServerCounts = field(default_factory=ServerCounts)


class Core:
    """One embedding worker, and the trainers that use it."""

    def __init__(
        self, shards: Mapping[str, ShardServer], number: int = 0, tables: Mapping[str, Table] = TABLES
    ) -> None:
        self.wire = HeldWire(shards)
        setup = EmbeddingSetup(tables, number, list(shards), 1, None, BufferLimits(keep_s=600))
        self.worker = EmbeddingServer(setup, cast(Any, Silent()), cast(Any, self.wire))
        self.through = PooledTables(tables, cast(Any, self.wire), threads=1)
        self.number = number

    def tell(self, message: Message, frames: Sequence[Any] = ()) -> "Future[Answer]":
        asked = ask(self.worker._handle, message, frames, "embedding worker")
        self.work()
        return asked

    def work(self) -> None:
        """What the thread that computes does."""
        while not self.worker._inbox.empty():
            self.worker._inbox.get()()

    def deliver(self, name: str, fault: Exception | None = None) -> None:
        self.wire.deliver(name, fault)
        self.work()

    def deliver_all(self) -> None:
        self.wire.deliver_all()
        self.work()

    def send_ids(self, grant: int, seed: int | None = None) -> None:
        parts, frames = pack_ids(self.batch(grant if seed is None else seed))
        message = LookUp(sample_id(self.number, grant), 0, 0, 0, False, SAMPLES, parts)
        self.tell(message, copies_of(frames)).result(0)

    @staticmethod
    def batch(seed: int) -> Batch:
        return batch_of(SAMPLES, seed)

    def pull(self, grant: int) -> "Future[Answer]":
        return self.tell(PullPooled(sample_id(self.number, grant)))

    def lookup(self, grant: int, answer: Answer, seed: int | None = None) -> PooledLookup:
        batch = without_ids(self.batch(grant if seed is None else seed))
        return self.through.received(PooledRequest(sample_id(self.number, grant), batch, True), answer)

    def push(self, grant: int, answer: Answer, seed: int | None = None) -> "Future[Answer]":
        handle = self.lookup(grant, answer, seed)
        give_gradients(handle, grant)
        facts = PushFacts(grant, 0, 0, 0, Arrival(SAMPLES * grant, 1.0, 1.0))
        made = self.through.gradients(handle, facts)
        return self.tell(made.push, copies_of(made.frames))

    def flush(self, first: int) -> CacheFlushed:
        """In a thread of its own, so nothing may be held."""
        assert not self.wire.held
        return self.tell(FlushCache(first, 64)).result(20).of(CacheFlushed, "embedding worker")

    def figures(self) -> dict[str, float]:
        figures: dict[str, float] = self.tell(Query("status")).result(0).message.figures  # type: ignore[union-attr]
        return figures


def shards_of(tables: Mapping[str, Table] = TABLES, count: int = 2) -> dict[str, ShardServer]:
    cores = [Shard(tables, number=number, shards=count) for number in range(count)]
    return {f"shard {number}": ShardServer(core, cast(Any, None)) for number, core in enumerate(cores)}
