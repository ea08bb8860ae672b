"""A trainer's dense parameters in one mode: read from servers, all-reduced over the ranks, or its own until a merge.

The trainer calls `prefetch` when a batch arrives, `learn` to compute it, `sent` when the gradients of its rows are
sent, and `finish` last.
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
    """The results of a batch; gradients of its rows are in the handle's outputs."""

    loss: Tensor
    output: Tensor
    pulled_step: int


class DenseStrategy(Protocol):
    """How a trainer reads and updates dense parameters in a mode."""

    step: int  # dense steps in this trainer's parameters, as far as it knows

    @property
    def before_the_step(self) -> Mapping[str, Tensor]:
        """By name, tensors of the model that the current step changes on this trainer alone, as they were before it."""

    def prefetch(self, work: BatchRequest) -> None:
        """A batch arrived: start what can be started before it is computed."""

    def may_compute(self, token: int) -> bool:
        """Whether the parameters for a step are here."""

    def give_up(self, work: BatchRequest) -> None:
        """The rows of a batch will not come: it is not computed."""

    def learn(self, work: BatchRequest, batch: Batch, handle: Handle) -> Learned:
        """Forward and backward."""

    def sent(self, work: BatchRequest) -> list[Future[Answer]]:
        """The gradients of rows are sent; returns what else has to arrive before the batch counts as pushed."""

    def finish(self, work: BatchRequest) -> None:
        """The reply to the batch can be sent; wait for other trainers here, which may have no batch in this step."""

    def close_step(self, message: CloseStep) -> None:
        """A step ends before every rank has computed its share."""

    def settle(self, message: Settle) -> None:
        """A step of KStep is applied."""

    def forget_step(self) -> None:
        """The open step was cut: its gradients do not count. InputError where they cannot be told apart."""

    def close(self) -> None:
        """The mode ends."""


class LearningRates:
    """The scaled learning rates of a run, and SWAP's count of samples."""

    def __init__(self, optimizer: Optimizer, base: Sequence[float]) -> None:
        self.optimizer, self._base = optimizer, base

    def set(self, lr_scale: float, samples: int) -> None:
        for group, base in zip(self.optimizer.param_groups, self._base, strict=True):
            group["lr"] = base * lr_scale
        if hasattr(self.optimizer, "set_samples"):
            self.optimizer.set_samples(samples)
