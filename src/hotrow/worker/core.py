"""From a batch and its looked-up rows to gradients: values in, values out."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hotrow.client import Handle, LocalTables, inputs_of
from hotrow.client.aggregate import RowGradients, TableGradients
from hotrow.client.local import LocalLookup
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.worker.losses import Loss, binary_cross_entropy, takes_weights


@dataclass(slots=True, eq=False)
class Gradients:
    """Gradients of the mean loss over one local batch."""

    samples: int
    dense: list[Tensor | None]  # in the order of the model's parameters; None: not used
    rows: Mapping[str, TableGradients]  # by table, of the kind that the tables make
    loss: Tensor  # one number
    output: Tensor  # of the model, before the update
    halves: int = 0  # applied halves: rows and dense parameters
    buffers: list[Tensor] | None = None  # the change of a replica's buffers by this batch

    def row_gradients(self, table: str) -> RowGradients:
        """Of a table whose rows are in host memory."""
        given = self.rows[table]
        assert isinstance(given, RowGradients)
        return given

    @property
    def dense_bytes(self) -> int:
        """The size of the dense gradients on the wire."""
        return sum(each.numel() * each.element_size() for each in self.dense if each is not None)


class Learner:
    """A model and its loss. The model is on the device; batches, rows and gradients are in host memory."""

    def __init__(
        self, model: nn.Module, *, loss: Loss | None = None, autocast: bool = False, device: str = "cpu"
    ) -> None:
        self.device = torch.device(device)
        self.model = model.to(self.device)
        self.parameters = [each for each in model.parameters() if each.requires_grad]
        self._loss: Loss = getattr(model, "loss", binary_cross_entropy) if loss is None else loss
        self._autocast = autocast

    def like(self, model: nn.Module) -> "Learner":
        """The same loss, precision and device for a copy of the model."""
        own = getattr(self.model, "loss", None)
        loss = None if self._loss == own else self._loss
        return Learner(model, loss=loss, autocast=self._autocast, device=str(self.device))

    def learn(self, batch: Batch, handle: LocalLookup, client: LocalTables) -> Gradients:
        """Forward and backward. The model's own gradients are moved out of it."""
        for parameter in self.parameters:
            parameter.grad = None  # of an attempt that was interrupted
        loss, output = self.backward(batch, handle)
        return Gradients(len(batch), self.take_gradients(), client.gradients(handle), loss, output)

    def backward(self, batch: Batch, handle: Handle, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        """Loss and output; gradients of loss * scale are added to the model's, and left in the handle's outputs."""
        if batch.labels is None:
            raise InputError("labels are missing: a batch to train on needs them")
        self.model.train()
        with self._precision():
            output = self.model(inputs_of(batch, handle).to(self.device))
        output = output.float()
        loss = self._loss(output, torch.from_numpy(batch.labels).to(self.device), *self._weights(batch))
        for each in handle.outputs:
            each.rows.grad = None  # of an attempt that was interrupted
        (loss if scale == 1.0 else loss * scale).backward()  # type: ignore[no-untyped-call]
        return loss.detach().cpu(), output.detach().cpu()

    def _weights(self, batch: Batch) -> tuple[Tensor, ...]:
        if batch.weights is None:
            return ()
        if not takes_weights(self._loss):
            raise InputError(
                f"data.weight: the loss of {type(self.model).__name__} takes no weights: give it a third parameter "
                "`weights` [samples], and divide by the samples"
            )
        return (torch.from_numpy(batch.weights).to(self.device),)

    def take_gradients(self) -> list[Tensor | None]:
        """The model's own gradients, moved out of it."""
        dense = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        return dense

    @torch.no_grad()
    def predict(self, batch: Batch, handle: Handle) -> Tensor:
        self.model.eval()
        with self._precision():
            output: Tensor = self.model(inputs_of(batch, handle).to(self.device))
        return output.float().cpu()

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self._autocast else nullcontext()


def buffer_changes(model: nn.Module, before: Sequence[Tensor]) -> list[Tensor]:
    """What a batch added to the model's buffers; of a truth value whether it changed."""
    return [
        now ^ then if now.dtype == torch.bool else now - then for now, then in zip(model.buffers(), before, strict=True)
    ]
