"""Lookups and pushes of a role with caches: what is requested, what is in flight, what came."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from dataclasses import dataclass, field
from functools import partial

from hotrow.cache.cache import Announced, CachedBatch
from hotrow.cache.rows import RowValues
from hotrow.cache.shares import ShardShare
from hotrow.cache.table_vectors import TableVectors
from hotrow.client.base import FeatureVectors
from hotrow.client.pooled import InFlightExchange, InFlightPush
from hotrow.client.sharded import PushFacts, RowPush, ShardedLookup, ShardedRequest
from hotrow.data.batch import Batch
from hotrow.errors import HotrowError
from hotrow.store.arrays import Floats
from hotrow.store.shards import Sharded
from hotrow.transport.client import Answer
from hotrow.transport.messages import CacheExchanged, Taken


@dataclass(frozen=True, slots=True, eq=False)
class CachedLookupRequest:
    """The distinct ids of a batch by cached table, and the lookup of its other tables.

    `announced` has the cached tables that know of the batch before its lookup is sent.
    """

    batch: Batch
    grant: int
    epoch: int  # of the caches
    ids: dict[str, Sharded]
    plain: ShardedRequest | None
    announced: dict[str, Announced] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class CachedLookup:
    """One lookup, from its vectors to their gradients."""

    samples: int
    outputs: tuple[FeatureVectors, ...]
    vectors: dict[str, TableVectors]
    batches: dict[str, CachedBatch]
    plain: ShardedLookup | None


@dataclass(frozen=True, slots=True, eq=False)
class CachedPush:
    """Gradients of a batch: by cached table for each distinct id with its weight, and the push of its other tables."""

    rows: dict[str, tuple[CachedBatch, RowValues, Floats]]
    unused: list[tuple[str, CachedBatch]]  # of tables that the model did not use
    facts: PushFacts
    plain: RowPush | None


@dataclass(frozen=True, slots=True, eq=False)
class SentBatch:
    """A lookup whose requests are sent."""

    lookup: CachedLookupRequest
    batches: dict[str, CachedBatch]
    shares: dict[str, list[ShardShare]]
    rows: Sequence[Future[Answer]]  # one reply for each shard


class DroppedChanges:
    """Changes of requests that failed: refused by a shard that has lost its rows, not sent, or unanswered. Thread-safe.

    Those of a request without an answer may have been added.
    """

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()  # by table
        self._lock = threading.Lock()

    def watch(self, asked: Sequence[Future[Answer]], shares: Mapping[str, Sequence[ShardShare]]) -> None:
        """Count the changes of requests, one for each shard, that have failed or will."""
        for shard, each in enumerate(asked):
            changes = {table: len(of_table[shard].request.changes) for table, of_table in shares.items()}
            each.add_done_callback(partial(self._count, changes))

    def _count(self, changes: Mapping[str, int], asked: "Future[Answer]") -> None:
        if asked.exception() is not None:
            with self._lock:
                self.rows.update(changes)


def failed(error: HotrowError) -> "Future[Answer]":
    """The reply to a request that could not be sent."""
    reply: Future[Answer] = Future()
    reply.set_exception(error)
    return reply


class FailedExchange:
    """A lookup and a push that could not be sent."""

    changed_rows = 0

    def __init__(self, error: HotrowError) -> None:
        self.asked: Sequence[Future[Answer]] = [failed(error)]
        self._error = error

    def wait(self, most_s: float) -> bool:
        """It has failed."""
        return True

    def handle(self) -> ShardedLookup:
        raise self._error

    def taken(self) -> list[Taken]:
        raise self._error


class PendingCachedPush:
    """Gradients that are applied to cached rows, and in flight for other tables."""

    def __init__(self, plain: InFlightPush | None, changed_rows: Callable[[], int]) -> None:
        """`changed_rows`: of the caches, now."""
        done: Future[Answer] = Future()
        done.set_result(Answer(CacheExchanged(0, Taken()), []))
        self.asked: Sequence[Future[Answer]] = [done] if plain is None else plain.asked
        self._plain, self._changed_rows = plain, changed_rows

    @property
    def changed_rows(self) -> int:
        """Rows of the caches with changes that no shard knows."""
        return self._changed_rows()

    def taken(self) -> list[Taken]:
        """The result of the push for other tables, by shard."""
        return [] if self._plain is None else self._plain.taken()


class PendingCacheExchange(PendingCachedPush):
    """A lookup in flight."""

    def __init__(
        self,
        receive: "Callable[[PendingCacheExchange], CachedLookup]",
        sent: SentBatch,
        plain: InFlightExchange | None,
        pushed: InFlightPush | None,
        changed_rows: Callable[[], int],
    ) -> None:
        super().__init__(pushed, changed_rows)
        self.lookup, self.batches, self.shares, self.rows = sent.lookup, sent.batches, sent.shares, sent.rows
        self.plain = plain
        self.received = False
        self.fault: Exception | None = None  # the batch is not computed
        self._receive = receive

    @property
    def replies(self) -> "list[Future[Answer]]":
        """Of all shards to the lookup."""
        return [*self.rows, *(() if self.plain is None else self.plain.asked)]

    @property
    def answered(self) -> bool:
        """Whether `handle` need not wait, where the replies to all lookups before were received."""
        return self.fault is not None or all(each.done() for each in self.replies)

    def wait(self, most_s: float) -> bool:
        """Whether the lookup is answered, or has failed, within so many seconds."""
        done, left = wait(self.rows, most_s, FIRST_EXCEPTION)
        answered = not left or any(each.exception() is not None for each in done)
        return self.fault is not None or (answered and (self.plain is None or self.plain.wait(most_s)))

    def handle(self) -> CachedLookup:
        """The result of the lookup."""
        return self._receive(self)
