"""The rows of a table as an Arrow file: key, value, state and the counters, chunk by chunk.

A table of this process that evicts is written in the order in which its rows would go, because rows that are put are
the newest. One on shards is written shard by shard: that order begins anew with a load.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotrow.store import RamTier, Rows, SavedTable
from hotrow.store.saved import eviction_order

CHUNK = 65_536


def bytes_of(tier: SavedTable) -> int:
    """What the rows of a table take in a file: key, value, state and a uint32 for each counter."""
    return len(tier) * (8 + 4 * (tier.dim + tier.state_dim + len(tier.fields)))


def write(path: Path, tier: SavedTable) -> int:
    """All rows; returns how many."""
    count = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _schema(tier)) as writer:
        for chunk in _chunks(tier):
            writer.write_batch(_as_arrow(chunk, tier))
            count += len(chunk.keys)
    return count


def read(path: Path, tier: SavedTable) -> None:
    """Replace the rows of a table by those of a file."""
    tier.clear()
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            state = _matrix(batch.column("state"), tier.state_dim) if tier.state_dim else None
            fields = {name: batch.column(name).to_numpy() for name in tier.fields}
            tier.put(batch.column("key").to_numpy(), _matrix(batch.column("value"), tier.dim), state, fields)


class SavedRows:
    """Keys and values of a table in a checkpoint. The file is mapped: memory holds the chunk in use."""

    def __init__(self, path: Path, rows: int) -> None:
        self._source = pa.memory_map(str(path))
        self._reader = pa.ipc.open_file(self._source)
        self.rows = rows
        self.dim = int(self._reader.schema.field("value").type.list_size)

    def __len__(self) -> int:
        return self.rows

    def __enter__(self) -> "SavedRows":
        return self

    def __exit__(self, *fault: object) -> None:
        self._source.close()

    def chunks(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.float32]]]:
        """Keys [rows] and values [rows, dim] without optimizer state, in the order of the file."""
        for number in range(self._reader.num_record_batches):
            batch = self._reader.get_batch(number)
            yield batch.column("key").to_numpy(), _matrix(batch.column("value"), self.dim)


def _schema(tier: SavedTable) -> pa.Schema:
    vectors = [("value", pa.list_(pa.float32(), tier.dim)), ("state", pa.list_(pa.float32(), tier.state_dim))]
    return pa.schema([("key", pa.uint64()), *vectors, *((name, pa.uint32()) for name in tier.fields)])


def _as_arrow(chunk: Rows, tier: SavedTable) -> pa.RecordBatch:
    columns = [
        pa.array(chunk.keys),
        pa.FixedSizeListArray.from_arrays(pa.array(chunk.values.reshape(-1)), tier.dim),
        _vectors(chunk, tier),
        *(pa.array(chunk.fields[name]) for name in tier.fields),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_schema(tier))


def _vectors(chunk: Rows, tier: SavedTable) -> pa.Array:
    if tier.state_dim == 0:  # Arrow does not keep the number of empty lists
        return pa.array([[]] * len(chunk.keys), pa.list_(pa.float32(), 0))
    return pa.FixedSizeListArray.from_arrays(pa.array(chunk.state.reshape(-1)), tier.state_dim)


def _matrix(column: pa.Array, dim: int) -> NDArray[np.float32]:
    values: NDArray[np.float32] = column.flatten().to_numpy()
    return values.reshape(-1, dim)


def _chunks(tier: SavedTable) -> Iterator[Rows]:
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
