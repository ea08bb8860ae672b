"""The rows of a shard when its process starts: none, those of a process before, or those of the last checkpoint."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotrow.config import Table
from hotrow.errors import SegmentError
from hotrow.server.loading import restore_rows
from hotrow.server.shard import Shard
from hotrow.server.shared_rows import shared_tables

_log = logging.getLogger("hotrow.server")


@dataclass(frozen=True, slots=True)
class ShardBefore:
    """The process that a shard takes the place of."""

    incarnation: int
    port: str
    checkpoint: str | None = None  # the last one of the run, for rows that are not in shared memory


def open_shard(
    tables: Mapping[str, Table],
    run: str | None,
    before: ShardBefore | None,
    *,
    number: int,
    shards: int,
    attach: bool = True,
    **settings: Any,
) -> Shard:
    """A shard. `run` names its shared memory; None: rows are in the memory of the process."""
    if run is not None:
        tables, why = shared_tables(tables, run, number, shards)
        if why is not None and before is None:
            end = "where it is lost they come from the last checkpoint, and without one the run ends"
            _log.warning("shard %d has its rows in its own memory, because %s: %s", number, why, end)
    if before is None:
        return Shard(tables, number=number, shards=shards, attach=attach, **settings)
    shard = Shard(tables, number=number, shards=shards, incarnation=before.incarnation, restarted=True, **settings)
    if not shard.attached:
        try:
            _restore(shard, before.checkpoint)
        except BaseException:
            shard.close()
            raise
    return shard


def _restore(shard: Shard, checkpoint: str | None) -> None:
    if checkpoint is None:
        raise SegmentError(
            "its rows are lost with its process, because they were not in shared memory, and there is no checkpoint "
            "to restore them from: set run.checkpoint_every"
        )
    restore_rows(shard, checkpoint)
    shard.incarnation += 1
