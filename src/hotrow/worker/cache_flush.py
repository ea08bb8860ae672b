"""The flush of a role's caches, as the driver orders it."""

from collections.abc import Mapping

from hotrow.cache.client import CachedTables
from hotrow.transport.messages import CacheFlushed, FlushCache


def flush_caches(
    tables: CachedTables | None, message: FlushCache, counts: Mapping[str, int] | None = None
) -> CacheFlushed:
    """Write changes of cached rows back; the reply, once they are on the shards. `counts`: beside those of the caches.

    Not in a thread that others wait for: a shard may have to start again meanwhile.
    """
    rows, whole = (0, True) if tables is None else tables.flush(message.first, message.most)
    counted = {} if tables is None else tables.take_counts()
    return CacheFlushed(rows, counted | dict(counts or {}), left=not whole)
