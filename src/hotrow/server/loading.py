"""A shard reads its part of a checkpoint: its own rows, with their counters, eviction order and admission counts.

`restore_rows` is for a shard process that starts without its rows. `ShardLoading` answers the driver, in a thread
beside the one that serves: all shards compare checksums first, and rows change after that.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hotrow.checkpoint.loaded_rows import LoadedTable, load_rows
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.reader import FilesToRead, SavedCheckpoint
from hotrow.checkpoint.row_loader import LocalRowLoader
from hotrow.checkpoint.shard_part import ShardPart
from hotrow.checkpoint.table_fitting import OurTable, TablePlan, check_same_tables, table_plan
from hotrow.errors import HotrowError, InputError
from hotrow.server.shard import Shard
from hotrow.transport.faults import fault_of
from hotrow.transport.messages import (
    CheckRows,
    Fault,
    LoadRows,
    Message,
    RowsChecked,
    RowsLoaded,
    TableLoaded,
    TableSource,
)
from hotrow.transport.request import Request


@dataclass(frozen=True, slots=True)
class RestoredRows:
    """What a shard got back."""

    rows: int  # of all tables
    checkpoint: int  # its number
    step: int  # dense steps when it was saved
    samples: int


def restore_rows(shard: Shard, where: str | Path | Place, number: int | None = None) -> RestoredRows:
    """Replace all rows of a shard by its part of the newest checkpoint of a folder, or of the one with a number.

    InputError where it is not there, is damaged, or is of other tables: then nothing has changed.
    """
    place = Place.of(where)
    message = f"shard {shard.number} cannot restore its rows from {place.name}"
    try:
        found = SavedCheckpoint.open(place, number)
    except (InputError, OSError) as error:
        way = "save to a folder that all hosts share, or to an object store"
        raise InputError(f"{message}: {error}; {way}") from None
    try:
        loaded = _restore(shard, found)
    except (InputError, OSError) as error:
        raise InputError(f"{message}: {error}") from None
    counters = found.manifest.counters
    return RestoredRows(
        sum(each.rows for each in loaded.values()),
        found.manifest.number,
        int(counters.get("step", 0)),
        int(counters.get("samples", 0)),
    )


def _restore(shard: Shard, found: SavedCheckpoint) -> Mapping[str, LoadedTable]:
    shard.tables.settle()
    tiers = shard.tables.tiers
    ours = {
        name: OurTable(table, tiers[name].fields, shard.shards * tiers[name].capacity_rows)
        for name, table in shard.whole_tables.items()
    }
    check_same_tables(found.name, found.manifest.tables, ours)
    plans = {name: table_plan(name, found.manifest.tables[name], table) for name, table in ours.items()}
    loader = LocalRowLoader(tiers, ShardPart(shard.number, shard.shards))
    loader.verify(found, lambda _: None)
    return loader.load(found, plans, lambda: None)


class ShardLoading:
    """The checks and loads of a shard, one at a time."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._thread: threading.Thread | None = None
        self._stopping = False

    def start(self, request: Request, wanted: CheckRows | LoadRows) -> None:
        """Start a thread that does it and replies."""
        if self._thread is not None:
            raise InputError(f"shard {self._shard.number} still reads a checkpoint: load again later")
        name = f"load-{self._shard.number}"
        self._thread = threading.Thread(target=self._run, args=(request, wanted), name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Give up what is under way; the rows of a load that was not finished are of no use."""
        self._stopping = True
        if (thread := self._thread) is not None:
            thread.join()

    def _run(self, request: Request, wanted: CheckRows | LoadRows) -> None:
        reply: Message = Fault.of("internal", "an error in reading a checkpoint")
        try:
            reply = self._check(wanted) if isinstance(wanted, CheckRows) else self._load(wanted)
        except HotrowError as error:
            reply = fault_of(error)
        except OSError as error:
            reply = Fault.of("input", f"{Place.of(wanted.where).name}: a checkpoint cannot be read: {error}")
        except BaseException as error:
            reply = Fault.of("internal", f"an error in reading a checkpoint: {type(error).__name__}: {error}")
            raise
        finally:
            self._thread = None  # before the reply: the next request may follow it at once
            request.reply(reply)

    def _check(self, wanted: CheckRows) -> RowsChecked:
        if (found := _same_checkpoint(wanted)) is None:
            return RowsChecked(sees_files=False)
        part, read = ShardPart(self._shard.number, self._shard.shards), 0

        def count(size: int) -> None:
            nonlocal read
            self._check_stopping()
            read += size

        found.verify(count, _files_for(part))
        return RowsChecked(sees_files=True, bytes=read)

    def _load(self, wanted: LoadRows) -> RowsLoaded:
        if (found := _same_checkpoint(wanted)) is None:
            message = f"checkpoint {Place.of(wanted.where).name}: number {wanted.number} is gone or another one"
            raise InputError(f"{message} since it was checked: load again")
        plans = {each.table: _plan(each) for each in wanted.tables}
        loaded = _load(self._shard, found, plans, self._check_stopping)
        return RowsLoaded(
            tuple(TableLoaded(name, each.rows, each.too_large, each.counts_left) for name, each in loaded.items())
        )

    def _check_stopping(self) -> None:
        if self._stopping:
            raise InputError(f"shard {self._shard.number} is stopping")


def _load(
    shard: Shard, found: SavedCheckpoint, plans: Mapping[str, TablePlan], watch: Callable[[], object] = lambda: None
) -> dict[str, LoadedTable]:
    shard.tables.settle()
    part = ShardPart(shard.number, shard.shards)
    loaded = {name: load_rows(found, shard.input.tier(name), plan, part, watch) for name, plan in plans.items()}
    shard.counts["imported"] += sum(each.rows for each in loaded.values())
    return loaded


def _same_checkpoint(wanted: CheckRows | LoadRows) -> SavedCheckpoint | None:
    """The checkpoint that the driver means; None where it is not seen here."""
    try:
        found = SavedCheckpoint.open(wanted.where, wanted.number)
    except (InputError, OSError):  # the driver has read it: what is wrong is the way from here
        return None
    return found if found.chain[-1].digest == wanted.digest else None


def _files_for(part: ShardPart) -> FilesToRead:
    return lambda manifest: list(part.files(manifest))


def _plan(source: TableSource) -> TablePlan:
    return TablePlan(
        source.saved,
        source.rows,
        state=source.state,
        fields=source.fields,
        seen_now=source.seen_now,
        ticks=source.ticks,
        counts=source.counts,
    )
