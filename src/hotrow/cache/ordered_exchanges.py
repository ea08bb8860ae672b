"""The caches of all tables of a role, and their requests in flight. Thread-safe.

Replies are stored in the order in which the requests were sent: a batch that needs a row which an earlier one has
requested does not request it again. So a request that fails fails its batch and those that were requested after it.
The caches stay: changes of other rows are written back later. Only rows of a shard that has lost its own are dropped.

A batch whose lookup waits to be sent is announced to caches that evict by next use: of the batches that a trainer was
granted, some are in flight and the others wait. An embedding worker sends lookups at once, so none waits there.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from itertools import islice

import torch

from hotrow.cache.cache import CacheCounts, CachedBatch, RowCache, counts_since
from hotrow.cache.requests import CachedLookupRequest, CachedPush, DroppedChanges, PendingCacheExchange, SentBatch
from hotrow.cache.rows import RowValues
from hotrow.cache.shard_requests import ShardRequests
from hotrow.config import Table
from hotrow.errors import HotrowError, InputError
from hotrow.store.shards import shard_of
from hotrow.transport.client import Answer
from hotrow.transport.errors import RemoteFault
from hotrow.transport.messages import CacheExchanged


class OrderedExchanges:
    """`lock` orders requests: whoever sends one holds it from the update of rows before it on."""

    def __init__(
        self, tables: Mapping[str, Table], shards: ShardRequests, devices: Mapping[str, torch.device] | None = None
    ) -> None:
        """`devices`: of tables whose cached rows are on one."""
        self._devices = devices or {}
        self._tables = {name: table for name, table in tables.items() if table.cache is not None}
        self.shards = shards
        self.samples = 0
        self.epoch = 0  # of the caches: how often they were emptied
        self.lock = threading.Lock()
        self.in_flight: deque[PendingCacheExchange] = deque()  # in the order in which they were sent
        self.unread: list[PendingCacheExchange] = []  # these, and those that are received and not read
        self.waiting: deque[CachedLookupRequest] = deque()  # prepared and not sent
        self._refused = DroppedChanges()
        self.caches: dict[str, RowCache] = {}
        self._taken: dict[str, CacheCounts] = {}
        self.reset()

    def reset(self, workers: int = 1) -> None:
        """Forget all cached rows, with the changes that were not flushed: a mode begins, with so many workers."""
        with self.lock:
            self.epoch += 1
            counts = {name: cache.counts for name, cache in self.caches.items()}
            for cache in self.caches.values():
                cache.close()
            self.caches = {
                name: RowCache(
                    table,
                    table.cache,
                    workers=workers,
                    threads=self.shards.threads,
                    counts=counts.get(name),
                    device=self._devices.get(name),
                )
                for name, table in self._tables.items()
                if table.cache is not None
            }
            for waiting in self.waiting:
                waiting.announced.clear()
            self.waiting.clear()
            self.in_flight.clear()
            self.unread.clear()

    def set_incarnation(self, name: str, incarnation: int) -> None:
        """A shard was started again. Where it has lost rows, its cached ones are dropped; batches with them fail."""
        with self.lock:
            shard, shards = self.shards.shards.index(name), len(self.shards.shards)
            if incarnation == self.shards.incarnations[shard]:
                return
            self.shards.incarnations[shard] = incarnation
            lost = RemoteFault("lost", f"{name} was started again, and has lost rows that were cached", name)
            self.fail(self.unread, lost)
            for cache in self.caches.values():
                cache.drop(lambda keys: shard_of(keys, shards, self.shards.threads) == shard)

    def add(self, lookup: CachedLookupRequest) -> None:
        """A lookup that will be sent after those that were added before."""
        with self.lock:
            self.check_epoch(lookup)
            self.waiting.append(lookup)
            self._announce()

    def check_epoch(self, lookup: CachedLookupRequest) -> None:
        """A batch of an earlier mode is not computed: its rows would stay in use."""
        if lookup.epoch != self.epoch:
            raise InputError(f"grant={lookup.grant}: its mode ended before it was looked up")

    def send(self, lookup: CachedLookupRequest) -> SentBatch:
        """Request the rows of a lookup. Under `lock`, and followed by `sent`."""
        batches = {
            table: self.caches[table].begin(
                found.keys, samples=self.samples, announced=lookup.announced.pop(table, None)
            )
            for table, found in lookup.ids.items()
        }
        self.waiting.remove(lookup)
        self._announce()
        shares = self.shards.split({table: batch.request for table, batch in batches.items()})
        return SentBatch(lookup, batches, shares, self.shards.send(lookup.grant, self.samples, shares))

    def sent(self, exchange: PendingCacheExchange) -> None:
        """A request is in flight. Under `lock`."""
        self.in_flight.append(exchange)
        self.unread.append(exchange)

    def receive_all_before(self, mine: PendingCacheExchange) -> None:
        """Store the rows of a request, and first those of the requests before it."""
        with self.lock:
            earlier = list(self.in_flight) if not mine.received and mine.fault is None else []
        for each in earlier[: earlier.index(mine) + 1] if earlier else []:
            self.receive(each)

    def receive(self, sent: PendingCacheExchange) -> None:
        """Store the rows of a reply, unless that is done. All before it are stored."""
        try:
            answers = [each.result() for each in sent.rows]
            requests = {table: batch.request for table, batch in sent.batches.items()}
            whole = self.shards.replies(answers, sent.shares, self.caches, requests)
        except Exception as error:
            with self.lock:
                if sent in self.in_flight:
                    self.fail(self.unread[self.unread.index(sent) :], error)
            raise
        with self.lock:
            if sent not in self.in_flight:  # it is received or has failed, or a mode began since
                return
            for table, batch in sent.batches.items():
                self.caches[table].receive(batch, whole[table])
            self.shards.traffic.received += sum(frame.nbytes for answer in answers for frame in answer.frames)
            sent.received = True
            self.in_flight.remove(sent)

    def read(self, mine: PendingCacheExchange) -> dict[str, RowValues]:
        """The rows of a request that is received, by table."""
        with self.lock:
            if mine.fault is not None:
                raise mine.fault
            self.unread.remove(mine)
            return {table: self.caches[table].read(batch) for table, batch in mine.batches.items()}

    def fail(self, which: Sequence[PendingCacheExchange], error: Exception) -> None:
        """Batches that are not read will not be computed. Changes that were sent with them are on the way.

        Under `lock`.
        """
        for sent in list(which):
            sent.fault = error
            self.unread.remove(sent)
            if not sent.received:
                self.in_flight.remove(sent)
                self._refused.watch(sent.rows, sent.shares)
            for table, batch in sent.batches.items():
                self.caches[table].finish(batch)

    def fail_unread(self, mine: PendingCacheExchange, error: Exception) -> None:
        """The other half of a batch has failed: it is not computed."""
        with self.lock:
            if mine in self.unread:
                self.fail([mine], error)

    def apply(self, push: CachedPush | None) -> None:
        """Update cached rows, and release those of the batch. Under `lock`."""
        if push is None or push.facts.arrival is None:
            return
        arrival = push.facts.arrival
        self.samples = max(self.samples, arrival.samples)
        for table, (batch, sums, weights) in push.rows.items():
            cache = self.caches[table]
            cache.apply(batch, sums, weights, samples=self.samples, lr_scale=arrival.lr_scale)
            cache.finish(batch)
        for table, batch in push.unused:
            self.caches[table].finish(batch)

    def release(self, batches: Mapping[str, CachedBatch]) -> None:
        """The rows of a batch that was read are not in use any more; some may be released already."""
        with self.lock:
            for table, batch in batches.items():
                self.caches[table].finish(batch)

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
            with self.lock:
                in_flight = list(self.in_flight)
                if not in_flight:  # a reply to a request before the flush would be without its changes
                    return self._send_changes(first, most)
            for each in in_flight:
                with suppress(HotrowError):  # its batch fails with it
                    self.receive(each)

    def _send_changes(self, first: int, most: int) -> tuple[list[Future[Answer]], int, bool]:
        asked: list[Future[Answer]] = []
        rows, number = 0, first
        for name, cache in self.caches.items():
            requests = cache.take_all_changes(samples=self.samples, bytes_most=self.shards.flush_bytes)
            for request in islice(requests, first + most - number):  # changes without a number stay
                shares = self.shards.split({name: request})
                sent = self.shards.send(0, self.samples, shares, flush=number)
                self._refused.watch(sent, shares)
                asked += sent
                rows += len(request.changes)
                number += 1
        return asked, rows, not any(cache.changed_rows for cache in self.caches.values())

    @property
    def changed_rows(self) -> int:
        """Rows with changes that no shard knows."""
        with self.lock:
            return sum(cache.changed_rows for cache in self.caches.values())

    def figures(self) -> dict[str, float]:
        """Counters by name and table."""
        with self.lock:
            found = counts_since({}, self._counts())
            for name, cache in self.caches.items():
                found |= {f"cache_rows.{name}": len(cache.tier), f"cache_changed.{name}": cache.changed_rows}
                found |= {f"cache_batches.{name}": cache.batches_in_use, f"cache_workers.{name}": cache.workers}
                if (copies := cache.copies) is not None:
                    found |= {
                        f"cache_to_device.{name}": copies.bytes_up,
                        f"cache_from_device.{name}": copies.bytes_down,
                    }
        return {name: float(number) for name, number in found.items()}

    def take_counts(self) -> dict[str, int]:
        """What was counted since the last call, by name and table: "cache_hits.user"."""
        with self.lock:
            now = self._counts()
        taken, self._taken = self._taken, now
        return counts_since(taken, now)

    def _counts(self) -> dict[str, CacheCounts]:
        refused = self._refused.rows
        return {
            name: replace(cache.counts, dropped=cache.counts.dropped + refused[name])
            for name, cache in self.caches.items()
        }

    def _announce(self) -> None:
        """Tell the caches of the batches that wait, each as many as its window has."""
        for table, cache in self.caches.items():
            for lookup in self.waiting:
                if cache.window_left == 0:
                    break
                if table in lookup.ids and table not in lookup.announced:
                    lookup.announced[table] = cache.announce(lookup.ids[table].keys)
