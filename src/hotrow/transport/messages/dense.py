"""Dense parameters: between the shards that hold them, the trainers and the driver."""

from typing import Annotated

from msgspec import Meta

from hotrow.transport.messages.header import Count, Header, Number


class PullDense(Header, frozen=True, tag="pull_dense"):
    """Requests dense parameters, after an order was performed."""

    after: Number


class DensePulled(Header, frozen=True, tag="dense_pulled"):
    """Frames: the parameters and buffers that the server holds, in the order of the model."""

    step: Number


class PushDense(Header, frozen=True, tag="push_dense"):
    """Dense gradients of one batch, parked under their grant. Frames: those of each tensor that is present."""

    grant: Number
    worker: Count
    token: Number
    pulled_step: Number
    samples: Count
    present: tuple[bool, ...]
    buffers: bool = False  # changes of buffers (running means) follow


class TakeDense(Header, frozen=True, tag="take_dense"):
    """The dense state that a shard continues with: it holds some of its tensors. Frames: safetensors, cut up."""

    step: Number
    optimizer: Annotated[str, Meta(max_length=10_000_000)] | None = None


class GiveDense(Header, frozen=True, tag="give_dense"):
    """Requests the dense state of the last complete step."""

    optimizer: bool  # with the optimizer's
    step: Number = 0  # dense steps that it has to hold, where trainers end them together


class DenseGiven(Header, frozen=True, tag="dense_given"):
    """Frames: safetensors, cut up."""

    step: Number
    optimizer: Annotated[str, Meta(max_length=10_000_000)] | None = None
