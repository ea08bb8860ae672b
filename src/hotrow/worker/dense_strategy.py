"""A trainer's dense parameters in one mode: read from servers, moved by all ranks together, or its own until a merge.

The trainer calls `ask` when work comes, `learn` when it computes, `sent` when the rows' gradients are on their way, and
`finish` last.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.optim import Optimizer

from hotrow.client.base import Handle
from hotrow.data.batch import Batch
from hotrow.transport.client import Answer
from hotrow.transport.messages import BatchRequest, CloseStep, Settle


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What a batch gave; gradients of its rows are left in the handle's outputs."""

    loss: Tensor
    output: Tensor
    pulled_step: int


class DenseStrategy(Protocol):
    """One mode's way."""

    step: int  # dense steps that this trainer's parameters hold, as far as it knows

    @property
    def before_the_step(self) -> Mapping[str, Tensor]:
        """By name, tensors of the model that the running step changes on this trainer alone, as they were before it."""

    def ask(self, work: BatchRequest) -> None:
        """Work came: whatever can begin before it is computed."""

    def may_compute(self, token: int) -> bool:
        """Whether the parameters for a step are there."""

    def learn(self, work: BatchRequest, batch: Batch, handle: Handle) -> Learned:
        """Forward and backward."""

    def sent(self, work: BatchRequest) -> list[Future[Answer]]:
        """The rows' gradients are on their way: what else has to arrive before the batch counts as pushed."""

    def finish(self, work: BatchRequest) -> None:
        """The batch can be told of: what has to wait for other trainers, some of which may have none in this step."""

    def close_step(self, message: CloseStep) -> None:
        """A step ends before every rank has had its share."""

    def settle(self, message: Settle) -> None:
        """A step of KStep is applied."""

    def close(self) -> None:
        """The mode ends."""


class LearningRates:
    """Learning rates as the run scales them, and SWAP's count of samples."""

    def __init__(self, optimizer: Optimizer, base: Sequence[float]) -> None:
        self.optimizer, self._base = optimizer, base

    def set(self, lr_scale: float, samples: int) -> None:
        for group, base in zip(self.optimizer.param_groups, self._base, strict=True):
            group["lr"] = base * lr_scale
        if hasattr(self.optimizer, "set_samples"):
            self.optimizer.set_samples(samples)
