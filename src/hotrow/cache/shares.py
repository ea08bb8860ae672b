"""The request of a cache as one for each shard, and the replies of the shards as one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotrow.cache.exchange import CacheReply, CacheRequest
from hotrow.store.arrays import Flags
from hotrow.store.rows import Rows
from hotrow.store.shards import shard_of

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ShardShare:
    """What one shard gets of a request, and the places of its keys there."""

    request: CacheRequest
    checked: I64
    fetched: I64


def split_by_shard(request: CacheRequest, shards: int, threads: int = 1) -> list[ShardShare]:
    """One share for each shard; it may be empty."""
    changes = request.changes
    homes = [shard_of(keys, shards, threads) for keys in (changes.keys, request.checked, request.fetched)]
    shares = []
    for shard in range(shards):
        changed, checked, fetched = (np.flatnonzero(home == shard) for home in homes)
        mine = CacheRequest(
            changes if shards == 1 else changes.some(changed),
            request.samples,
            request.checked[checked],
            request.clocks[checked],
            request.fetched[fetched],
        )
        shares.append(ShardShare(mine, checked, fetched))
    return shares


def joined_reply(request: CacheRequest, shares: Sequence[ShardShare], replies: Sequence[CacheReply]) -> CacheReply:
    """The replies of all shards, in the order of the whole request."""
    if len(replies) == 1:
        return replies[0]
    invalid: Flags = np.zeros(len(request.checked), np.bool_)
    for share, reply in zip(shares, replies, strict=True):
        invalid[share.checked] = reply.invalid
    places, first = np.cumsum(invalid) - 1, int(invalid.sum())
    count, like = first + len(request.fetched), replies[0].rows
    keys = np.concatenate([request.checked[invalid], request.fetched])
    rows = Rows(
        keys,
        np.empty((count, like.values.shape[1]), np.float32),
        np.empty((count, like.state.shape[1]), np.float32),
        {name: np.empty(count, np.uint32) for name in like.fields},
    )
    for share, reply in zip(shares, replies, strict=True):
        at = np.concatenate([places[share.checked[reply.invalid]], first + share.fetched])
        rows.values[at], rows.state[at] = reply.rows.values, reply.rows.state
        for name, column in reply.rows.fields.items():
            rows.fields[name][at] = column
    return CacheReply(invalid, rows)
