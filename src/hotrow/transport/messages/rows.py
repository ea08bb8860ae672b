"""Rows on shards: looked up and pushed by trainers and embedding workers, exported and imported by the driver."""

from typing import Annotated

from msgspec import Meta

from hotrow.transport.messages.header import Count, Header, Name, Number
from hotrow.types import Values


class RowBlockHeader(Header, frozen=True):
    """Rows of one table. Frames follow for what it has: keys uint64, values (fp16-scaled: halves, scales), versions.

    With `whole` they are some rows of a block of so many, and a frame with a bit for each of those comes first.
    """

    table: Name
    rows: Count
    dim: Annotated[int, Meta(ge=1, le=65_536)]
    keys: bool = False
    values: Values | None = None
    versions: bool = False
    whole: Count | None = None


class Arrival(Header, frozen=True):
    """Apply a push on arrival, times a factor, instead of parking it: values known at the grant."""

    samples: Number  # trained so far
    lr_scale: float
    factor: float


class PushRows(Header, frozen=True):
    """Gradients of one batch for a shard's rows, each id once. Without `arrival` they are parked under their grant."""

    grant: Number
    worker: Count
    token: Number
    pulled_step: Number
    samples: Count
    blocks: tuple[RowBlockHeader, ...]
    arrival: Arrival | None = None


class PullRows(Header, frozen=True):
    """Requests rows, after the order `after` was performed. With `learn` absent rows are created."""

    after: Number
    samples: Number  # trained so far: the clock of expiry
    learn: bool
    versions: bool
    values: Values  # the format of values on the wire
    blocks: tuple[RowBlockHeader, ...]
    grant: Number = 0
    step: Number | None = None  # that the rows are for, in modes with look-ahead: rows may be read before its turn


class Exchange(Header, frozen=True, tag="exchange"):
    """The push of an earlier batch and the pull of the next, in one request. Frames: those of the push, then the pull.

    Without a push and a pull it asks for the shard's state only.
    """

    incarnation: Number
    push: PushRows | None = None
    pull: PullRows | None = None


class LoadAhead(Header, frozen=True, tag="load_ahead"):
    """One-way: rows of these ids will be looked up soon. A shard brings those on disk into memory, or does nothing."""

    blocks: tuple[RowBlockHeader, ...]  # ids alone


class PullRest(Header, frozen=True, tag="pull_rest"):
    """Requests the rows of a grant's pull that were not read early. The reply comes when their step has come."""

    incarnation: Number
    grant: Number


class Taken(Header, frozen=True):
    """The result of a push. `again`: it arrived before and was not applied again."""

    again: bool = False
    refused: Count = 0  # rows whose gradient was not finite
    weightless: Count = 0
    missing: Count = 0


class Exchanged(Header, frozen=True, tag="exchanged"):
    """The reply to an exchange, or to `PullRest`. Frames: values (and versions) of the pull."""

    incarnation: Number
    taken: Taken | None = None
    absent: Count = 0  # ids without a row in a pull that creates none
    blocks: tuple[RowBlockHeader, ...] = ()
    newest: Number = 0  # in a reply to an empty exchange: the newest grant of the shard or its segments
    samples: Number = 0  # likewise: their count of samples


class Export(Header, frozen=True, tag="export"):
    """Whole rows of a table, from a cursor on."""

    table: Name
    cursor: Number
    most: Count


class Exported(Header, frozen=True, tag="exported"):
    """Frames: keys uint64, values, state, one uint32 column per field. The end is a cursor of 0."""

    cursor: Number
    rows: Count
    fields: tuple[Name, ...]


class Import(Header, frozen=True, tag="import"):
    """Whole rows of a table to store. Frames as those of an export."""

    table: Name
    rows: Count
    fields: tuple[Name, ...]


class Clear(Header, frozen=True, tag="clear"):
    """Delete all rows of a table."""

    table: Name
