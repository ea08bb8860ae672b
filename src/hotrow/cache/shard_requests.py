"""Requests of caches to the shards, one message per shard for all cached tables, and the replies by table."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import islice

from hotrow.cache.cache import RowCache
from hotrow.cache.exchange import CacheReply, CacheRequest
from hotrow.cache.requests import failed
from hotrow.cache.shares import ShardShare, joined_reply, split_by_shard
from hotrow.client.sharded import TrafficCounts, exchanged
from hotrow.errors import HotrowError, InputError
from hotrow.store.tiers import listed
from hotrow.transport.cache_frames import pack_request, reply_frames, unpack_reply
from hotrow.transport.client import Answer, RpcClient
from hotrow.transport.envelope import Buffer
from hotrow.transport.messages import CacheBlock, CacheExchange, CacheExchanged, Exchange

FLUSH_BYTES = 2**24  # of a request of a flush; those that one message orders are in memory together


class ShardRequests:
    """Shards by connection name, and the incarnation that is known of each."""

    def __init__(self, wire: RpcClient, shards: Sequence[str], traffic: TrafficCounts, threads: int) -> None:
        self.shards, self.traffic, self.threads = tuple(shards), traffic, threads
        self.wire = wire
        self.incarnations = [exchanged(wire.request(name, Exchange(0)).result()).incarnation for name in shards]

    @property
    def flush_bytes(self) -> int:
        """The most that a request of a flush may have."""
        return min(FLUSH_BYTES, self.wire.limits.frame_bytes)

    def split(self, requests: Mapping[str, CacheRequest]) -> dict[str, list[ShardShare]]:
        """The requests of tables, by table and shard."""
        count = len(self.shards)
        return {table: split_by_shard(request, count, self.threads) for table, request in requests.items()}

    def send(
        self, grant: int, samples: int, shares: Mapping[str, Sequence[ShardShare]], *, flush: int = 0
    ) -> list[Future[Answer]]:
        """One message to each shard. One that cannot be sent is as one without a reply: changes have left the caches.

        `flush`: the number of a flush, which has no deadline: a shard may start meanwhile.
        """
        asked = []
        for shard, name in enumerate(self.shards):
            blocks: list[CacheBlock] = []
            frames: list[Buffer] = []
            for table, mine in shares.items():
                head, buffers = pack_request(table, mine[shard].request)
                blocks.append(head)
                frames += buffers
            self.traffic.sent += sum(memoryview(frame).nbytes for frame in frames)
            exchange = CacheExchange(self.incarnations[shard], grant, samples, tuple(blocks), flush)
            try:
                reply = self.wire.request(name, exchange, frames, deadline=not flush)
            except HotrowError as error:
                reply = failed(error)
            asked.append(reply)
        return asked

    def replies(
        self,
        answers: Sequence[Answer],
        shares: Mapping[str, Sequence[ShardShare]],
        caches: Mapping[str, RowCache],
        requests: Mapping[str, CacheRequest],
    ) -> dict[str, CacheReply]:
        """The answers of all shards, by table."""
        by_shard = [self._unpacked(answer, shard, shares, caches) for shard, answer in enumerate(answers)]
        return {
            table: joined_reply(request, shares[table], [reply[table] for reply in by_shard])
            for table, request in requests.items()
        }

    def _unpacked(
        self, answer: Answer, shard: int, shares: Mapping[str, Sequence[ShardShare]], caches: Mapping[str, RowCache]
    ) -> dict[str, CacheReply]:
        message, frames = answer.of(CacheExchanged, self.shards[shard]), iter(answer.frames)
        if [block.table for block in message.blocks] != list(shares):
            raise InputError(f"{self.shards[shard]}: rows of other tables came than {listed(shares)}")
        found = {}
        for block in message.blocks:
            mine = list(islice(frames, reply_frames(block)))
            request, tier = shares[block.table][shard].request, caches[block.table].tier
            found[block.table] = unpack_reply(block, mine, request, tier)
        return found
