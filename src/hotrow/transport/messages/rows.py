"""Rows on shards: looked up and pushed to by trainers and embedding workers, moved whole by who saves and loads."""

from typing import Annotated

from msgspec import Meta

from hotrow.transport.messages.header import Count, Header, Name, Number, Values


class RowBlockHeader(Header, frozen=True):
    """Rows of one table. Frames follow for what it has: keys uint64, values (fp16-scaled: halves, scales), versions."""

    table: Name
    rows: Count
    dim: Annotated[int, Meta(ge=1, le=65_536)]
    keys: bool = False
    values: Values | None = None
    versions: bool = False


class Arrival(Header, frozen=True):
    """Apply a push as it comes, times a factor, instead of parking it: what the coordinator knew at the grant."""

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
    """Rows wanted, not before the coordinator's order `after` was performed. With `learn` absent ones are made."""

    after: Number
    samples: Number  # trained so far: the clock of expiry
    learn: bool
    versions: bool
    values: Values  # how they travel
    blocks: tuple[RowBlockHeader, ...]


class Exchange(Header, frozen=True, tag="exchange"):
    """The push of an earlier batch and the pull of the next, in one request. Frames: those of the push, then the pull.

    Without a push and a pull it asks only whether the shard is there, and what it knows.
    """

    incarnation: Number
    push: PushRows | None = None
    pull: PullRows | None = None


class Taken(Header, frozen=True):
    """What became of a push. `again` says that it was here before and was not applied again."""

    again: bool = False
    refused: Count = 0  # rows whose gradient was not finite
    weightless: Count = 0
    missing: Count = 0


class Exchanged(Header, frozen=True, tag="exchanged"):
    """The answer to an exchange. Frames: values (and versions) of the pull."""

    incarnation: Number
    taken: Taken | None = None
    absent: Count = 0  # ids without a row in a pull that makes none
    blocks: tuple[RowBlockHeader, ...] = ()
    newest: Number = 0  # to one that asks for nothing: the newest grant that the shard or its segments know
    samples: Number = 0  # likewise: the count of samples that they were last told


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
    """Whole rows of a table to put in. Frames as those of an export."""

    table: Name
    rows: Count
    fields: tuple[Name, ...]


class Clear(Header, frozen=True, tag="clear"):
    """Forget all rows of a table: others come in their place."""

    table: Name
