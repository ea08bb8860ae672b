"""Rows of a shard from the last checkpoint of its run, where they are lost with its process or host."""

from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.server.shard import Shard
from hotrow.store.shards import shard_of


def restore_rows(shard: Shard, where: str) -> int:
    """Put the rows of a checkpoint that belong to a shard into its tables; returns their number."""
    found, rows = SavedCheckpoint.open(where), 0
    for name, tier in shard.tables.tiers.items():
        tier.clear()
        for chunk in found.rows(name):
            mine = shard_of(chunk.keys, shard.shards) == shard.number
            state = chunk.state[mine] if tier.state_dim else None
            fields = {field: column[mine] for field, column in chunk.fields.items() if field in tier.fields}
            tier.put(chunk.keys[mine], chunk.values[mine], state, fields)
        rows += len(tier)
    return rows
