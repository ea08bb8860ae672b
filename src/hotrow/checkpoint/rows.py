"""Rows of a table as Arrow files: key, value, state and the counters of every row, in batches; keys alone for those
that were removed.

Any program that reads Arrow IPC reads them: pyarrow, polars, DuckDB.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotrow.checkpoint.place import Place, SavedFile
from hotrow.store.arrays import Keys
from hotrow.store.rows import Rows

MAGIC = b"ARROW1\0\0"  # at the begin of an Arrow file
CHUNK = 65_536  # rows of a batch
Watch = Callable[[int], object]  # gets the bytes of each write or read


@dataclass(frozen=True, slots=True)
class RowShape:
    """What a row of a table is made of."""

    dim: int
    state_dim: int
    fields: tuple[str, ...]  # counters, uint32 each

    @property
    def bytes(self) -> int:
        """Of a row in a file."""
        return 8 + 4 * (self.dim + self.state_dim + len(self.fields))

    @property
    def schema(self) -> pa.Schema:
        """Of a file of rows."""
        vectors = [("value", pa.list_(pa.float32(), self.dim)), ("state", pa.list_(pa.float32(), self.state_dim))]
        return pa.schema([("key", pa.uint64()), *vectors, *((name, pa.uint32()) for name in self.fields)])


class RowFile:
    """A file of rows that is being written; its facts are known when it is closed."""

    def __init__(self, writer: pa.ipc.RecordBatchFileWriter, shape: RowShape) -> None:
        self._writer, self._shape = writer, shape
        self.count = 0
        self.facts = SavedFile(0, "")

    def write(self, chunk: Rows) -> None:
        """One batch."""
        self._writer.write_batch(_as_arrow(chunk, self._shape))
        self.count += len(chunk.keys)


@contextmanager
def open_rows(place: Place, file: str, shape: RowShape, watch: Watch = lambda _: None) -> Iterator[RowFile]:
    """A new file of rows."""
    with place.write(file, watch) as sink, pa.ipc.new_file(pa.PythonFile(sink, mode="w"), shape.schema) as writer:
        opened = RowFile(writer, shape)
        yield opened
    opened.facts = sink.facts


def write_rows(
    place: Place, file: str, shape: RowShape, chunks: Iterable[Rows], watch: Watch = lambda _: None
) -> tuple[int, SavedFile]:
    """All rows to a new file; how many there were, and the facts of the file."""
    with open_rows(place, file, shape, watch) as opened:
        for chunk in chunks:
            opened.write(chunk)
    return opened.count, opened.facts


def write_columns(
    place: Place, file: str, chunks: Iterable[Mapping[str, NDArray[Any]]], types: dict[str, pa.DataType]
) -> tuple[int, SavedFile]:
    """Columns of numbers to a new file, such as the keys that were removed."""
    schema, count = pa.schema(list(types.items())), 0
    with place.write(file) as sink:
        with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), schema) as writer:
            for chunk in chunks:
                writer.write_batch(pa.RecordBatch.from_arrays([pa.array(chunk[name]) for name in types], schema=schema))
                count += len(next(iter(chunk.values())))
        written = sink
    return count, written.facts


def read_rows(place: Place, file: str, shape: RowShape) -> Iterator[Rows]:
    """The rows of a file, batch by batch; those of a local file stay in it until they are used."""
    with place.open(file) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            yield _from_arrow(reader.get_batch(number), shape)


def read_rows_once(place: Place, file: str, shape: RowShape, watch: Watch) -> Generator[Rows, None, SavedFile]:
    """The rows of a file, read from begin to end; returns the facts of what was read."""
    with place.read_once(file, watch) as source:
        source.read_buffer(len(MAGIC))  # what follows is a stream of batches, and then the index of a file
        for batch in pa.ipc.open_stream(pa.PythonFile(source, mode="r")):
            yield _from_arrow(batch, shape)
        source.read_rest()
    return source.facts


def read_columns(place: Place, file: str, names: Sequence[str]) -> Iterator[tuple[NDArray[Any], ...]]:
    """Some columns of a file, batch by batch."""
    with place.open(file) as source:
        reader = pa.ipc.open_file(source, options=_only(source, names))
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            yield tuple(batch.column(name).to_numpy() for name in names)


def read_keys(place: Place, file: str) -> Keys:
    """The column of keys of a file."""
    found = [keys for (keys,) in read_columns(place, file, ("key",))]
    return np.concatenate(found) if found else np.empty(0, np.uint64)


def take_rows(chunk: Rows, at: NDArray[np.intp]) -> Rows:
    """Some rows of a chunk, in the order asked for."""
    fields = {name: column[at] for name, column in chunk.fields.items()}
    return Rows(chunk.keys[at], chunk.values[at], chunk.state[at], fields)


def join_rows(chunks: Sequence[Rows]) -> Rows:
    """The rows of several chunks, of at least one, as one."""
    return Rows(
        np.concatenate([chunk.keys for chunk in chunks]),
        np.concatenate([chunk.values for chunk in chunks]),
        np.concatenate([chunk.state for chunk in chunks]),
        {name: np.concatenate([chunk.fields[name] for chunk in chunks]) for name in chunks[0].fields},
    )


def _only(source: Any, names: Sequence[str]) -> pa.ipc.IpcReadOptions:
    """Options that leave out the other columns."""
    schema = pa.ipc.open_file(source).schema
    return pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names])


def _from_arrow(batch: pa.RecordBatch, shape: RowShape) -> Rows:
    return Rows(
        batch.column("key").to_numpy(),
        _matrix(batch.column("value"), shape.dim),
        _matrix(batch.column("state"), shape.state_dim),
        {name: batch.column(name).to_numpy() for name in shape.fields},
    )


def _as_arrow(chunk: Rows, shape: RowShape) -> pa.RecordBatch:
    columns = [
        pa.array(chunk.keys),
        _vectors(chunk.values, shape.dim),
        _vectors(chunk.state, shape.state_dim),
        *(pa.array(chunk.fields[name]) for name in shape.fields),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=shape.schema)


def _vectors(matrix: NDArray[np.float32], dim: int) -> pa.Array:
    if dim == 0:  # Arrow does not keep the number of empty lists
        return pa.array([[]] * len(matrix), pa.list_(pa.float32(), 0))
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), dim)


def _matrix(column: pa.Array, dim: int) -> NDArray[np.float32]:
    values: NDArray[np.float32] = column.flatten().to_numpy()
    return values.reshape(len(column), dim)
