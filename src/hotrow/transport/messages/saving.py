"""Checkpoints: a shard holds its rows of one moment, and writes them while it goes on serving."""

from typing import Annotated

from msgspec import Meta

from hotrow.transport.messages.header import Count, Header, Number

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
