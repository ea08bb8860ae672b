"""The rows of tables that this process reaches, written by this process: one file for each table."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from hotrow.checkpoint.manifest import SavedShard, SavedTableFacts
from hotrow.checkpoint.place import FileFacts, Place
from hotrow.checkpoint.rows import CHUNK, RowShape, Watch, write_rows
from hotrow.store import RamTier, Rows, SavedTable
from hotrow.store.saved import eviction_order


def shape_of(tier: SavedTable) -> RowShape:
    """What the rows of a table are made of."""
    return RowShape(tier.dim, tier.state_dim, tier.fields)


class LocalCut:
    """All rows as they are now: nothing may change them until they are written."""

    delta = False

    def __init__(self, tiers: Mapping[str, SavedTable]) -> None:
        self._tiers = tiers

    @property
    def bytes(self) -> int:
        return sum(len(tier) * shape_of(tier).bytes for tier in self._tiers.values())

    def write(self, place: Place, watch: Watch) -> tuple[dict[str, SavedTableFacts], dict[str, FileFacts]]:
        tables, files = {}, {}
        for number, (name, tier) in enumerate(self._tiers.items()):
            file, shape = f"tables/{number}/0-of-1.arrow", shape_of(tier)  # a table's name need not fit a file's
            count, files[file] = write_rows(place, file, shape, _chunks(tier), watch)
            tables[name] = SavedTableFacts(
                settings=tier.table.model_dump(mode="json"),
                dim=shape.dim,
                state_dim=shape.state_dim,
                fields=shape.fields,
                rows=count,
                shards=(SavedShard(rows=file, count=count),),
            )
        return tables, files

    def close(self, *, saved: bool) -> None:
        """Nothing was kept for it."""


def _chunks(tier: SavedTable) -> Iterator[Rows]:
    """All rows. Of a table of this process that evicts, those that would go first come first: rows that are put are the
    newest.
    """
    if not isinstance(tier, RamTier) or tier.table.policy not in ("lru", "lfu"):
        yield from tier.export(CHUNK)
        return
    chunks = list(tier.export(CHUNK))
    if not chunks:
        return
    keys = np.concatenate([chunk.keys for chunk in chunks])
    take = eviction_order(tier, keys)
    chunk_of, row_of = np.divmod(take, CHUNK)
    for start in range(0, len(take), CHUNK):
        yield _gathered(chunks, chunk_of[start : start + CHUNK], row_of[start : start + CHUNK])


def _gathered(chunks: list[Rows], chunk_of: NDArray[np.int64], row_of: NDArray[np.int64]) -> Rows:
    """Rows from many chunks, in the order asked for."""
    first = chunks[0]
    out = Rows(
        np.empty(len(row_of), np.uint64),
        np.empty((len(row_of), first.values.shape[1]), np.float32),
        np.empty((len(row_of), first.state.shape[1]), np.float32),
        {name: np.empty(len(row_of), np.uint32) for name in first.fields},
    )
    for number, chunk in enumerate(chunks):
        mine = np.flatnonzero(chunk_of == number)
        theirs = row_of[mine]
        out.keys[mine], out.values[mine], out.state[mine] = (
            chunk.keys[theirs],
            chunk.values[theirs],
            chunk.state[theirs],
        )
        for name, column in out.fields.items():
            column[mine] = chunk.fields[name][theirs]
    return out
