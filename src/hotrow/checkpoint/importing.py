"""Embedding tables that other programs saved, as a full checkpoint of tables alone.

Rows get the optimizer state and the counters of fresh rows, since those of another program do not fit.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hotrow.checkpoint.local_cut import shape_of
from hotrow.checkpoint.manifest import SavedShard, SavedTableFacts
from hotrow.checkpoint.place import Place, SavedFile
from hotrow.checkpoint.reader import SavedLink, folders_in
from hotrow.checkpoint.rows import CHUNK, RowShape, Watch, take_rows, write_rows
from hotrow.checkpoint.saving import Saved, write_checkpoint
from hotrow.config import Table
from hotrow.errors import ConfigError, InputError
from hotrow.store import RamTier, Rows
from hotrow.store.arrays import Floats, Keys


class ForeignTable(Protocol):
    """Rows of another program: keys and values."""

    @property
    def source(self) -> str:
        """Where it is from, for messages."""

    @property
    def rows(self) -> int: ...

    @property
    def dim(self) -> int: ...

    @property
    def numbered(self) -> bool:
        """Whether keys are the numbers of rows, so that none can occur twice."""

    def chunks(self, rows: int) -> Iterator[tuple[Keys, Floats]]:
        """All rows, at most so many at once."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings that every imported table gets."""

    optimizer: Mapping[str, Any] | None = None  # by name; None: the default of a table
    type: str = "float32"

    def of(self, name: str, dim: int) -> Table:
        """Of the table `name`; ConfigError where they are wrong."""
        given = {} if self.optimizer is None else {"optimizer": dict(self.optimizer)}
        return Table(name=name, dim=dim, type=self.type, **given)


def import_tables(
    tables: Mapping[str, ForeignTable],
    where: str | Path | Place,
    settings: TableSettings,
    *,
    about: Mapping[str, Any],
    watch: Watch = lambda _: None,
) -> SavedLink:
    """Write them to a folder without checkpoints; `about` is kept in the manifest."""
    place = Place.of(where)
    if folders_in(place):
        raise ConfigError(f"--to {place.name}: there are checkpoints in it already: name another folder")
    cut = ImportedTables(tables, settings)
    saved = Saved({"step": 0, "samples": 0}, None, dict(about))
    return write_checkpoint(place, None, cut, saved, keep=sys.maxsize, watch=watch)


class ImportedTables:
    """Tables of other programs, to be written as a cut of our own."""

    frozen, delta = True, False

    def __init__(self, tables: Mapping[str, ForeignTable], settings: TableSettings) -> None:
        self._tables = {name: (table, settings.of(name, table.dim)) for name, table in tables.items()}

    @property
    def bytes(self) -> int:
        return sum(table.rows * _row_shape(own).bytes for table, own in self._tables.values())

    def write(self, place: Place, watch: Watch) -> tuple[dict[str, SavedTableFacts], dict[str, SavedFile]]:
        tables, files = {}, {}
        for number, (name, (table, own)) in enumerate(self._tables.items()):
            file, shape = f"tables/{number}/0-of-1.arrow", _row_shape(own)
            count, files[file] = write_rows(place, file, shape, _fresh_rows(table, own), watch)
            tables[name] = SavedTableFacts(
                settings=own.model_dump(mode="json"),
                dim=shape.dim,
                state_dim=shape.state_dim,
                fields=shape.fields,
                rows=count,
                shards=(SavedShard(rows=file, count=count),),
            )
        return tables, files

    def close(self, *, saved: bool) -> None:
        """Nothing was kept for it."""


def _row_shape(table: Table) -> RowShape:
    with closing(RamTier(table)) as tier:
        return shape_of(tier)


def _fresh_rows(table: ForeignTable, own: Table) -> Iterator[Rows]:
    """Rows with the given values, and everything else as a fresh row has it."""
    seen: list[Keys] = []
    for keys, values in table.chunks(CHUNK):
        if not len(keys):
            continue
        _check_once(table, keys, seen)
        with closing(RamTier(own)) as tier:
            try:
                tier.put(keys, values)
            except InputError as error:
                raise InputError(f"{table.source}: {error}") from None
            if (large := tier.stats().saturated) > 0:
                message = f"{large:,} numbers are too large for type={own.type!r}"
                raise InputError(f"{table.source}: {message}: import it as float32")
            (chunk,) = tier.export(len(keys))
        order, places = np.argsort(chunk.keys), np.argsort(np.argsort(keys))
        yield take_rows(chunk, order[places])  # in the order of the file


def _check_once(table: ForeignTable, keys: Keys, seen: list[Keys]) -> None:
    """InputError where a key came before; only keys of a column can."""
    if table.numbered:
        return
    found, counts = np.unique(keys, return_counts=True)
    again: NDArray[np.uint64] = found[counts > 1]
    for before in seen:
        again = np.concatenate([again, np.intersect1d(before, found, assume_unique=True)])
    if len(again):
        raise InputError(f"{table.source}: the key {int(again[0])} occurs twice: give each row once")
    seen.append(found)
