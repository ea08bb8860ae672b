"""Requests and replies of caches as frames and back. Counts and lengths are checked before anything is allocated."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hotrow.cache.changes import Changes
from hotrow.cache.exchange import CacheReply, CacheRequest
from hotrow.cache.rows import CacheRows
from hotrow.errors import InputError
from hotrow.store import RamTier, Rows
from hotrow.transport.envelope import Buffer
from hotrow.transport.messages import CacheBlock, CachedRowsBlock

REQUEST_FRAMES = 5
REPLY_FRAMES = 4  # one more with periods


def pack_request(table: str, request: CacheRequest) -> tuple[CacheBlock, list[Buffer]]:
    """The request of one table and its frames."""
    changes = request.changes
    head = CacheBlock(
        table,
        len(changes),
        len(request.checked),
        len(request.fetched),
        changes.values.shape[1],
        changes.state.shape[1],
        request.samples,
    )
    columns: list[NDArray[Any]] = [
        np.concatenate([changes.keys, request.checked, request.fetched]),
        changes.values,
        changes.state,
        np.concatenate([changes.clocks, request.clocks]),
        changes.updates,
    ]
    return head, _bytes_of(columns)


def unpack_request(head: CacheBlock, frames: Sequence[Buffer], tier: RamTier) -> CacheRequest:
    """The request of a table for its tier; arrays share the memory of the frames."""
    _check_width(head, tier.dim, tier.state_dim)
    changed, checked, all_keys = head.changed, head.checked, head.changed + head.checked + head.fetched
    keys, values, state, clocks, updates = _arrays(
        head.table,
        frames,
        [
            ("keys", np.uint64, (all_keys,)),
            ("values", np.float32, (changed, head.dim)),
            ("state", np.float32, (changed, head.state_dim)),
            ("clocks", np.uint32, (changed + checked,)),
            ("updates", np.uint32, (changed,)),
        ],
    )
    periods = np.zeros(changed, np.uint32)  # all state is of the period of `samples`
    changes = Changes(keys[:changed], values, state, clocks[:changed], updates, periods)
    ends = changed + checked
    return CacheRequest(changes, head.samples, keys[changed:ends], clocks[changed:], keys[ends:])


def pack_reply(table: str, reply: CacheReply) -> tuple[CachedRowsBlock, list[Buffer]]:
    """The reply for one table and its frames."""
    rows, has_periods = reply.rows, "period" in reply.rows.fields
    head = CachedRowsBlock(
        table, len(reply.invalid), len(rows.keys), rows.values.shape[1], rows.state.shape[1], has_periods
    )
    columns: list[NDArray[Any]] = [np.packbits(reply.invalid), rows.values, rows.state, rows.fields["clock"]]
    if has_periods:
        columns.append(rows.fields["period"])
    return head, _bytes_of(columns)


def unpack_reply(head: CachedRowsBlock, frames: Sequence[Buffer], request: CacheRequest, tier: CacheRows) -> CacheReply:
    """The reply to a request, for the rows of a cache."""
    _check_width(head, tier.dim, tier.state_dim)
    if head.checked != len(request.checked) or head.periods != ("period" in tier.fields):
        raise InputError(f"table {head.table!r}: a reply to another request came")
    shapes: list[tuple[str, DTypeLike, tuple[int, ...]]] = [
        ("invalid", np.uint8, (-(-head.checked // 8),)),
        ("values", np.float32, (head.rows, head.dim)),
        ("state", np.float32, (head.rows, head.state_dim)),
        ("clocks", np.uint32, (head.rows,)),
    ]
    if head.periods:
        shapes.append(("periods", np.uint32, (head.rows,)))
    mask, values, state, clocks, *periods = _arrays(head.table, frames, shapes)
    invalid = np.unpackbits(mask, count=head.checked).view(np.bool_)
    keys = np.concatenate([request.checked[invalid], request.fetched])
    if len(keys) != head.rows:
        raise InputError(f"table {head.table!r}: {head.rows:,} rows came for {len(keys):,} keys")
    fields = {"clock": clocks, "period": periods[0]} if periods else {"clock": clocks}
    return CacheReply(invalid, Rows(keys, values, state, fields))


def reply_frames(head: CachedRowsBlock) -> int:
    """The number of frames of a reply."""
    return REPLY_FRAMES + head.periods


def _check_width(head: CacheBlock | CachedRowsBlock, dim: int, state_dim: int) -> None:
    if (head.dim, head.state_dim) != (dim, state_dim):
        message = f"rows came {head.dim} and their state {head.state_dim} wide, they are {dim} and {state_dim} wide"
        raise InputError(f"table {head.table!r}: {message}")


def _bytes_of(columns: Sequence[NDArray[Any]]) -> list[Buffer]:
    return [np.ascontiguousarray(column).reshape(-1).view(np.uint8) for column in columns]


def _arrays(
    table: str, frames: Sequence[Buffer], shapes: Sequence[tuple[str, DTypeLike, tuple[int, ...]]]
) -> list[NDArray[Any]]:
    if len(frames) != len(shapes):
        raise InputError(f"table {table!r}: {len(frames)} frames came, expected {len(shapes)}")
    found = []
    for (name, kind, shape), frame in zip(shapes, frames, strict=True):
        expected = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
        if (size := memoryview(frame).nbytes) != expected:
            raise InputError(f"table {table!r}: {name} are {expected:,} bytes, {size:,} came")
        array: NDArray[Any] = np.frombuffer(frame, kind).reshape(shape)
        found.append(array if array.flags.aligned else array.copy())  # small frames may be unaligned
    return found
