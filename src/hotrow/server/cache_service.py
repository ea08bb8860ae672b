"""A shard's answers to caches: changes are added once for each request, then clocks are checked and rows are read.

The log of a table's segment knows which requests were added, by marks of their own: no other push comes to a table with
a cache. Marks of grants are even, those of flushes odd, so that neither takes the other's place in the log.
"""

from collections.abc import Sequence

import numpy as np

from hotrow.cache.exchange import CacheReply, CacheRequest, add_changes, read_rows
from hotrow.config import Cache
from hotrow.errors import InputError
from hotrow.server.push_ledger import MARKS
from hotrow.server.pushes import SeenGrants
from hotrow.server.shard import Shard
from hotrow.store import Applied
from hotrow.transport.cache_frames import REQUEST_FRAMES, pack_reply, unpack_request
from hotrow.transport.envelope import Buffer
from hotrow.transport.messages import CachedRowsBlock, CacheExchange, CacheExchanged, Taken


def mark_of(exchange: CacheExchange) -> int:
    """The number of a request in the log of its tables; InputError where it has none, or two."""
    if bool(exchange.grant) == bool(exchange.flush):
        raise InputError(f"cache: grant={exchange.grant}, flush={exchange.flush}: give one of them")
    return MARKS * exchange.grant if exchange.grant else MARKS * exchange.flush + 1


class CacheService:
    """Answers the caches of all trainers."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._grants, self._flushes = SeenGrants(), SeenGrants()  # whose changes are added; numbered independently

    def answer(self, exchange: CacheExchange, frames: Sequence[Buffer]) -> tuple[CacheExchanged, list[Buffer]]:
        """Add changes, check clocks and read rows; everything is checked before anything changes."""
        requests = self._unpacked(exchange, frames)
        taken = self._add_all(exchange, requests)
        tables = self._shard.tables
        tables.samples = max(tables.samples, exchange.samples)
        blocks: list[CachedRowsBlock] = []
        rows: list[Buffer] = []
        for block, request in zip(exchange.blocks, requests, strict=True):
            head, buffers = pack_reply(block.table, self._read(block.table, request))
            blocks.append(head)
            rows += buffers
        return CacheExchanged(self._shard.incarnation, taken, tuple(blocks)), rows

    def _add_all(self, exchange: CacheExchange, requests: Sequence[CacheRequest]) -> Taken:
        """A request that arrives again adds nothing; neither does one that is too old to tell, which is counted."""
        mark = mark_of(exchange)
        number, seen = (exchange.grant, self._grants) if exchange.grant else (exchange.flush, self._flushes)
        if number in seen:
            if seen.forgotten(number):
                self._shard.orders.count({"forgotten": 1})
            else:
                self._shard.counts["again"] += 1
            return Taken(again=True)
        added = Applied(0, 0, 0)
        for block, request in zip(exchange.blocks, requests, strict=True):
            added += self._add(block.table, request, mark)
        seen.add(number)
        return Taken(refused=added.refused, missing=added.absent + added.unadmitted)

    def _read(self, table: str, request: CacheRequest) -> CacheReply:
        shard = self._shard
        reply = read_rows(shard.input.tier(table), request, self._cache(table), samples=shard.tables.samples)
        shard.counts["pulled_rows"] += len(reply.rows.keys)
        shard.counts["cache_checks"] += len(request.checked)
        shard.counts["cache_invalid"] += int(reply.invalid.sum())
        return reply

    def _add(self, table: str, request: CacheRequest, mark: int) -> Applied:
        shard = self._shard
        if not len(request.changes) or not shard.pushes.begin_push(table, mark):
            return Applied(0, 0, 0)
        added = add_changes(shard.input.tier(table), request, self._cache(table), step=shard.step)
        shard.pushes.finish_push(table, mark)
        shard.tables.samples = max(shard.tables.samples, request.samples)
        shard.counts["cache_written"] += added.rows
        shard.orders.count({"refused": added.refused, "missing": added.absent + added.unadmitted})
        return added

    def _unpacked(self, exchange: CacheExchange, frames: Sequence[Buffer]) -> list[CacheRequest]:
        shard, blocks = self._shard, exchange.blocks
        if len(frames) != REQUEST_FRAMES * len(blocks) or len({block.table for block in blocks}) != len(blocks):
            raise InputError(f"cache: {len(frames)} frames came for {len(blocks)} tables: send each table once")
        requests = []
        size = 0
        for number, block in enumerate(blocks):
            tier, mine = shard.input.tier(block.table), frames[REQUEST_FRAMES * number : REQUEST_FRAMES * (number + 1)]
            self._cache(block.table)
            request = unpack_request(block, mine, tier)
            shard.input.check_mine("cache", block.table, request.changes.keys)
            read = np.concatenate([request.checked, request.fetched])
            shard.input.check_mine("cache", block.table, read)
            if tier.batch(read).unique != len(read):
                raise InputError(f"cache: keys of table {block.table!r} occur twice: check or fetch each once")
            size += 4 * (tier.dim + tier.state_dim + 2) * len(read)
            requests.append(request)
        if size > shard.pull_bytes:
            raise InputError(f"cache: {size:,} bytes of rows, at most {shard.pull_bytes:,}: take a smaller local_batch")
        return requests

    def _cache(self, table: str) -> Cache:
        if (cache := self._shard.tables.specs[table].cache) is None:
            raise InputError(f"table {table!r} has no cache: send pushes and pulls")
        return cache
