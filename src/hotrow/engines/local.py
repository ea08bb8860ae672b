"""One training step in this process: look up, forward, backward, dense update, sparse update.

Values are read when the step before is applied, so a step is exactly what one torch model with all rows would do.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hotrow.client import LocalClient, inputs_of
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.store import Applied

Loss = Callable[[Tensor, Tensor], Tensor]  # (output of the model, labels [samples, labels]) -> mean over the samples


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step did."""

    loss: Tensor  # one number
    output: Tensor  # of the model, before the update
    applied: Mapping[str, Applied]  # by table


class LocalEngine:
    """A model, its tables and the dense optimizer."""

    def __init__(
        self,
        model: nn.Module,
        client: LocalClient,
        optimizer: torch.optim.Optimizer | None,
        *,
        loss: Loss | None = None,
        clip: float | None = None,
        autocast: bool = False,
    ) -> None:
        self.model = model
        self.client = client
        self.optimizer = optimizer  # None: the model has no parameters of its own
        self._loss: Loss = getattr(model, "loss", binary_cross_entropy) if loss is None else loss
        self._clip = clip
        self._autocast = autocast
        self._base_lrs = [group["lr"] for group in optimizer.param_groups] if optimizer else []

    def train(self, batch: Batch, *, step: int, samples: int, lr_scale: float = 1.0) -> Stepped:
        """One step on a batch. `samples` counts all samples up to and including it."""
        if batch.labels is None:
            raise InputError("labels are missing: a batch to train on needs them")
        self.model.train()
        handle = self.client.lookup(batch, learn=True)
        with self._precision():
            output = self.model(inputs_of(batch, handle))
        output = output.float()
        loss = self._loss(output, torch.from_numpy(batch.labels))
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self._dense_step(lr_scale)
        applied = self.client.push(handle, step=step, samples=samples, lr_scale=lr_scale)
        return Stepped(loss.detach(), output.detach(), applied)

    @torch.no_grad()
    def predict(self, batch: Batch) -> Tensor:
        """The model's output; no row is made or changed."""
        self.model.eval()
        handle = self.client.lookup(batch, learn=False)
        with self._precision():
            output: Tensor = self.model(inputs_of(batch, handle))
        return output.float()

    def _dense_step(self, lr_scale: float) -> None:
        if self.optimizer is None:
            return
        if self._clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self._clip)
        for group, base in zip(self.optimizer.param_groups, self._base_lrs, strict=True):
            group["lr"] = base * lr_scale
        self.optimizer.step()

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast("cpu", torch.bfloat16) if self._autocast else nullcontext()


def binary_cross_entropy(output: Tensor, labels: Tensor) -> Tensor:
    """The mean over samples and labels, of log-odds [samples] or [samples, labels]."""
    if output.dim() == 1:
        output = output[:, None]
    if output.shape != labels.shape:
        raise InputError(
            f"the model gives {tuple(output.shape)} and the labels are {tuple(labels.shape)}: "
            "give one output per label, or a model (or Trainer) with a loss of its own"
        )
    if not bool(((labels >= 0) & (labels <= 1)).all()):
        worst = float(labels[(labels < 0) | (labels > 1)][0])
        raise InputError(f"a label is {worst:g}: must be from 0 to 1; at_least in the label's setting makes it 0 or 1")
    return nn.functional.binary_cross_entropy_with_logits(output, labels)
