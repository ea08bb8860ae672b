"""How the rows of a checkpoint get into the tables of a run: checked first, or, where tables are empty, on the way."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from hotrow.checkpoint.loaded_rows import LoadedTable, load_rows, put_rows, restore_admission
from hotrow.checkpoint.manifest import Manifest
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.checkpoint.rows import Watch
from hotrow.checkpoint.shard_part import WHOLE, ShardPart
from hotrow.checkpoint.table_fitting import TablePlan
from hotrow.store import RamTier, SavedTable


class RowLoader(Protocol):
    """Loads one checkpoint: `verify`, then `load`."""

    @property
    def tiers(self) -> Mapping[str, SavedTable]:
        """The tables."""

    def verify(self, found: SavedCheckpoint, watch: Watch) -> None:
        """InputError names a file that is missing, cut or changed. Changes nothing."""

    def load(
        self, found: SavedCheckpoint, plans: Mapping[str, TablePlan], changing: Callable[[], object]
    ) -> Mapping[str, LoadedTable]:
        """Replace the rows of all tables, whose plans these are.

        `changing` is called before the first change that an error would leave. Files that `verify` left out are
        checked before that.
        """


class LocalRowLoader:
    """This process reads all rows, or those of a part.

    Rows that are there must not change before all files are checked. Where there are none, a file is checked while its
    rows are put, so that it is read once; if it is damaged, the tables are emptied again
    and their clocks put back.
    """

    def __init__(self, tiers: Mapping[str, SavedTable], part: ShardPart = WHOLE) -> None:
        self.tiers = tiers
        self._part = part
        self._empty: dict[str, RamTier] | None = None  # the tables, where none has rows
        self._watch: Watch = lambda _: None

    def verify(self, found: SavedCheckpoint, watch: Watch) -> None:
        """Read all files, or those without rows."""
        own = {name: tier for name, tier in self.tiers.items() if isinstance(tier, RamTier)}
        self._watch = watch
        self._empty = own if len(own) == len(self.tiers) and not any(map(len, own.values())) else None
        found.verify(watch, self._all_files if self._empty is None else self._files_without_rows)

    def load(
        self, found: SavedCheckpoint, plans: Mapping[str, TablePlan], changing: Callable[[], object]
    ) -> Mapping[str, LoadedTable]:
        """One table after the other."""
        if self._empty is not None:
            return self._fill(found, plans, self._empty, changing)
        changing()
        return {name: load_rows(found, tier, plans[name], self._part) for name, tier in self.tiers.items()}

    def _fill(
        self,
        found: SavedCheckpoint,
        plans: Mapping[str, TablePlan],
        tiers: Mapping[str, RamTier],
        changing: Callable[[], object],
    ) -> Mapping[str, LoadedTable]:
        clocks = {name: tier.clock() for name, tier in tiers.items()}
        try:
            loaded = {name: self._checked(found, tier, plans[name]) for name, tier in tiers.items()}
            used = {plan.saved for plan in plans.values()}
            found.verify(self._watch, lambda manifest: self._row_files(manifest, except_for=used))
        except BaseException as error:
            for name, tier in tiers.items():
                tier.clear()
                tier.restore_clock(clocks[name])
            if isinstance(error, Exception):  # whatever it was: a damaged file is the reason to be told
                found.verify(read=self._all_files)
            raise
        changing()
        return {
            name: replace(each, counts_left=not restore_admission(found, tiers[name], plans[name], self._part))
            for name, each in loaded.items()
        }

    def _checked(self, found: SavedCheckpoint, tier: RamTier, plan: TablePlan) -> LoadedTable:
        if plan.saved is None:
            return LoadedTable(0)
        return put_rows(found.rows(plan.saved, self._part, check=self._watch), found, tier, plan, self._part)

    def _all_files(self, manifest: Manifest) -> Iterator[str]:
        if self._part == WHOLE:
            yield from manifest.files
        else:
            yield from self._part.files(manifest)

    def _files_without_rows(self, manifest: Manifest) -> Iterator[str]:
        rows = frozenset(self._row_files(manifest))
        return (file for file in self._all_files(manifest) if file not in rows)

    def _row_files(
        self, manifest: Manifest, except_for: "set[str | None] | frozenset[str]" = frozenset()
    ) -> Iterator[str]:
        """Those of this part, of all tables but some."""
        own = frozenset(self._all_files(manifest))
        for name, facts in manifest.tables.items():
            if name not in except_for:
                yield from (shard.rows for shard in facts.shards if shard.rows in own)
