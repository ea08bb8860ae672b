"""Orders: the driver's decisions, for the shards."""

from typing import Annotated, Literal

from msgspec import Meta

from hotrow.transport.messages.header import Count, Header, Number


class OrderPart(Header, frozen=True):
    """A parked push as a part of a step."""

    grant: Number
    token: Number
    pulled_step: Number
    samples: Count
    weight: float


class ApplyOrder(Header, frozen=True):
    """A step of the driver, for rows, dense parameters or both."""

    group: Literal["both", "dense", "embedding"]
    step: Number
    samples: Number  # trained up to and including it
    lr_scale: float
    parts: tuple[OrderPart, ...]


class Perform(Header, frozen=True, tag="perform"):
    """Decisions of the driver, numbered. Orders are performed in sequence; one that arrives twice has no effect.

    `expected`: pushes that are applied on arrival, of batches that count and whose trainer did not answer for them. One
    that is not here is lost, and one that arrives later is not applied.
    """

    incarnation: Number
    order: Number
    applies: tuple[ApplyOrder, ...]
    discards: tuple[Number, ...] = ()
    expected: tuple[Number, ...] = ()


class Prepare(Header, frozen=True, tag="prepare"):
    """A step whose batches are all granted, as it will be ordered: with look-ahead, its rows that the next step needs
    are updated as soon as all its gradients are here.
    """

    incarnation: Number
    apply: ApplyOrder


class PartWeights(Header, frozen=True):
    """The weights of the dense gradients of a parked push on a shard, from the least to the greatest."""

    grant: Number
    least: float
    greatest: float


class OrderResult(Header, frozen=True, tag="performed"):
    """What happened to rows since the last reply, and the staleness of their gradients as pairs of age and count."""

    order: Number
    refused: Count = 0
    weightless: Count = 0
    missing: Count = 0
    lost_pushes: Count = 0  # parts of a step, and expected pushes, that never arrived
    forgotten: Count = 0  # with a grant too old to know whether it was applied before
    partly_applied: Count = 0  # that a crash interrupted in a kept segment: not applied again
    applied_before: Count = 0  # discarded pushes whose rows were applied on arrival
    parked_lost: Count = 0  # parts of a step that were parked on a shard process that ended
    dense_parked_lost: Count = 0  # the same, of dense gradients
    lateness: tuple[tuple[Number, Number], ...] = ()
    weights: tuple[PartWeights, ...] = ()  # of the parts of this order, where a policy weighs each tensor


class Policy(Header, frozen=True, tag="policy"):
    """The rules for messages from now on: a mode begins. `staleness` is its policy as JSON.

    With `dense` the shards hold dense parameters too.
    """

    incarnation: Number
    order: Number
    average: Literal["batch", "present"]
    staleness: Annotated[str, Meta(max_length=100_000)] | None = None
    dense: bool = False
    step: Number | None = None  # dense steps so far: the stamp of rows that are applied on arrival
    samples: Number | None = None  # trained so far
    pushes: Count = 1  # per step


class ResumeShard(Header, frozen=True, tag="resume"):
    """A shard that was started again goes on after an order, by the rules of the open mode. Until then it answers
    no request about rows and parameters.

    With `refuses` it answers pushes and lookups of training with "lost" until a mode begins: the step is cut.
    """

    order: Number
    average: Literal["batch", "present"] = "batch"
    staleness: Annotated[str, Meta(max_length=100_000)] | None = None
    dense: bool = False
    step: Number = 0  # dense steps so far
    samples: Number = 0  # trained so far
    pushes: Count = 1  # per step
    arrival: bool = False  # rows are applied as they arrive
    refuses: bool = False
    discards: tuple[Number, ...] = ()  # of orders that it refuses, because it has lost its rows
