"""Workers with caches in front of one table, in this process: a message is a call, and a test decides its moment."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotrow.cache.cache import Announced, CachedBatch, RowCache
from hotrow.cache.exchange import CacheReply, CacheRequest, add_changes, read_rows
from hotrow.config import Table
from hotrow.store import RamTier

F32 = NDArray[np.float32]


def inspected(rows: RowCache) -> Any:
    """Its rows, with the calls of a native table by which tests look at them (`row_memory`)."""
    return rows.tier


def gradients(keys: NDArray[np.uint64], values: F32, seed: int) -> F32:
    """Gradients that depend on what was read, so that a wrong row shows in every later one."""
    noise = np.random.default_rng(seed).standard_normal(values.shape).astype(np.float32)
    return 0.3 * values + noise + (keys % np.uint64(3)).astype(np.float32)[:, None]


@dataclass
class Server:
    """The table. `checks` lists (clock of the server, clock of the worker) of every check that passed."""

    table: Table
    samples: int = 0
    checks: list[tuple[int, int]] = field(default_factory=list)
    applied: int = 0
    absent: int = 0

    def __post_init__(self) -> None:
        assert self.table.cache is not None
        self.cache = self.table.cache
        self.tier = RamTier(self.table)

    def answer(self, batch: CachedBatch) -> CacheReply:
        request = batch.request
        added = add_changes(self.tier, request, self.cache, step=0)
        self.applied += added.rows
        self.absent += added.absent
        reply = read_rows(self.tier, request, self.cache, samples=self.samples)
        valid = ~reply.invalid
        clocks = self.tier.clocks(request.checked[valid])
        self.checks += zip(clocks.tolist(), request.clocks[valid].tolist(), strict=True)
        return reply

    def flush(self, worker: "Worker") -> None:
        for request in worker.rows.take_all_changes(samples=self.samples):
            self.flush_request(request)

    def flush_request(self, request: CacheRequest) -> None:
        self.applied += add_changes(self.tier, request, self.cache, step=0).rows


class Worker:
    """A worker that may have several batches in use."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.rows = RowCache(server.table, server.cache)
        self.asked: deque[tuple[CachedBatch, CacheReply, int]] = deque()
        self.computed: list[tuple[int, NDArray[np.uint64]]] = []
        self.announced: deque[Announced] = deque()  # the batches that are asked for next

    def announce(self, coming: Sequence[NDArray[np.uint64]]) -> None:
        """Tell the cache of the batches that follow, where its policy wants to know."""
        for keys in coming[len(self.announced) :]:
            if self.rows.window_left:
                self.announced.append(self.rows.announce(keys))

    def ask(self, keys: NDArray[np.uint64], seed: int) -> None:
        """The server answers at once; the reply is received when the batch is computed."""
        told = self.announced.popleft() if self.announced else None
        batch = self.rows.begin(keys, samples=self.server.samples, announced=told)
        self.asked.append((batch, self.server.answer(batch), seed))

    def compute(self) -> F32:
        """Compute the batch that was requested first; gives the rows that it read."""
        batch, reply, seed = self.asked.popleft()
        self.rows.receive(batch, reply)
        read = np.empty((len(batch.keys), self.server.table.dim), np.float32)
        self.rows.read(batch, read)
        self.server.samples += len(batch.keys)
        weights = np.ones(len(batch.keys), np.float32)
        self.rows.apply(batch, gradients(batch.keys, read, seed), weights, samples=self.server.samples)
        self.rows.finish(batch)
        self.computed.append((seed, batch.keys))
        return read


class PlainWorker:
    """The oracle: the same batches on the table itself."""

    def __init__(self, table: Table) -> None:
        self.tier = RamTier(table.model_copy(update={"cache": None}))
        self.samples = 0

    def compute(self, keys: NDArray[np.uint64], seed: int) -> F32:
        read = np.empty((len(keys), self.tier.dim), np.float32)
        plan = self.tier.find_or_init(keys, read, samples=self.samples)
        self.samples += len(keys)
        self.tier.apply(plan, gradients(keys, read, seed), samples=self.samples)
        return read


def all_rows(tier: RamTier) -> dict[int, tuple[F32, F32, int]]:
    """Value, state and SWAP period by key."""
    return {
        int(key): (chunk.values[i].copy(), chunk.state[i].copy(), int(chunk.fields.get("period", [0] * (i + 1))[i]))
        for chunk in tier.export()
        for i, key in enumerate(chunk.keys)
    }
