"""Orders: what the coordinator decided, for the shards."""

from typing import Annotated, Literal

from msgspec import Meta

from hotrow.transport.messages.header import Count, Header, Number


class OrderPart(Header, frozen=True):
    """A parked push as a step takes it."""

    grant: Number
    token: Number
    pulled_step: Number
    samples: Count
    weight: float


class ApplyOrder(Header, frozen=True):
    """A step of the coordinator's, for rows, dense parameters or both."""

    group: Literal["both", "dense", "embedding"]
    step: Number
    samples: Number  # trained up to and including it
    lr_scale: float
    parts: tuple[OrderPart, ...]


class Perform(Header, frozen=True, tag="perform"):
    """What the coordinator decided, numbered. Orders are performed in turn; one that comes twice has no effect."""

    incarnation: Number
    order: Number
    applies: tuple[ApplyOrder, ...]
    discards: tuple[Number, ...] = ()


class PartWeights(Header, frozen=True):
    """What the dense gradients of a parked push weighed on a server, from the least to the greatest."""

    grant: Number
    least: float
    greatest: float


class OrderResult(Header, frozen=True, tag="performed"):
    """Since the last answer: what became of rows, and how late their gradients were as pairs of age and count."""

    order: Number
    refused: Count = 0
    weightless: Count = 0
    missing: Count = 0
    lost_pushes: Count = 0  # that a step took and that never came
    forgotten: Count = 0  # that came under a grant too old to tell whether they had come before
    partly_applied: Count = 0  # that were under way to a kept segment when it was left: not taken again
    lateness: tuple[tuple[Number, Number], ...] = ()
    weights: tuple[PartWeights, ...] = ()  # of the parts of this order, where a policy weighs tensors by their movement


class Policy(Header, frozen=True, tag="policy"):
    """How shards treat what comes from now on: a mode begins. `staleness` is its policy as JSON.

    With `dense` they serve dense parameters too.
    """

    incarnation: Number
    order: Number
    average: Literal["batch", "present"]
    staleness: Annotated[str, Meta(max_length=100_000)] | None = None
    dense: bool = False
    step: Number | None = None  # dense steps so far: what is applied on arrival is stamped with them
    samples: Number | None = None  # trained so far
    pushes: Count = 1  # that a step takes
