"""The embedding client of a trainer that keeps rows of tables with a cache; other tables are read from the shards.

One request per shard and batch has the write-backs, clock checks and fetches of all cached tables (`CacheExchange`).
It travels while the batches before it are computed. Gradients of cached tables are applied to the cached rows, and
nothing is pushed for them. Thread-safe: batches are requested in one thread and computed in another.

A request that fails fails its batch and those that were requested after it, since they may need the same rows. The
caches stay: changes of other rows are written back later. Only rows of a shard that has lost its own are dropped.

A batch whose lookup waits to be sent is announced to caches that evict by next use: of the batches that a trainer was
granted, some are in flight and the others wait.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import numpy as np
import torch

from hotrow.cache.cache import CacheCounts, RowCache, counts_since
from hotrow.cache.exchange import CacheReply, CacheRequest
from hotrow.cache.requests import (
    CachedLookup,
    CachedLookupRequest,
    CachedPush,
    DroppedChanges,
    FailedExchange,
    PendingCachedPush,
    PendingCacheExchange,
    failed,
)
from hotrow.cache.shares import ShardShare, joined_reply, split_by_shard
from hotrow.client.pooled import InFlightExchange, InFlightPush
from hotrow.client.pooling import folded, shares_of, spread
from hotrow.client.sharded import (
    LookupStep,
    PushFacts,
    RowPush,
    ShardedLookup,
    ShardedRequest,
    ShardedTables,
    TrafficCounts,
    exchanged,
)
from hotrow.config import Table
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.store.shards import shard_of, sharded
from hotrow.store.tiers import listed, named_tables
from hotrow.transport.cache_frames import pack_request, reply_frames, unpack_reply
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.envelope import Buffer
from hotrow.transport.errors import RemoteFault
from hotrow.transport.messages import CacheBlock, CacheExchange, CacheExchanged, Exchange
from hotrow.types import Values

FLUSH_BYTES = 2**24  # of a request of a flush; those that one message orders are in memory together


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
    ) -> None:
        self.specs = named_tables(tables)
        self.threads = torch.get_num_threads() if threads is None else threads
        self._wire, self._shards = wire, tuple(shards)
        others = {name: table for name, table in self.specs.items() if table.cache is None}
        formats = {name: each for name, each in (values or {}).items() if name in others}
        self._plain = ShardedTables(others, wire, shards, values=formats, threads=threads) if others else None
        self.traffic = TrafficCounts() if self._plain is None else self._plain.traffic
        self._incarnations = [exchanged(wire.request(name, Exchange(0)).result()).incarnation for name in shards]
        self._samples = 0
        self.epoch = 0  # of the caches: how often they were emptied
        self._lock = threading.Lock()
        self._in_flight: deque[PendingCacheExchange] = deque()  # in the order in which they were sent
        self._unread: list[PendingCacheExchange] = []  # these, and those that are received and not read
        self._refused = DroppedChanges()
        self._waiting: deque[CachedLookupRequest] = deque()  # prepared and not sent
        self.caches: dict[str, RowCache] = {}
        self._taken: dict[str, CacheCounts] = {}
        self.reset()

    @property
    def samples(self) -> int:
        """With applied gradients."""
        return self._samples

    @samples.setter
    def samples(self, samples: int) -> None:
        self._samples = samples
        if self._plain is not None:
            self._plain.samples = samples

    def reset(self, workers: int = 1) -> None:
        """Forget all cached rows, with the changes that were not flushed: a mode begins, with so many workers."""
        with self._lock:
            self.epoch += 1
            counts = {name: cache.counts for name, cache in self.caches.items()}
            for cache in self.caches.values():
                cache.close()
            self.caches = {
                name: RowCache(table, table.cache, workers=workers, threads=self.threads, counts=counts.get(name))
                for name, table in self.specs.items()
                if table.cache is not None
            }
            for waiting in self._waiting:
                waiting.announced.clear()
            self._waiting.clear()
            self._in_flight.clear()
            self._unread.clear()

    def set_incarnation(self, name: str, incarnation: int) -> None:
        """A shard was started again. Where it has lost rows, its cached ones are dropped; batches with them fail."""
        with self._lock:
            shard, shards = self._shards.index(name), len(self._shards)
            if incarnation != self._incarnations[shard]:
                self._incarnations[shard] = incarnation
                lost = RemoteFault("lost", f"{name} was started again, and has lost rows that were cached", name)
                self._fail(self._unread, lost)
                for cache in self.caches.values():
                    cache.drop(lambda keys: shard_of(keys, shards, self.threads) == shard)
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
            raise InputError("cached rows are looked up to be trained, under a grant, and without embedding workers")
        parts = self._cached_parts(batch)
        ids = {
            table: sharded(np.concatenate([part.keys for part in mine]), len(self._shards), self.threads)
            for table, mine in parts.items()
        }
        others = tuple(part for part in batch.parts if part.table not in parts)
        plain = None
        if self._plain is not None and others:
            rest = replace(batch, parts=others)
            plain = self._plain.prepare_lookup(rest, learn=learn, versions=versions, after=after)
        with self._lock:
            lookup = CachedLookupRequest(batch, place.grant, place.epoch or self.epoch, ids, plain)
            self._check_epoch(lookup)
            self._waiting.append(lookup)
            self._announce()
        return lookup

    def exchange(self, push: CachedPush | None, lookup: CachedLookupRequest) -> PendingCacheExchange:
        """Apply gradients unless they are None, and send a lookup, with those of tables without a cache."""
        with self._lock:
            self._check_epoch(lookup)
            self._apply(push)
            batches = {
                table: self.caches[table].begin(
                    found.keys, samples=self._samples, announced=lookup.announced.pop(table, None)
                )
                for table, found in lookup.ids.items()
            }
            self._waiting.remove(lookup)
            self._announce()
            shares = self._split({table: batch.request for table, batch in batches.items()})
            rows = self._send(lookup.grant, shares)
            plain, pushed = self._send_plain(None if push is None else push.plain, lookup.plain)
            sent = PendingCacheExchange(self.received, lookup, batches, shares, rows, plain, pushed)
            self._in_flight.append(sent)
            self._unread.append(sent)
        return sent

    def received(self, mine: PendingCacheExchange) -> CachedLookup:
        """The vectors of a lookup. Replies to requests that were sent before it are received first."""
        with self._lock:
            earlier = list(self._in_flight) if not mine.received and mine.fault is None else []
        for each in earlier[: earlier.index(mine) + 1] if earlier else []:
            self._receive(each)
        plain = None if mine.plain is None else self._received_plain(mine, mine.plain)
        rows = {}
        with self._lock:
            if mine.fault is not None:
                raise mine.fault
            self._unread.remove(mine)
            for table, batch in mine.batches.items():
                rows[table] = np.empty((len(batch.keys), self.specs[table].dim), np.float32)
                self.caches[table].read(batch, rows[table])
        lookup = mine.lookup
        outputs = {} if plain is None else {id(output.part): output for output in plain.outputs}
        for table, parts in self._cached_parts(lookup.batch).items():
            for part, which in zip(parts, shares_of(lookup.ids[table].inverse, parts), strict=True):
                outputs[id(part)] = spread(part, rows[table], which, len(lookup.batch), self.threads)
                outputs[id(part)].rows.requires_grad_(True)
                self.traffic.plain += len(part.keys) * (8 + 8 * self.specs[table].dim)
        ordered = tuple(outputs[id(part)] for part in lookup.batch.parts)
        return CachedLookup(len(lookup.batch), ordered, lookup.ids, mine.batches, plain)

    def gradients(self, handle: CachedLookup, facts: PushFacts) -> CachedPush:
        """The gradients that backward left in the outputs, by distinct id."""
        if facts.arrival is None:
            raise InputError("cached rows take gradients on arrival: the mode of this batch applies them later")
        rows, unused = {}, []
        for table, found in handle.ids.items():
            outputs = [output for output in handle.outputs if output.part.table == table]
            if all(output.rows.grad is None for output in outputs):
                unused.append((table, handle.batches[table]))
                continue
            sums, used = folded(outputs, found.inverse, len(found.keys), self.threads)
            weights = np.full(len(found.keys), 0.0 if used is not None else facts.arrival.factor, np.float32)
            if used is not None:
                weights[used] = facts.arrival.factor
            rows[table] = handle.batches[table], sums, weights
        plain = None if self._plain is None or handle.plain is None else self._plain.gradients(handle.plain, facts)
        return CachedPush(rows, unused, facts, plain)

    def push(self, push: CachedPush) -> PendingCachedPush:
        """Apply gradients to cached rows, and send those of other tables."""
        with self._lock:
            self._apply(push)
            plain = None if self._plain is None or push.plain is None else self._plain.push(push.plain)
        return PendingCachedPush(plain)

    def flush(self, first: int, most: int) -> tuple[int, bool]:
        """Write changes back, in at most `most` requests with numbers from `first` on; returns their rows, and whether
        that were all changes.

        Requests in flight are received first. Changes of a shard that has lost its rows are lost, too, and counted.
        """
        asked, rows, whole = self._begin_flush(first, most)
        for reply in asked:
            try:
                reply.result().of(CacheExchanged, "a shard")
            except RemoteFault as fault:
                if fault.kind != "lost":
                    raise
        return rows, whole

    def _begin_flush(self, first: int, most: int) -> tuple[list[Future[Answer]], int, bool]:
        while True:
            with self._lock:
                in_flight = list(self._in_flight)
                if not in_flight:  # a reply to a request before the flush would be without its changes
                    return self._send_changes(first, most)
            for each in in_flight:
                with suppress(HotrowError):  # its batch fails with it
                    self._receive(each)

    def _send_changes(self, first: int, most: int) -> tuple[list[Future[Answer]], int, bool]:
        asked: list[Future[Answer]] = []
        rows, number, bytes_most = 0, first, min(FLUSH_BYTES, self._wire.limits.frame_bytes)
        for name, cache in self.caches.items():
            requests = cache.take_all_changes(samples=self._samples, bytes_most=bytes_most)
            for request in islice(requests, first + most - number):  # changes without a number stay
                shares = self._split({name: request})
                sent = self._send(0, shares, flush=number)
                self._refused.watch(sent, shares)
                asked += sent
                rows += len(request.changes)
                number += 1
        return asked, rows, not any(cache.changed_rows for cache in self.caches.values())

    @property
    def changed_rows(self) -> int:
        """Rows with changes that no shard knows: they are lost with this trainer."""
        with self._lock:
            return sum(cache.changed_rows for cache in self.caches.values())

    def figures(self) -> dict[str, float]:
        """Counters by name and table."""
        with self._lock:
            found = counts_since({}, self._counts())
            for name, cache in self.caches.items():
                found |= {f"cache_rows.{name}": len(cache.tier), f"cache_changed.{name}": cache.changed_rows}
        return {name: float(number) for name, number in found.items()}

    def take_counts(self) -> dict[str, int]:
        """What was counted since the last call, by name and table: "cache_hits.user"."""
        with self._lock:
            now = self._counts()
        taken, self._taken = self._taken, now
        return counts_since(taken, now)

    def _counts(self) -> dict[str, CacheCounts]:
        refused = self._refused.rows
        return {
            name: replace(cache.counts, dropped=cache.counts.dropped + refused[name])
            for name, cache in self.caches.items()
        }

    def _check_epoch(self, lookup: CachedLookupRequest) -> None:
        """A batch of an earlier mode is not computed: its rows would stay in use."""
        if lookup.epoch != self.epoch:
            raise InputError(f"grant={lookup.grant}: its mode ended before it was looked up")

    def _announce(self) -> None:
        """Tell the caches of the batches that wait, each as many as its window has."""
        for table, cache in self.caches.items():
            for lookup in self._waiting:
                if cache.window_left == 0:
                    break
                if table in lookup.ids and table not in lookup.announced:
                    lookup.announced[table] = cache.announce(lookup.ids[table].keys)

    def _apply(self, push: CachedPush | None) -> None:
        if push is None or push.facts.arrival is None:
            return
        arrival = push.facts.arrival
        self._samples = max(self._samples, arrival.samples)
        for table, (batch, sums, weights) in push.rows.items():
            cache = self.caches[table]
            cache.apply(batch, sums, weights, samples=self._samples, lr_scale=arrival.lr_scale)
            cache.finish(batch)
        for table, batch in push.unused:
            self.caches[table].finish(batch)

    def _split(self, requests: Mapping[str, CacheRequest]) -> dict[str, list[ShardShare]]:
        shards = len(self._shards)
        return {table: split_by_shard(request, shards, self.threads) for table, request in requests.items()}

    def _send(self, grant: int, shares: Mapping[str, Sequence[ShardShare]], *, flush: int = 0) -> list[Future[Answer]]:
        asked = []
        for shard, name in enumerate(self._shards):
            blocks: list[CacheBlock] = []
            frames: list[Buffer] = []
            for table, mine in shares.items():
                head, buffers = pack_request(table, mine[shard].request)
                blocks.append(head)
                frames += buffers
            self.traffic.sent += sum(memoryview(frame).nbytes for frame in frames)
            exchange = CacheExchange(self._incarnations[shard], grant, self._samples, tuple(blocks), flush)
            try:
                reply = self._wire.request(name, exchange, frames, deadline=not flush)  # a shard may start meanwhile
            except HotrowError as error:  # the changes have left the caches: their batch fails as without a reply
                reply = failed(error)
            asked.append(reply)
        return asked

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
            with self._lock:
                if mine in self._unread:
                    self._fail([mine], error)
            raise
        return found

    def _receive(self, sent: PendingCacheExchange) -> None:
        """Store the rows of a reply, unless that is done. All before it are stored.

        Where it fails, so do the batches that were requested later: they may rely on its rows.
        """
        try:
            answers = [each.result() for each in sent.rows]
            replies = [self._unpacked(answer, sent, shard) for shard, answer in enumerate(answers)]
            whole = {
                table: joined_reply(batch.request, sent.shares[table], [reply[table] for reply in replies])
                for table, batch in sent.batches.items()
            }
        except Exception as error:
            with self._lock:
                if sent in self._in_flight:
                    self._fail(self._unread[self._unread.index(sent) :], error)
            raise
        with self._lock:
            if sent not in self._in_flight:  # it is received or has failed, or a mode began since
                return
            for table, batch in sent.batches.items():
                self.caches[table].receive(batch, whole[table])
            self.traffic.received += sum(frame.nbytes for answer in answers for frame in answer.frames)
            sent.received = True
            self._in_flight.remove(sent)

    def _fail(self, which: Sequence[PendingCacheExchange], error: Exception) -> None:
        """Batches that are not read will not be computed. Changes that were sent with them are on the way."""
        for sent in list(which):
            sent.fault = error
            self._unread.remove(sent)
            if not sent.received:
                self._in_flight.remove(sent)
                self._refused.watch(sent.rows, sent.shares)
            for table, batch in sent.batches.items():
                self.caches[table].finish(batch)

    def _unpacked(self, answer: Answer, sent: PendingCacheExchange, shard: int) -> dict[str, CacheReply]:
        """The reply of a shard, by table."""
        message, frames = answer.of(CacheExchanged, self._shards[shard]), iter(answer.frames)
        if [block.table for block in message.blocks] != list(sent.shares):
            raise InputError(f"{self._shards[shard]}: rows of other tables came than {listed(sent.shares)}")
        found = {}
        for block in message.blocks:
            mine = list(islice(frames, reply_frames(block)))
            request, tier = sent.shares[block.table][shard].request, self.caches[block.table].tier
            found[block.table] = unpack_reply(block, mine, request, tier)
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
