"""Tables of this process at one moment, written as files: by the process of a run, or by a shard its own part."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from hotrow.checkpoint.manifest import SavedShard, SavedTableFacts
from hotrow.checkpoint.place import Place, SavedFile
from hotrow.checkpoint.rows import CHUNK, RowShape, Watch, write_columns, write_rows
from hotrow.config import AtLeast, Table
from hotrow.store import RamTier, SavedTable
from hotrow.store.cut import TableCut

KEYS = {"key": pa.uint64()}
COUNTS = {"key": pa.uint64(), "count": pa.uint32()}
COUNTERS = {"counter": pa.uint8()}


def track_changes(tiers: Mapping[str, RamTier]) -> None:
    """From the next cut of these tables on, cuts of changes are possible."""
    for tier in tiers.values():
        tier.track_changes()


def shape_of(tier: SavedTable) -> RowShape:
    """What the rows of a table are made of."""
    return RowShape(tier.dim, tier.state_dim, tier.fields)


def table_facts(table: Table, shape: RowShape, rows: int, *shards: SavedShard) -> SavedTableFacts:
    """What the manifest says of a table."""
    return SavedTableFacts(
        settings=table.model_dump(mode="json"),
        dim=shape.dim,
        state_dim=shape.state_dim,
        fields=shape.fields,
        rows=rows,
        shards=shards,
    )


class LocalCut:
    """The rows of some tables at one moment. Nothing may train while it is made; from then on it may."""

    frozen = True

    def __init__(self, tiers: Mapping[str, RamTier], *, delta: bool = False, shard: int = 0, shards: int = 1) -> None:
        """With `delta` only what changed since the cut before; InputError where a table does not know all of it.

        The tables are those of shard `shard` of `shards`.
        """
        self.delta = delta
        self._shard, self._shards = shard, shards
        self._shapes = {name: shape_of(tier) for name, tier in tiers.items()}
        self._settings: dict[str, Table] = {name: tier.table for name, tier in tiers.items()}
        self._cuts: dict[str, TableCut] = {}
        with ExitStack() as undo:
            for name, tier in tiers.items():
                self._cuts[name] = tier.begin_cut(changed_only=delta)
                undo.callback(self._cuts[name].close, saved=False)
            undo.pop_all()

    @property
    def bytes(self) -> int:
        """About what will be written."""
        return sum(cut.changed_rows * self._shapes[name].bytes for name, cut in self._cuts.items())

    @property
    def copied_bytes(self) -> int:
        """Rows that were changed since and are held in their old form until they are written."""
        return sum(cut.copied_bytes for cut in self._cuts.values())

    def write(self, place: Place, watch: Watch) -> tuple[dict[str, SavedTableFacts], dict[str, SavedFile]]:
        """Write all files; the facts of each table, and of each file."""
        tables: dict[str, SavedTableFacts] = {}
        files: dict[str, SavedFile] = {}
        for number, (name, cut) in enumerate(self._cuts.items()):
            stem = f"tables/{number}/{self._shard}-of-{self._shards}"  # a table's name need not fit a file's
            part, written = self._write_table(place, stem, name, cut, watch)
            tables[name] = table_facts(self._settings[name], self._shapes[name], cut.rows, part)
            files |= written
        return tables, files

    def close(self, *, saved: bool) -> None:
        """Forget the moment. Where it was not saved, what changed before it still counts as changed."""
        with ExitStack() as every:
            for cut in self._cuts.values():
                every.callback(cut.close, saved=saved)

    def _write_table(
        self, place: Place, stem: str, name: str, cut: TableCut, watch: Watch
    ) -> tuple[SavedShard, dict[str, SavedFile]]:
        files: dict[str, SavedFile] = {}
        rows, removed = f"{stem}.arrow", f"{stem}.removed.arrow"
        waiting, filters = f"{stem}.admission.arrow", f"{stem}.filter.arrow"
        count, files[rows] = write_rows(place, rows, self._shapes[name], cut.chunks(), watch)
        gone = 0
        if self.delta:
            gone, files[removed] = write_columns(place, removed, [{"key": cut.removed}], KEYS)
        admission = self._settings[name].admission
        if isinstance(admission, AtLeast) and admission.filter is None:
            files[waiting] = write_columns(place, waiting, _counts(cut), COUNTS)[1]
        elif isinstance(admission, AtLeast):
            counters = ({"counter": each} for each in cut.filters())
            files[filters] = write_columns(place, filters, counters, COUNTERS)[1]
        part = SavedShard(
            rows=rows,
            count=count,
            removed=removed if self.delta else None,
            removed_count=gone,
            admission=waiting if waiting in files else None,
            filter=filters if filters in files else None,
        )
        return part, files


class ExportedRows:
    """Rows of tables elsewhere, written by this process: nothing may change them until they are."""

    frozen = delta = False

    def __init__(self, tiers: Mapping[str, SavedTable]) -> None:
        self._tiers = tiers

    @property
    def bytes(self) -> int:
        """About what will be written."""
        return sum(len(tier) * shape_of(tier).bytes for tier in self._tiers.values())

    def write(self, place: Place, watch: Watch) -> tuple[dict[str, SavedTableFacts], dict[str, SavedFile]]:
        """Write all files; the facts of each table, and of each file."""
        tables, files = {}, {}
        for number, (name, tier) in enumerate(self._tiers.items()):
            file, shape = f"tables/{number}/0-of-1.arrow", shape_of(tier)
            count, files[file] = write_rows(place, file, shape, tier.export(CHUNK), watch)
            part = SavedShard(rows=file, count=count)
            tables[name] = table_facts(tier.table, shape, count, part)
        return tables, files

    def close(self, *, saved: bool) -> None:
        """Nothing was kept for it."""


def _counts(cut: TableCut) -> Iterator[dict[str, NDArray[Any]]]:
    for keys, counts in cut.waiting():
        yield {"key": keys, "count": counts}
