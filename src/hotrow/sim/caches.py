"""The caches of all workers of a simulated cluster, and the servers' half: production code without a clock.

`SimCaches` is called in virtual time: `request` where a worker begins a batch, `take` and `answer` when its request is
at the servers, `receive` when the reply is back, `push` when the batch is computed. `cache_traffic` decides the times.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hotrow.cache.cache import CacheCounts, CachedBatch, RowCache, counts_since
from hotrow.cache.exchange import CacheReply, CacheRequest, add_changes, read_rows
from hotrow.config import Table
from hotrow.server.pushes import SeenGrants
from hotrow.store import RamTier
from hotrow.store.arrays import Floats, Keys

GradientsOfKeys = tuple[Floats, Floats]  # of each distinct key of a batch, and their weights


@dataclass(frozen=True, slots=True, eq=False)
class CacheSend:
    """A message of a worker's caches to the servers: the request of a batch, or a flush."""

    grant: int  # 0: a flush
    requests: tuple[tuple[str, CacheRequest], ...]  # with their tables

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(request.nbytes for _, request in self.requests)

    @property
    def rows(self) -> int:
        """Changes of rows, which are lost if the message is."""
        return sum(len(request.changes) for _, request in self.requests)


@dataclass(slots=True, eq=False)
class SimulatedExchange:
    """A batch of a worker, from its request to its push."""

    worker: int
    batches: dict[str, CachedBatch]  # by table
    samples: int  # that the worker knew of when it sent the request
    replies: dict[str, CacheReply] = field(default_factory=dict)


class SimCaches:
    """Caches by worker and table, in front of the tables of all shards."""

    def __init__(self, tables: Mapping[str, Table], tiers: Mapping[str, RamTier], *, threads: int = 1) -> None:
        self.settings = {name: table.cache for name, table in tables.items() if table.cache is not None}
        self.tiers = {name: tiers[name] for name in self.settings}
        self.caches: dict[int, dict[str, RowCache]] = {}  # by worker
        self.sent_again = 0  # requests that arrived more than once
        self._tables, self._threads = {name: tables[name] for name in self.settings}, threads
        self._exchanges: dict[int, SimulatedExchange] = {}  # by grant
        self._samples: dict[int, int] = {}  # by worker, that it knows of
        self._seen = SeenGrants()  # whose changes were added
        self._workers = 1
        self._counts = {name: CacheCounts() for name in self.settings}
        self._taken: dict[str, CacheCounts] = {}

    # A worker

    def request(self, grant: int, worker: int, keys: Mapping[str, Keys], samples: int) -> CacheSend:
        """Begin a batch of distinct keys by table. `samples`: that were applied, as the grant says."""
        caches, samples = self._caches_of(worker), self._known(worker, samples)
        batches = {table: caches[table].begin(mine, samples=samples) for table, mine in keys.items()}
        self._exchanges[grant] = SimulatedExchange(worker, batches, samples)
        return CacheSend(grant, tuple((table, batch.request) for table, batch in batches.items()))

    def receive(self, grant: int) -> None:
        """The reply is back. Replies are received in the order of their requests."""
        exchange = self._exchanges[grant]
        for table, reply in exchange.replies.items():
            self.caches[exchange.worker][table].receive(exchange.batches[table], reply)
        exchange.replies.clear()

    def batch(self, grant: int, table: str) -> tuple[RowCache, CachedBatch]:
        """The cache and the batch of a grant."""
        exchange = self._exchanges[grant]
        return self.caches[exchange.worker][table], exchange.batches[table]

    def values(self, grant: int, table: str) -> Floats:
        """The rows of a batch as its worker sees them now."""
        cache, batch = self.batch(grant, table)
        rows: Floats = cache.read(batch)
        return rows

    def push(self, grant: int, gradients: Mapping[str, GradientsOfKeys], batch_samples: int) -> None:
        """Update cached rows with the gradients of a batch, and release them."""
        exchange = self._exchanges.pop(grant)
        samples = self._known(exchange.worker, exchange.samples + batch_samples)
        for table, batch in exchange.batches.items():
            cache = self.caches[exchange.worker][table]
            if table in gradients:
                self._update(exchange.worker, cache, batch, *gradients[table], samples)
            cache.finish(batch)

    def _update(
        self, worker: int, cache: RowCache, batch: CachedBatch, gradients: Floats, weights: Floats, samples: int
    ) -> None:
        cache.apply(batch, gradients, weights, samples=samples)

    def discard(self, grant: int) -> None:
        """Give up a batch; nothing happens where there is none."""
        exchange = self._exchanges.pop(grant, None)
        if exchange is not None and exchange.worker in self.caches:
            for table, batch in exchange.batches.items():
                self.caches[exchange.worker][table].finish(batch)

    def flush(self, worker: int, samples: int) -> CacheSend | None:
        """All changes of a worker without batches, as one message; None where there are none."""
        samples = self._known(worker, samples)
        requests = tuple(
            (table, request)
            for table, cache in self.caches.get(worker, {}).items()
            for request in cache.take_all_changes(samples=samples)
            if len(request.changes)
        )
        return CacheSend(0, requests) if requests else None

    def lose(self, worker: int) -> int:
        """The worker is gone; returns the rows whose changes are lost with its caches."""
        caches = self.caches.pop(worker, {})
        self._samples.pop(worker, None)
        lost = sum(cache.changed_rows for cache in caches.values())
        for cache in caches.values():
            cache.close()
        return lost

    def reset(self, workers: int) -> None:
        """A mode starts, with empty caches for so many workers; those of the mode before are flushed."""
        self._workers = workers
        for worker in list(self.caches):
            if self.lose(worker):
                raise AssertionError(f"a mode starts, and the caches of worker {worker} have changes")

    # The servers

    def take(self, send: CacheSend) -> None:
        """Add the changes of a message. A request that arrives again adds nothing."""
        if send.grant and send.grant in self._seen:
            self.sent_again += 1
            return
        for table, request in send.requests:
            add_changes(self.tiers[table], request, self.settings[table], step=0)
        if send.grant:
            self._seen.add(send.grant)

    def answer(self, grant: int, samples: int) -> int:
        """Check clocks and read the rows of a request whose changes were added; returns the bytes of the reply."""
        exchange = self._exchanges[grant]
        for table, batch in exchange.batches.items():
            exchange.replies[table] = read_rows(self.tiers[table], batch.request, self.settings[table], samples=samples)
        return sum(reply.nbytes for reply in exchange.replies.values())

    # Figures

    def take_counts(self) -> dict[str, int]:
        """What the caches of all workers counted since the last call, as "cache_hits.user"."""
        now = {name: replace(counts) for name, counts in self._counts.items()}
        taken, self._taken = self._taken, now
        again, self.sent_again = self.sent_again, 0
        return {**counts_since(taken, now), "cache_requests_again": again}

    def close(self) -> None:
        """Release all cached rows; changes are lost."""
        for worker in list(self.caches):
            self.lose(worker)

    def _known(self, worker: int, samples: int) -> int:
        """What a worker knows of never goes back, although it learns of samples late."""
        self._samples[worker] = max(samples, self._samples.get(worker, 0))
        return self._samples[worker]

    def _caches_of(self, worker: int) -> dict[str, RowCache]:
        if worker not in self.caches:
            self.caches[worker] = {
                name: RowCache(
                    table,
                    self.settings[name],
                    workers=self._workers,
                    threads=self._threads,
                    counts=self._counts[name],
                )
                for name, table in self._tables.items()
            }
        return self.caches[worker]
