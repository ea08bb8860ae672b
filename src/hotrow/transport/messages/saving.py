"""Checkpoints: a shard holds its rows of one moment and writes them while it serves, and reads them back."""

from typing import Annotated

from msgspec import Meta

from hotrow.transport.messages.header import Count, Header, Name, Number

Where = Annotated[str, Meta(min_length=1, max_length=4_096)]  # a path, or a URI


class TrackChanges(Header, frozen=True, tag="track_changes"):
    """Record from the next cut on which rows change."""


class CutRows(Header, frozen=True, tag="cut_rows"):
    """Hold all rows as they are now; with `delta` those that changed since the cut before.

    Refused where the shard does not know all changes. `probe` is a file of the driver beside the checkpoints.
    """

    incarnation: Number
    delta: bool
    where: Where
    probe: Where


class CutMade(Header, frozen=True, tag="cut_made"):
    """`sees_probe`: False where the shard cannot see the driver's files; then it holds no rows."""

    sees_probe: bool
    bytes: Count = 0


class WriteCut(Header, frozen=True, tag="write_cut"):
    """Write the rows of the cut to a folder. The reply comes when they are written."""

    where: Where
    number: Count  # of the checkpoint


class CutWritten(Header, frozen=True, tag="cut_written"):
    """The frame after it is JSON: facts of tables and files."""

    bytes: Count


class EndCut(Header, frozen=True, tag="end_cut"):
    """Forget the cut. Changes of one that was not saved belong to the next."""

    saved: bool


class CheckRows(Header, frozen=True, tag="check_rows"):
    """Compare the shard's share of the files of a checkpoint with their checksums. Changes nothing."""

    incarnation: Number
    where: Where  # the folder of all checkpoints
    number: Count
    digest: Name  # of the manifest


class RowsChecked(Header, frozen=True, tag="rows_checked"):
    """`sees_files`: False where the shard does not find this checkpoint."""

    sees_files: bool
    bytes: Number = 0  # read


class TableSource(Header, frozen=True):
    """Where the rows of a table come from, and which parts of them are taken: `TablePlan` of a load."""

    table: Name
    saved: Name | None  # None: it starts empty
    rows: Number  # of all shards
    state: bool
    fields: tuple[Name, ...]
    seen_now: bool
    ticks: tuple[Count, Count]
    counts: bool


class LoadRows(Header, frozen=True, tag="load_rows"):
    """Replace all rows by the shard's part of a checkpoint. The reply comes when they are read."""

    incarnation: Number
    where: Where
    number: Count
    digest: Name
    tables: tuple[TableSource, ...]


class TableLoaded(Header, frozen=True):
    """What a load did to a table of the shard."""

    table: Name
    rows: Number
    too_large: Number
    counts_left: bool


class RowsLoaded(Header, frozen=True, tag="rows_loaded"):
    """The reply to `LoadRows`."""

    tables: tuple[TableLoaded, ...]
