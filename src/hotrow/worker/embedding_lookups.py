"""The lookups of an embedding worker, with caches where tables have some.

Results are given in the thread that computes, which `post` hands a call to. There they are read: a result raises the
error of its lookup.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from hotrow.cache.client import CachedTables
from hotrow.cache.modes import cached_tables
from hotrow.cache.requests import CachedLookup, PendingCacheExchange
from hotrow.client.pooled import InFlightPush
from hotrow.client.sharded import LookupStep, PendingExchange, PushFacts, ShardedLookup, ShardedTables, TrafficCounts
from hotrow.config import Table
from hotrow.data.batch import Batch
from hotrow.errors import HotrowError
from hotrow.transport.client import RpcClient
from hotrow.transport.futures import when_all
from hotrow.transport.ids import grant_of
from hotrow.transport.messages import LookUp
from hotrow.types import Values

AnyLookup: TypeAlias = ShardedLookup | CachedLookup
LookupResult: TypeAlias = Callable[[], AnyLookup]
Post: TypeAlias = Callable[[Callable[[], None]], None]


class BatchLookups(Protocol):
    """From the ids of batches to their gradients. In the thread that computes, unless it says otherwise."""

    @property
    def traffic(self) -> TrafficCounts:
        """Between this worker and the shards."""

    def send(self, message: LookUp, batch: Batch, then: Callable[[LookupResult], None]) -> None:
        """Look a batch up; `then` gets the result."""

    def push(self, handle: Any, facts: PushFacts) -> InFlightPush:
        """The gradients in the outputs of a lookup, to the shards or into caches. HotrowError: no row has them."""

    def release(self, handle: Any) -> None:
        """A batch that was looked up gets no gradients."""

    def discard(self, result: LookupResult) -> None:
        """The same, of a lookup whose result nobody read."""

    def set_incarnation(self, shard: str, incarnation: int) -> None:
        """A shard was started again. In any thread."""


class ShardLookups:
    """Without caches: lookups end in any order, and leave nothing here."""

    def __init__(self, tables: ShardedTables, post: Post) -> None:
        self._tables, self._post = tables, post

    @property
    def traffic(self) -> TrafficCounts:
        return self._tables.traffic

    def send(self, message: LookUp, batch: Batch, then: Callable[[LookupResult], None]) -> None:
        self._tables.samples = message.trained
        place = None
        if message.step is not None:
            place = LookupStep(grant_of(message.sample), message.step, message.ahead)
        lookup = self._tables.prepare_lookup(
            batch, learn=True, versions=message.versions, after=message.after, place=place
        )
        self._when_looked(self._tables.exchange(None, lookup), then)

    def _when_looked(self, asked: PendingExchange, then: Callable[[LookupResult], None]) -> None:
        """In look-ahead the rest of a look-up is never answered where its first part was refused."""

        def looked(_: BaseException | None) -> None:
            self._post(lambda: then(asked.handle))

        def first_part(fault: BaseException | None) -> None:
            if fault is None and asked.rest:
                when_all(asked.rest, looked)
            else:
                looked(fault)

        when_all(asked.first, first_part)

    def push(self, handle: ShardedLookup, facts: PushFacts) -> InFlightPush:
        return self._tables.push(self._tables.gradients(handle, facts))

    def release(self, handle: ShardedLookup) -> None:
        """No effect."""

    def discard(self, result: LookupResult) -> None:
        """No effect."""

    def set_incarnation(self, shard: str, incarnation: int) -> None:
        self._tables.set_incarnation(shard, incarnation)


class CachedLookups:
    """With caches, which store rows in the order of the lookups.

    Rows of a batch are in use, and not evicted, from its lookup until its gradients, its release or its failure.
    """

    def __init__(self, tables: CachedTables, post: Post) -> None:
        self.tables, self._post = tables, post
        self._sent: deque[tuple[PendingCacheExchange, Callable[[LookupResult], None]]] = deque()

    @property
    def traffic(self) -> TrafficCounts:
        return self.tables.traffic

    def send(self, message: LookUp, batch: Batch, then: Callable[[LookupResult], None]) -> None:
        self.tables.samples = message.trained
        place = LookupStep(grant_of(message.sample), message.step or 0, ahead=False)
        lookup = self.tables.prepare_lookup(batch, learn=True, after=message.after, place=place)
        asked = self.tables.exchange(None, lookup)
        self._sent.append((asked, then))
        when_all(asked.replies, lambda _: self._post(self._receive))

    def _receive(self) -> None:
        """All results that need not be waited for."""
        while self._sent and self._sent[0][0].answered:
            asked, then = self._sent.popleft()
            then(asked.handle)

    def push(self, handle: CachedLookup, facts: PushFacts) -> InFlightPush:
        return self.tables.push(self.tables.gradients(handle, facts))

    def release(self, handle: CachedLookup) -> None:
        self.tables.release(handle)

    def discard(self, result: LookupResult) -> None:
        with suppress(HotrowError):  # a lookup that failed uses no row
            handle = result()
            assert isinstance(handle, CachedLookup)
            self.tables.release(handle)

    def set_incarnation(self, shard: str, incarnation: int) -> None:
        self.tables.set_incarnation(shard, incarnation)
        self._post(self._receive)  # lookups with rows that are lost have failed

    def reset(self, workers: int) -> None:
        """A mode begins, with so many embedding workers. Lookups of the one before have no result."""
        self._sent.clear()
        self.tables.reset(workers)


def lookups_of(
    tables: Mapping[str, Table],
    wire: RpcClient,
    shards: Sequence[str],
    values: Mapping[str, Values] | None,
    threads: int,
    post: Post,
) -> BatchLookups:
    """With caches where a table has one."""
    if cached_tables(tables):
        return CachedLookups(CachedTables(tables, wire, shards, values=values, threads=threads), post)
    return ShardLookups(ShardedTables(tables, wire, shards, values=values, threads=threads), post)
