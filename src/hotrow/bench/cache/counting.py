"""Rows and bytes of a trace, counted in caches of one process: `RowCache` for each worker, and one table as the server.

Which rows are fetched, checked and written back does not depend on the length of a row. So rows have one float here,
and the bytes of longer ones follow: each row that goes up or down has so many floats more.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace

import numpy as np

from hotrow.bench.cache.streams import IdTrace
from hotrow.bench.rounds import BenchProgress
from hotrow.cache.cache import Announced, CacheCounts, CachedBatch, RowCache
from hotrow.cache.exchange import add_changes, read_rows
from hotrow.config import Cache, Table
from hotrow.optim.sparse import SGD
from hotrow.store import RamTier
from hotrow.store.arrays import Keys

FLOAT_BYTES, KEY_BYTES = 4, 8


@dataclass(frozen=True, slots=True)
class TraceCounts:
    """Of all workers over the counted batches."""

    batches: int
    ids: int  # distinct ones of each batch
    hits: int  # cached, and valid
    misses: int  # absent
    fetched: int  # rows from the server: absent, too far ahead, or found invalid by it
    written: int  # rows to the server
    evicted: int  # of these, rows that left the cache
    plain_bytes: int  # of all messages, with rows of one float

    @property
    def miss_rate(self) -> float:
        """Absent ids of all ids."""
        return self.misses / self.ids

    def bytes_of(self, dim: int, state_dim: int = 0) -> int:
        """Of requests and replies without headers, with rows of `dim` values and `state_dim` floats of state."""
        return self.plain_bytes + FLOAT_BYTES * (dim + state_dim - 1) * (self.fetched + self.written)

    def saving(self, dim: int, state_dim: int = 0) -> float:
        """The share of the bytes of the same batches without a cache."""
        return 1 - self.bytes_of(dim, state_dim) / uncached_bytes(self.ids, dim)


def uncached_bytes(ids: int, dim: int) -> int:
    """Of batches without a cache: a key and a row for each distinct id, then a key and a gradient."""
    return ids * (2 * KEY_BYTES + 2 * FLOAT_BYTES * dim)


def count_trace(trace: IdTrace, cache: Cache, watch: BenchProgress) -> TraceCounts:
    """Train a trace with a cache for each worker. Workers take turns, and messages take no time."""
    caches = [RowCache(table_of(cache), cache) for _ in range(trace.workers)]
    windows = [Window(mine, [*warm, *steps]) for mine, warm, steps in zip(caches, trace.warm, trace.steps, strict=True)]
    warm = len(trace.warm[0])
    with closing(server_of(cache)) as server:
        try:
            for turn in range(warm + len(trace.steps[0])):
                if turn == warm:
                    before = [replace(mine.counts) for mine in caches]
                for mine, window in zip(caches, windows, strict=True):
                    train_batch(mine, server, window, turn)
            after = [replace(mine.counts) for mine in caches]
        finally:
            for mine in caches:
                mine.close()
    watch.tick()
    return _grown(trace, before, after)


def table_of(cache: Cache) -> Table:
    """The table of a trace: rows of one float."""
    return Table(dim=1, optimizer=SGD(lr=0.01), cache=cache)


def server_of(cache: Cache) -> RamTier:
    """The table on the server."""
    return RamTier(table_of(cache).model_copy(update={"cache": None, "clock": True}), threads=1)


@dataclass(slots=True, eq=False)
class Window:
    """The batches of a worker. Policy "ahead" knows those that begin next."""

    cache: RowCache
    batches: list[Keys]
    _announced: deque[Announced] = field(default_factory=deque, init=False)

    def begin(self, turn: int) -> CachedBatch:
        """Begin a batch, with those after it announced as far as the window goes; turns follow each other."""
        known = turn + len(self._announced)
        for keys in self.batches[known : known + self.cache.window_left]:
            self._announced.append(self.cache.announce(keys))
        announced = self._announced.popleft() if self._announced else None
        return self.cache.begin(self.batches[turn], samples=0, announced=announced)


def train_batch(mine: RowCache, server: RamTier, window: Window, turn: int) -> None:
    """Look up, update and release the rows of one batch."""
    batch = window.begin(turn)
    add_changes(server, batch.request, mine.cache, step=0)
    mine.receive(batch, read_rows(server, batch.request, mine.cache, samples=0))
    ones = np.ones(len(batch.keys), np.float32)
    mine.apply(batch, ones[:, None], ones, samples=0)
    mine.finish(batch)


def _grown(trace: IdTrace, before: Sequence[CacheCounts], after: Sequence[CacheCounts]) -> TraceCounts:
    grown = {
        each.name: sum(getattr(b, each.name) - getattr(a, each.name) for a, b in zip(before, after, strict=True))
        for each in fields(CacheCounts)
    }
    return TraceCounts(
        batches=sum(map(len, trace.steps)),
        ids=sum(len(batch) for batches in trace.steps for batch in batches),
        hits=grown["hits"],
        misses=grown["misses"],
        fetched=grown["misses"] + grown["ahead"] + grown["invalid"],
        written=grown["written"],
        evicted=grown["written"] - grown["ahead"],
        plain_bytes=grown["bytes"],
    )
