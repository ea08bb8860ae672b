"""Loaders: the driver opens readings and learns which batches are made; trainers and embedding workers pull them."""

from typing import Annotated, Literal

from msgspec import Meta

from hotrow.transport.messages.control import Fault
from hotrow.transport.messages.embedding import IdPart
from hotrow.transport.messages.header import Count, Header, Name, Number
from hotrow.transport.messages.work import Samples

Text = Annotated[str, Meta(max_length=10_000)]


class FileFacts(Header, frozen=True):
    """A file of a source, as the driver sees it."""

    name: Text
    size: Number | None  # bytes, where the file system knows


class PrepareSource(Header, frozen=True, tag="prepare_source"):
    """Fetch a source from Ray by its key, and check that its files are the driver's."""

    key: Name
    files: tuple[FileFacts, ...]


class ForgetSource(Header, frozen=True, tag="forget_source"):
    """Drop a source that was prepared: no reading of it is opened any more."""

    key: Name


class OpenReading(Header, frozen=True, tag="open_reading"):
    """Read the batches of one loader that are not done at a position."""

    reading: Number
    key: Name  # of the source
    position: Annotated[str, Meta(max_length=100_000_000)]  # as JSON
    epochs: Number | None
    labels: bool
    number: Count  # of this loader
    loaders: Annotated[int, Meta(ge=1, le=2**31)]
    stretch: Annotated[int, Meta(ge=1, le=2**62)]  # batches


class NextBatches(Header, frozen=True, tag="next_batches"):
    """Asks which batches are made after the first `received` items of a reading, of which `until` may be made.

    The reply comes when there is one. Batches in `released`, by (epoch, index), are not needed any more.
    """

    reading: Number
    received: Number
    until: Number
    released: tuple[tuple[Number, Number], ...] = ()


class BatchHead(Header, frozen=True):
    """A batch that can be pulled; without samples the end of an epoch before batch `index`."""

    epoch: Number
    index: Number
    samples: Count | None
    counts: dict[str, int]


class BatchesDue(Header, frozen=True, tag="batches_due"):
    """One-way: batches of a reading up to this one are handed out soon. Their ids are sent to the shards ahead."""

    reading: Number
    epoch: Number
    index: Number


class MalformedLine(Header, frozen=True):
    """A line that was left out."""

    file: Text
    line: Number
    reason: Text
    text: Text


class TroubleMet(Header, frozen=True):
    """Malformed lines so far: by file (last line, malformed, empty ones), and the first of all."""

    files: dict[Text, tuple[Number, Number, Number]]
    first: tuple[MalformedLine, ...]


class BatchesMade(Header, frozen=True, tag="batches_made"):
    """Items of a reading in order; a fault comes after them."""

    items: tuple[BatchHead, ...]
    ended: bool = False  # no further items follow
    fault: Fault | None = None
    trouble: TroubleMet | None = None  # None: as before the first of the items


class KeepBatches(Header, frozen=True, tag="keep_batches"):
    """Make no more batches of a reading, and keep only those in `kept`, by (epoch, index)."""

    reading: Number
    kept: tuple[tuple[Number, Number], ...]


class CloseReading(Header, frozen=True, tag="close_reading"):
    """End a reading, and drop its batches."""

    reading: Number


class ForgetLoader(Header, frozen=True, tag="forget_loader"):
    """A loader has left, and no batch of it is needed: close the connection to it, if there is one."""

    loader: Name


class PullBatch(Header, frozen=True, tag="pull_batch"):
    """Requests a batch that was announced: all of it, everything but its ids, or only these."""

    reading: Number
    epoch: Number
    index: Number
    part: Literal["all", "features", "ids"]


class BatchGiven(Header, frozen=True, tag="batch_given"):
    """A batch; frames as those of `Samples`."""

    batch: Samples


class IdsGiven(Header, frozen=True, tag="ids_given"):
    """The ids of a batch; frames as those of `LookUp`."""

    count: Count  # of samples
    parts: tuple[IdPart, ...]
