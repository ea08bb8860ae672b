"""Cached rows: a cache writes changes back to shards, checks clocks and fetches rows, in one request.

Caches are those of trainers, or of embedding workers where there are some.
"""

from typing import Annotated

from msgspec import Meta, field

from hotrow.transport.messages.header import Count, Header, Name, Number
from hotrow.transport.messages.rows import Taken

Width = Annotated[int, Meta(ge=0, le=131_072)]


class CacheBlock(Header, frozen=True):
    """The request of one table.

    Frames: keys uint64 of changed, checked and fetched rows; changes of values, then of state, float32; clocks uint32
    of changed and checked rows; updates uint32 of changed rows.
    """

    table: Name
    changed: Count
    checked: Count
    fetched: Count
    dim: Width
    state_dim: Width
    samples: Number  # the changes of state are of their SWAP period


class CacheExchange(Header, frozen=True, tag="cache_exchange"):
    """Changes of rows to be added, once for each grant; then clocks to be checked, and keys of rows to be read.

    It waits for no order: rows of these modes change on arrival, and replies come in the order of the requests. A flush
    has grant 0, changes alone, and a number of its own, under which they are added once.
    """

    incarnation: Number
    grant: Number
    samples: Number  # trained so far
    blocks: tuple[CacheBlock, ...]
    flush: Number = 0


class CachedRowsBlock(Header, frozen=True):
    """Rows of one table: of the checked keys that are not valid, then of the fetched ones.

    Frames: a bit for each checked key, set where it is not valid; values and state float32; clocks uint32; with
    `periods` the SWAP periods uint32.
    """

    table: Name
    checked: Count
    rows: Count
    dim: Width
    state_dim: Width
    periods: bool


class CacheExchanged(Header, frozen=True, tag="cache_exchanged"):
    """The reply to a cache exchange."""

    incarnation: Number
    taken: Taken
    blocks: tuple[CachedRowsBlock, ...] = ()


class OpenCaches(Header, frozen=True, tag="open_caches"):
    """A mode begins: an embedding worker empties its caches. It drops batches of the mode before."""

    number: Number  # of the opening: a number that arrives again has no effect
    workers: Count  # embedding workers with caches


class FlushCache(Header, frozen=True, tag="flush_cache"):
    """Write changes of cached rows back; the reply comes when they are on the shards.

    Requests to the shards have `most` numbers from `first` on, which no other flush of the run has. A request has a
    bounded size, so there may be more changes than numbers.
    """

    first: Number
    most: Count


class CacheFlushed(Header, frozen=True, tag="cache_flushed"):
    """The reply: rows that were written back, and what the caches counted since the last flush, by name and table.

    `left`: there were more changes than numbers. Send another flush.
    """

    rows: Count
    counts: dict[Name, int] = field(default_factory=dict)
    left: bool = False
