"""The embedding client of a role that keeps rows of tables with a cache; other tables are read from the shards.

One request per shard and batch has the write-backs, clock checks and fetches of all cached tables (`CacheExchange`).
It travels while the batches before it are computed. Gradients of cached tables are applied to the cached rows, and
nothing is pushed for them. Thread-safe: batches are requested in one thread and computed in another.

The role is a trainer, or an embedding worker, through which batches of several trainers pass.

`OrderedExchanges` has the caches and what is in flight; here are batches: from ids to vectors, from gradients to sums.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from hotrow.cache.cache import RowCache
from hotrow.cache.ordered_exchanges import OrderedExchanges
from hotrow.cache.requests import (
    CachedLookup,
    CachedLookupRequest,
    CachedPush,
    FailedExchange,
    PendingCachedPush,
    PendingCacheExchange,
)
from hotrow.cache.shard_requests import ShardRequests
from hotrow.cache.table_vectors import vectors_of
from hotrow.client.pooled import InFlightExchange, InFlightPush
from hotrow.client.sharded import (
    LookupStep,
    PushFacts,
    RowPush,
    ShardedLookup,
    ShardedRequest,
    ShardedTables,
    TrafficCounts,
)
from hotrow.config import Table
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.store.shards import sharded
from hotrow.store.tiers import listed, named_tables
from hotrow.transport.client import RpcClient
from hotrow.types import Values


class CachedTables:
    """Tables on shards, by connection name, with the caches that some of them have."""

    def __init__(
        self,
        tables: Mapping[str, Table],
        wire: RpcClient,
        shards: Sequence[str],
        *,
        values: Mapping[str, Values] | None = None,
        threads: int | None = None,
        devices: Mapping[str, torch.device] | None = None,
    ) -> None:
        """`devices`: of tables whose cached rows are on one; those of the others are in host memory."""
        self.specs = named_tables(tables)
        self.threads = torch.get_num_threads() if threads is None else threads
        others = {name: table for name, table in self.specs.items() if table.cache is None}
        formats = {name: each for name, each in (values or {}).items() if name in others}
        self._plain = ShardedTables(others, wire, shards, values=formats, threads=threads) if others else None
        self.traffic = TrafficCounts() if self._plain is None else self._plain.traffic
        self._shards = len(shards)
        requests = ShardRequests(wire, shards, self.traffic, self.threads)
        self.exchanges = OrderedExchanges(self.specs, requests, devices)

    @property
    def caches(self) -> dict[str, RowCache]:
        """By table."""
        return self.exchanges.caches

    @property
    def epoch(self) -> int:
        """How often the caches were emptied."""
        return self.exchanges.epoch

    @property
    def samples(self) -> int:
        """With applied gradients."""
        return self.exchanges.samples

    @samples.setter
    def samples(self, samples: int) -> None:
        self.exchanges.samples = samples
        if self._plain is not None:
            self._plain.samples = samples

    def reset(self, workers: int = 1) -> None:
        """Forget all cached rows, with the changes that were not flushed: a mode begins, with so many workers."""
        self.exchanges.reset(workers)

    def set_incarnation(self, name: str, incarnation: int) -> None:
        """A shard was started again. Where it has lost rows, its cached ones are dropped; batches with them fail."""
        self.exchanges.set_incarnation(name, incarnation)
        if self._plain is not None:
            self._plain.set_incarnation(name, incarnation)

    def prepare_lookup(
        self,
        batch: Batch,
        *,
        learn: bool,
        versions: bool = False,
        after: int = 0,
        sample: int | None = None,
        place: LookupStep | None = None,
    ) -> CachedLookupRequest:
        """The distinct ids of a batch; `place` has its grant, and the epoch of the caches when its mode was open."""
        if sample is not None or place is None or place.ahead or not learn:
            raise InputError("cached rows are looked up to be trained, under a grant, by the role that has the ids")
        parts = self._cached_parts(batch)
        ids = {
            table: sharded(np.concatenate([part.keys for part in mine]), self._shards, self.threads)
            for table, mine in parts.items()
        }
        others = tuple(part for part in batch.parts if part.table not in parts)
        plain = None
        if self._plain is not None and others:
            rest = replace(batch, parts=others)
            plain = self._plain.prepare_lookup(rest, learn=learn, versions=versions, after=after)
        lookup = CachedLookupRequest(batch, place.grant, place.epoch or self.epoch, ids, plain)
        self.exchanges.add(lookup)
        return lookup

    def exchange(self, push: CachedPush | None, lookup: CachedLookupRequest) -> PendingCacheExchange:
        """Apply gradients unless they are None, and send a lookup, with those of tables without a cache."""
        exchanges = self.exchanges
        with exchanges.lock:
            exchanges.check_epoch(lookup)
            exchanges.apply(push)
            batch = exchanges.send(lookup)
            plain, pushed = self._send_plain(None if push is None else push.plain, lookup.plain)
            sent = PendingCacheExchange(self.received, batch, plain, pushed, self._changed_rows)
            exchanges.sent(sent)
        return sent

    def received(self, mine: PendingCacheExchange) -> CachedLookup:
        """The vectors of a lookup. Replies to requests that were sent before it are received first."""
        self.exchanges.receive_all_before(mine)
        if mine.fault is not None:  # its other tables need not be waited for
            raise mine.fault
        plain = None if mine.plain is None else self._received_plain(mine, mine.plain)
        rows = self.exchanges.read(mine)
        lookup = mine.lookup
        samples = len(lookup.batch)
        vectors = {
            table: vectors_of(self.caches[table], parts, lookup.ids[table], rows[table], samples, self.threads)
            for table, parts in self._cached_parts(lookup.batch).items()
        }
        outputs = {} if plain is None else {id(output.part): output for output in plain.outputs}
        for table, made in vectors.items():
            for output in made.outputs:
                outputs[id(output.part)] = output
                self.traffic.plain += len(output.part.keys) * (8 + 8 * self.specs[table].dim)
        ordered = tuple(outputs[id(part)] for part in lookup.batch.parts)
        return CachedLookup(samples, ordered, vectors, mine.batches, plain)

    def gradients(self, handle: CachedLookup, facts: PushFacts) -> CachedPush:
        """The gradients that backward left in the outputs, by distinct id."""
        if facts.arrival is None:
            raise InputError("cached rows take gradients on arrival: the mode of this batch applies them later")
        rows, unused = {}, []
        for table, vectors in handle.vectors.items():
            batch = handle.batches[table]
            if (found := vectors.sums()) is None:
                unused.append((table, batch))
                continue
            sums, used = found
            weights = np.full(len(batch.keys), facts.arrival.factor, np.float32)
            if used is not None:
                weights[~used] = 0
            rows[table] = batch, sums, weights
        plain = None if self._plain is None or handle.plain is None else self._plain.gradients(handle.plain, facts)
        return CachedPush(rows, unused, facts, plain)

    def push(self, push: CachedPush) -> PendingCachedPush:
        """Apply gradients to cached rows, and send those of other tables."""
        with self.exchanges.lock:
            self.exchanges.apply(push)
            _, plain = self._send_plain(push.plain, None)
        return PendingCachedPush(plain, self._changed_rows)

    def release(self, handle: CachedLookup) -> None:
        """A batch that was looked up gets no gradients: its rows are not in use any more."""
        self.exchanges.release(handle.batches)

    def flush(self, first: int, most: int) -> tuple[int, bool]:
        """Write changes back (`OrderedExchanges.flush`)."""
        return self.exchanges.flush(first, most)

    @property
    def changed_rows(self) -> int:
        """Rows with changes that no shard knows: they are lost with this role."""
        return self.exchanges.changed_rows

    def _changed_rows(self) -> int:
        return self.exchanges.changed_rows

    def figures(self) -> dict[str, float]:
        """Counters by name and table."""
        return self.exchanges.figures()

    def take_counts(self) -> dict[str, int]:
        """What was counted since the last call, by name and table: "cache_hits.user"."""
        return self.exchanges.take_counts()

    def _send_plain(
        self, push: RowPush | None, lookup: ShardedRequest | None
    ) -> tuple[InFlightExchange | None, InFlightPush | None]:
        """A lookup and gradients of tables without a cache, together. A failure is that of the reply."""
        if self._plain is None:
            return None, None
        try:
            if lookup is None:
                return None, None if push is None else self._plain.push(push)
            both = self._plain.exchange(push, lookup)
        except HotrowError as error:
            unsent = FailedExchange(error)
            return None if lookup is None else unsent, None if push is None else unsent
        return both, None if push is None else both

    def _received_plain(self, mine: PendingCacheExchange, plain: InFlightExchange) -> ShardedLookup:
        try:
            found: ShardedLookup = plain.handle()
        except Exception as error:
            self.exchanges.fail_unread(mine, error)
            raise
        return found

    def _cached_parts(self, batch: Batch) -> dict[str, list[FeatureBlock]]:
        """The parts of cached tables, by table."""
        parts: dict[str, list[FeatureBlock]] = {}
        for part in batch.parts:
            if part.table in self.caches:
                parts.setdefault(part.table, []).append(part)
            elif part.table not in self.specs:
                missing = f"table {part.table!r} of feature {part.features[0]!r} is missing"
                raise ConfigError(f"{missing}: there are {listed(self.specs)}")
        return parts
