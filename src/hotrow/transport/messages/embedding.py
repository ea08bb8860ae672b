"""Embedding workers: ids come from the driver, vectors and their gradients are exchanged with the trainers."""

from typing import Annotated, Literal

from msgspec import Meta

from hotrow.transport.messages.header import Count, Header, Name, Number, SampleId
from hotrow.transport.messages.rows import Arrival, Taken
from hotrow.transport.messages.work import BatchAt
from hotrow.types import Values


class Coded(Header, frozen=True):
    """The ids of one feature: plain, each once with its samples, or each once with an index for every position."""

    form: Literal["plain", "counted", "placed"]
    ids: Count
    unique: Count  # keys that are sent


class IdPart(Header, frozen=True):
    """A part's ids, feature by feature in each of its frames: keys uint64; counts; samples or places; lengths of bags.

    Counts and lengths are as wide as they say, in bytes; a sample is uint16 up to 65,535 of them and uint32 beyond.
    """

    table: Name
    kind: Literal["one", "bags", "sequence"]
    names: tuple[Name, ...]
    pooling: Literal["mean", "sum"]
    coded: tuple[Coded, ...]
    counts: Literal[2, 4] = 4
    lengths: Literal[1, 2, 4] = 4


class LookUp(Header, frozen=True, tag="look_up"):
    """The ids of a batch, for an embedding worker: it looks them up, and keeps them until their gradients arrive."""

    sample: SampleId
    worker: Count  # the trainer that will pull the vectors
    after: Number  # the order that the lookup has to wait for
    trained: Number  # samples so far
    versions: bool
    count: Count  # of samples
    parts: tuple[IdPart, ...]
    step: Number | None = None  # that the rows are for, in modes with look-ahead
    ahead: bool = False  # the step before is open: rows come in two parts
    at: BatchAt | None = None  # where the ids are pulled; there are no parts then


class Vectors(Header, frozen=True):
    """Vectors of a part or their gradients, fp32 or halves and scales as a block's; without values there are none.

    A row is one vector: of a sample and a feature, sample by sample; of a sequence one id's, without padding, and
    lengths follow, as many bytes wide as they say.
    """

    rows: Count
    wide: Count  # floats per row
    values: Values | None
    lengths: Literal[0, 1, 2, 4] = 0


class PullPooled(Header, frozen=True, tag="pull_pooled"):
    """Requests the vectors of a batch; the reply comes when they are looked up."""

    sample: SampleId


class Pooled(Header, frozen=True, tag="pooled"):
    """Frames: those of each part in turn."""

    count: Count  # of samples
    parts: tuple[Vectors, ...]


class PushPooled(Header, frozen=True, tag="push_pooled"):
    """Gradients of a batch's vectors. The reply comes when all shards have those of its rows, or caches have."""

    sample: SampleId
    worker: Count
    token: Number
    pulled_step: Number
    parts: tuple[Vectors, ...]
    arrival: Arrival | None = None


class Folded(Header, frozen=True, tag="folded"):
    """The reply to gradients of vectors: what each shard did with those of tables without a cache.

    `changed_rows`: of the embedding worker's caches, with changes that no shard knows.
    """

    taken: tuple[Taken, ...]
    changed_rows: Count = 0


class Release(Header, frozen=True, tag="release"):
    """Batches whose gradients will not be sent.

    `dealt_again`: they are computed once more, so gradients that arrived before are applied twice.
    """

    samples: tuple[SampleId, ...]
    dealt_again: bool = False


class Meet(Header, frozen=True, tag="meet"):
    """The address of an embedding worker, or None: it has left. For trainers."""

    number: Annotated[int, Meta(ge=0, le=255)]
    address: Annotated[str, Meta(min_length=1, max_length=1_000)] | None
