"""A checkpoint written anew: a chain as one full checkpoint, in as many shards as asked for.

Rows keep their bits, and those of a shard their order, which is the order of eviction. Memory is bounded: rows are read
in batches, and what waits to be written has a limit.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hotrow.checkpoint.chain import unfinished
from hotrow.checkpoint.folder_lock import alone_in
from hotrow.checkpoint.manifest import SavedShard, SavedTableFacts, folder_of
from hotrow.checkpoint.place import Place, SavedFile
from hotrow.checkpoint.reader import COUNTS, SavedCheckpoint, SavedLink, folders_in, numbers_in
from hotrow.checkpoint.rows import (
    CHUNK,
    RowFile,
    RowShape,
    Watch,
    join_rows,
    open_rows,
    read_columns,
    take_rows,
    write_columns,
)
from hotrow.checkpoint.saving import DenseTensors, Saved, remove_superfluous, write_checkpoint
from hotrow.errors import ConfigError, InputError
from hotrow.store.arrays import Integers, Keys
from hotrow.store.rows import Rows
from hotrow.store.shards import shard_of

FILES_AT_ONCE = 64  # more shards take more passes over the rows
WAITING_BYTES = 64 * 2**20  # of rows that wait until a batch of their shard is full
BATCH_ROWS_MIN = 256


def compact(
    found: SavedCheckpoint, to: str | Path | Place | None, *, keep: int | None = None, watch: Watch = lambda _: None
) -> SavedLink | None:
    """One full checkpoint with the rows of a chain; None where it is full already and stays where it is.

    `to` as in `rewrite`.
    """
    if to is None and len(found.chain) == 1:
        with alone_in(_folder_of_all(found)):
            _check_in_place(found)
            if keep is not None:
                remove_superfluous(_folder_of_all(found), keep)
        return None
    return rewrite(found, to, keep=keep, watch=watch)


def rewrite(
    found: SavedCheckpoint,
    to: str | Path | Place | None,
    *,
    shards: int | None = None,
    keep: int | None = None,
    watch: Watch = lambda _: None,
) -> SavedLink:
    """A full checkpoint with the same rows in `shards` parts (None: as many as the tables have), and the same tensors.

    It becomes the next one of the folder `to`; None: of its own folder, where it has to be the newest. With `keep` all
    but the newest `keep` and what they build on are removed there. The files are checked first, since what is written
    has checksums of its own; `watch` gets the bytes of these reads and of all writes.
    """
    if to is not None:
        return _rewrite(found, Place.of(to), shards, keep, watch)
    with alone_in(_folder_of_all(found)):
        _check_in_place(found)
        return _rewrite(found, _folder_of_all(found), shards, keep, watch)


def _rewrite(found: SavedCheckpoint, place: Place, shards: int | None, keep: int | None, watch: Watch) -> SavedLink:
    found.verify(watch)
    manifest = found.manifest
    dense = DenseTensors(found.dense(), manifest.optimizer) if manifest.has_dense else None
    saved = Saved(manifest.counters, manifest.position, manifest.about, manifest.mode)
    tables = RewrittenTables(found, shards)
    return write_checkpoint(place, dense, tables, saved, keep=sys.maxsize if keep is None else keep, watch=watch)


class RewrittenTables:
    """The rows of a saved checkpoint, to be written to another one."""

    frozen, delta = True, False

    def __init__(self, found: SavedCheckpoint, shards: int | None = None) -> None:
        self._found, self._shards = found, shards

    @property
    def bytes(self) -> int:
        tables = self._found.manifest.tables
        return sum(facts.rows * self._found.shape(name).bytes for name, facts in tables.items())

    def write(self, place: Place, watch: Watch) -> tuple[dict[str, SavedTableFacts], dict[str, SavedFile]]:
        tables: dict[str, SavedTableFacts] = {}
        files: dict[str, SavedFile] = {}
        for number, (name, facts) in enumerate(self._found.manifest.tables.items()):
            shards = self._shards or len(facts.shards)
            stems = [f"tables/{number}/{shard}-of-{shards}" for shard in range(shards)]
            shape = self._found.shape(name)
            counts: list[int] = []
            for first in range(0, shards, FILES_AT_ONCE):
                some = [f"{stem}.arrow" for stem in stems[first : first + FILES_AT_ONCE]]
                written = _write_parts(place, some, shape, self._found.rows(name), first, shards, watch)
                counts += [part.count for part in written]
                files |= {file: part.facts for file, part in zip(some, written, strict=True)}
            waiting = self._write_waiting(place, name, stems, files)
            filters = self._write_filters(place, name, stems, files)
            parts = [
                SavedShard(rows=f"{stem}.arrow", count=count, admission=admission, filter=counters)
                for stem, count, admission, counters in zip(stems, counts, waiting, filters, strict=True)
            ]
            tables[name] = facts.model_copy(update={"rows": sum(counts), "shards": tuple(parts)})
        return tables, files

    def _write_waiting(
        self, place: Place, table: str, stems: list[str], files: dict[str, SavedFile]
    ) -> list[str | None]:
        """Counts of keys that wait for admission, where the table has any files of them; the file of each shard."""
        if all(shard.admission is None for shard in self._found.table(table).shards):
            return [None] * len(stems)
        names: list[str | None] = []
        for shard, stem in enumerate(stems):
            names.append(file := f"{stem}.admission.arrow")
            chunks = _counts_of(self._found.waiting(table), shard, len(stems))
            files[file] = write_columns(place, file, chunks, {"key": pa.uint64(), "count": pa.uint32()})[1]
        return names

    def _write_filters(
        self, place: Place, table: str, stems: list[str], files: dict[str, SavedFile]
    ) -> list[str | None]:
        """Bloom filters of as many shards; with another number nobody knows which keys they counted."""
        shards = self._found.table(table).shards
        if len(shards) != len(stems):
            return [None] * len(stems)
        names: list[str | None] = []
        for shard, stem in zip(shards, stems, strict=True):
            if shard.filter is None:
                names.append(None)
                continue
            names.append(file := f"{stem}.filter.arrow")
            read = read_columns(self._found.place, shard.filter, ("counter",))
            counters = ({"counter": each} for (each,) in read)
            files[file] = write_columns(place, file, counters, {"counter": pa.uint8()})[1]
        return names

    def close(self, *, saved: bool) -> None:
        """Nothing was kept for it."""


def _write_parts(
    place: Place, files: list[str], shape: RowShape, chunks: Iterable[Rows], first: int, shards: int, watch: Watch
) -> list[RowFile]:
    """The rows of the shards from `first` on, one for each file, in one pass."""
    with ExitStack() as stack:
        opened = [stack.enter_context(open_rows(place, file, shape, watch)) for file in files]
        if shards == 1:
            for chunk in chunks:
                if len(chunk.keys):
                    opened[0].write(chunk)
            return opened
        batch = min(CHUNK, max(BATCH_ROWS_MIN, WAITING_BYTES // (shape.bytes * len(files))))
        parts = [_FullBatches(file, batch) for file in opened]
        for chunk in chunks:
            of_key = shard_of(chunk.keys, shards)
            for shard, part in enumerate(parts, first):
                part.add(take_rows(chunk, np.flatnonzero(of_key == shard)))
        for part in parts:
            part.flush()
    return opened


class _FullBatches:
    """Rows of one shard, held until there is a batch of them: small batches take room and time."""

    def __init__(self, file: RowFile, rows: int) -> None:
        self._file, self._rows = file, rows
        self._waiting: list[Rows] = []
        self._count = 0

    def add(self, chunk: Rows) -> None:
        self._waiting.append(chunk)
        self._count += len(chunk.keys)
        if self._count >= self._rows:
            self.flush()

    def flush(self) -> None:
        if self._count:
            self._file.write(join_rows(self._waiting))
        self._waiting, self._count = [], 0


def _counts_of(waiting: Iterator[tuple[Keys, Integers]], shard: int, shards: int) -> Iterator[dict[str, NDArray[Any]]]:
    for keys, counts in waiting:
        mine = np.flatnonzero(shard_of(keys, shards) == shard)
        yield dict(zip(COUNTS, (keys[mine], counts[mine]), strict=True))


def _folder_of_all(found: SavedCheckpoint) -> Place:
    return found.place.parent


def _check_in_place(found: SavedCheckpoint) -> None:
    """What is written in place becomes the newest, and what is unfinished there is removed."""
    place, number = _folder_of_all(found), found.manifest.number
    numbers = numbers_in(place)
    if number != max(numbers):
        message = f"{folder_of(number)} is not the newest, and in place it would become that"
        raise ConfigError(f"checkpoint {place.name}: {message}: name another folder with --to")
    if left := unfinished(folders_in(place), numbers):
        message = f"{folder_of(left[-1])} is not finished: a run writes it now, or died while it did"
        raise InputError(f"checkpoint {place.name}: {message}: name another folder with --to, or remove it")
