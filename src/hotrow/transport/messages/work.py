"""Batches of the driver for trainers, and their replies."""

from typing import Annotated, Literal

from msgspec import Meta

from hotrow.transport.messages.header import Count, Header, Name, Number, SampleId


class Features(Header, frozen=True):
    """A part of a batch: frames follow for its keys (int64) and, unless every bag holds one id, its bounds (int64)."""

    table: Name
    kind: Literal["one", "bags", "sequence"]
    names: tuple[Name, ...]
    keys: Count
    pooling: Literal["mean", "sum"]


class Samples(Header, frozen=True):
    """A batch. Frames: numbers, labels and, where there are any, sample weights (float32), then those of each part."""

    count: Count
    numbers: Count  # per sample
    labels: Count  # per sample; 0: there are none
    parts: tuple[Features, ...]
    weights: bool = False


class BatchAt(Header, frozen=True):
    """A batch that is kept by a loader, to be pulled there."""

    loader: Name
    address: Annotated[str, Meta(min_length=1, max_length=1_000)]
    reading: Number
    epoch: Number
    index: Number


class BatchRequest(Header, frozen=True, tag="work"):
    """A grant and its batch, for a trainer. The reply comes when all gradients are on their servers."""

    grant: Number
    worker: Count
    token: Number
    step: Number  # dense steps that were applied when it was granted
    after: Number  # the order that lookups have to wait for
    trained: Number  # samples so far
    lr_scale: float
    factor: float | None  # of its rows' gradients, where shards apply them on arrival
    batch: Samples | None  # None: it is at a loader
    sample: SampleId | None = None  # where an embedding worker has the ids, the batch has none
    at: BatchAt | None = None


class BatchReply(Header, frozen=True, tag="worked"):
    """The gradients of a grant are parked. Scores are not in it: they are collected as sketches."""

    grant: Number
    looked_step: Number
    pulled_step: Number
    samples: Count
    busy_s: float
    loss: float
    changed_rows: Count = 0  # cached here or by the embedding worker, with changes that no shard knows


class Begin(Header, frozen=True, tag="begin"):
    """A mode begins on a trainer, from the dense state that follows (safetensors, cut up).

    With collectives `ranks` trainers meet at `meeting`; in all-reduce modes `share` batches of each make a step.
    """

    mode: Annotated[str, Meta(max_length=100_000)]  # as JSON
    order: Number
    step: Number
    rank: Count
    ranks: Count
    share: Count
    local_batch: Count
    trained: Number  # samples so far
    meeting: Annotated[str, Meta(max_length=1_000)] | None  # None in token modes
    optimizer: Annotated[str, Meta(max_length=10_000_000)] | None = None  # its state without tensors, as JSON
    seed: Number = 0  # of torch on this rank: dropout masks must differ between ranks


class LeaveMeeting(Header, frozen=True, tag="leave_meeting"):
    """A trainer does not come to a meeting: the others, in `Begin` or `Regroup`, do not wait for it."""

    meeting: Annotated[str, Meta(max_length=1_000)]


class CloseStep(Header, frozen=True, tag="close_step"):
    """No more batches follow for a dense step: all ranks apply what they have."""

    step: Number
    lr_scale: float


class CutStep(Header, frozen=True, tag="cut_step"):
    """A role is lost: leave the group of ranks, and compute nothing more in this mode. The reply is `StepCut`."""


class StepCut(Header, frozen=True, tag="step_cut"):
    """The dense steps in a trainer's parameters, which do not change any more."""

    step: Number


class Regroup(Header, frozen=True, tag="regroup"):
    """KStep, after a cut: meet the trainers that are left, each with its own copy, and forget gradients of the step."""

    meeting: Annotated[str, Meta(max_length=1_000)]
    rank: Count
    ranks: Count


class Settle(Header, frozen=True, tag="settle"):
    """KStep: a step is applied; each trainer updates its own dense parameters, merged or alone."""

    step: Number
    merge: bool
    trained: Number
    lr_scale: float
