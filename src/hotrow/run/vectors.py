"""The vectors that a run has learnt, from its checkpoint: all rows of a table, or those of given ids.

Nothing is loaded: the file of the table is mapped and read chunk by chunk, and the model is not built.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hotrow import checkpoint
from hotrow.data.columns import Columns
from hotrow.data.files import File, find_files
from hotrow.data.keys import Keyspace
from hotrow.data.numbers import floats
from hotrow.data.parquet import UNREADABLE
from hotrow.data.parser import Dialect
from hotrow.data.schema import Schema
from hotrow.data.settings import DataConfig
from hotrow.data.shown import shown
from hotrow.data.source import Tally, Trouble
from hotrow.data.text import header_of, read_text
from hotrow.errors import ConfigError, InputError
from hotrow.models.registry import WEIGHT_FIRST
from hotrow.run.config import RunConfig, load_config
from hotrow.run.folder import CHECKPOINT, CONFIG, SCHEMA
from hotrow.run.output_file import OutputFile
from hotrow.run.restored import has_checkpoint, read_schema

SUFFIXES = (".parquet", ".csv", ".npy")
IDS_AT_ONCE = 262_144  # that are looked up in one pass over a table; their vectors are held


@dataclass(slots=True)
class IdCoverage:
    """How many of the wanted ids have a row."""

    ids: int = 0
    absent: int = 0
    first_absent: Any = None


@dataclass(slots=True, eq=False)
class SavedVectors:
    """One table of a run's checkpoint. With a feature its table is taken, and ids can be looked up."""

    folder: Path
    table: str | None = None
    feature: str | None = None
    config: RunConfig = field(init=False)
    schema: Schema = field(init=False)
    name: str = field(init=False)  # of the table

    def __post_init__(self) -> None:
        if not has_checkpoint(self.folder):
            raise ConfigError(f"{self.folder}: there is no checkpoint in it: name the folder of a run, as runs/NAME")
        self.config = load_config(self.folder / CONFIG)
        self.schema = read_schema(self.folder / SCHEMA)
        self.name = self._chosen()

    @property
    def has_weight(self) -> bool:
        """Whether the first float of a row is a linear weight, apart from the vector."""
        return self.config.model.name in WEIGHT_FIRST

    @property
    def key_note(self) -> str:
        """What the keys of the table are."""
        spaces = Keyspace(self.schema).spaces(self.name)
        if len(spaces) > 1:
            shared = f"table {self.name!r} serves {', '.join(map(repr, spaces))}"
            return (
                f"{shared}, so keys are ids XOR a hash of the feature's space: map ids with --ids FILE --feature NAME"
            )
        return (
            "keys are ids that are whole numbers, and hashes of other texts: map texts with --ids FILE --feature NAME"
        )

    def output(self, path: Path, *, ids: pa.DataType | None = None, force: bool = False) -> OutputFile:
        """The file to write; `ids` is their type where they are looked up."""
        saved = self._saved()
        saved.verify()
        dim = saved.table(self.name).dim - self.has_weight
        first = [("key", pa.uint64())] if ids is None else [("id", ids)]
        if ids is not None and path.suffix == ".npy":  # a plain array has no texts: write the id's position in its file
            first = [("row", pa.int64())]
        weight = [("weight", pa.float32())] if self.has_weight else []
        vector = [("vector", pa.list_(pa.float32(), dim))] if dim else []
        return OutputFile(path, pa.schema([*first, *weight, *vector]), "vectors", SUFFIXES, force=force)

    def write_all(self, file: OutputFile) -> Iterator[int]:
        """Every row of the table, in the order of the checkpoint; gives how many are written so far."""
        for chunk in self._saved().rows(self.name):  # `output` has checked the files
            file.write_batch([pa.array(chunk.keys), *self._columns(chunk.values)])
            yield file.rows

    def write_ids(self, file: OutputFile, chunks: Iterator[pa.Array], found: IdCoverage) -> Iterator[int]:
        """The rows of ids, in their order; those that the table has not are counted. Gives how many were looked up."""
        by_place = "row" in file.names
        for ids in chunks:
            values, there = self._find(self._keys(ids))
            places = np.flatnonzero(there)
            first = pa.array(found.ids + places) if by_place else ids.take(pa.array(places))
            file.write_batch([first, *self._columns(values[places])])
            if len(places) < len(ids) and not found.absent:
                found.first_absent = shown(ids[int(np.flatnonzero(~there)[0])])
            found.ids += len(ids)
            found.absent += len(ids) - len(places)
            yield found.ids

    def _keys(self, ids: pa.Array) -> NDArray[np.uint64]:
        assert self.feature is not None
        given = floats(ids, self.feature)[0] if self.feature in self.schema.bucketed else ids
        return Keyspace(self.schema).keys(self.feature, given).view(np.uint64)

    def _find(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The values of keys, and which are there, in one pass over the table."""
        wanted, place_of = np.unique(keys, return_inverse=True)
        there = np.zeros(len(wanted), bool)
        saved = self._saved()
        values = np.zeros((len(wanted), saved.table(self.name).dim), np.float32)
        for chunk in saved.rows(self.name):
            places = np.minimum(np.searchsorted(wanted, chunk.keys), max(len(wanted) - 1, 0))
            hits = np.flatnonzero(wanted[places] == chunk.keys) if len(wanted) else np.zeros(0, np.int64)
            values[places[hits]] = chunk.values[hits]
            there[places[hits]] = True
        return values[place_of], there[place_of]

    def _saved(self) -> checkpoint.SavedCheckpoint:
        return checkpoint.SavedCheckpoint.open(self.folder / CHECKPOINT)

    def _columns(self, values: NDArray[np.float32]) -> list[pa.Array]:
        apart = int(self.has_weight)
        columns = [pa.array(np.ascontiguousarray(values[:, 0]))] if apart else []
        dim = values.shape[1] - apart
        flat = pa.array(np.ascontiguousarray(values[:, apart:]).reshape(-1))
        return [*columns, *([pa.FixedSizeListArray.from_arrays(flat, dim)] if dim else [])]

    def _chosen(self) -> str:
        tables = self._saved().manifest.tables
        known = ", ".join(map(repr, tables))
        if self.feature is not None:
            own = Keyspace(self.schema).table(self.feature)
            if self.table not in (None, own):
                raise ConfigError(f"--table {self.table}: feature {self.feature!r} is in table {own!r}: leave it out")
            return own
        if self.table is None and len(tables) > 1:
            raise ConfigError(f"{self.folder}: has the tables {known}: name one with --table")
        if self.table is not None and self.table not in tables:
            raise ConfigError(f"--table {self.table}: there is none of this name, there are {known}")
        return self.table or next(iter(tables))


def ids_of(path: str, saved: SavedVectors) -> tuple[pa.DataType, Iterator[pa.Array]]:
    """The type of a file's ids and the ids in chunks: the feature's column, or the only one there is."""
    (file, *more) = find_files(path)
    if more:
        raise ConfigError(f"--ids {path}: names {len(more) + 1} files: give one")
    assert saved.feature is not None
    features = {each.name: each.column for each in saved.schema.ids}
    column = features.get(saved.feature, saved.feature)
    if file.path.endswith(".parquet"):
        return _of_parquet(file, column)
    data = saved.config.data
    separator = "\t" if file.path.endswith(".tsv") else (data.delimiter if isinstance(data, DataConfig) else None)
    dialect = Dialect(
        delimiter=separator or ",",
        quote=None if separator and len(separator) > 1 else '"',
        encoding=data.encoding if isinstance(data, DataConfig) else "utf-8",
    )
    columns = Columns((_column(file, header_of(file, dialect), column),))
    batches = read_text(file, dialect, columns, Tally(Trouble(), limit=0))
    return pa.string(), _joined(batch.column(0) for batch in batches)


def _of_parquet(file: File, column: str) -> tuple[pa.DataType, Iterator[pa.Array]]:
    try:
        opened = pq.ParquetFile(file.file())
        name = _column(file, opened.schema_arrow.names, column)
        kind = opened.schema_arrow.field(name).type
    except UNREADABLE as error:
        raise InputError(f"{file.name}: is no Parquet file that can be read: {error}") from None
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind

    def read() -> Iterator[pa.Array]:
        try:
            for batch in opened.iter_batches(65_536, columns=[name], use_threads=False):
                yield batch.column(0).cast(plain)
        except UNREADABLE as error:
            raise InputError(f"{file.name}: cannot be read: {error}") from None

    return plain, _joined(read())


def _column(file: File, names: list[str], wanted: str) -> str:
    if wanted in names or len(names) == 1:
        return wanted if wanted in names else names[0]
    raise InputError(f"{file.name}: there is no column {wanted!r}; its columns are {', '.join(map(repr, names))}")


def _joined(arrays: Iterator[pa.Array]) -> Iterator[pa.Array]:
    """Larger arrays: each means a pass over a table."""
    waiting: list[pa.Array] = []
    for array in arrays:
        for start in range(0, len(array), IDS_AT_ONCE):
            waiting.append(array.slice(start, IDS_AT_ONCE))
            if sum(map(len, waiting)) >= IDS_AT_ONCE:
                yield pa.concat_arrays(waiting)
                waiting = []
    if waiting:
        yield pa.concat_arrays(waiting)
