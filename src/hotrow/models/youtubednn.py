"""YouTube's candidate generation (Covington et al. 2016): a user vector from the mean of the history, times items."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from hotrow.errors import ConfigError
from hotrow.models.layers import MLP, Activation, Dropout, Hidden, masked_mean
from hotrow.models.reading import target_and_history
from hotrow.nn.inputs import Inputs, InputShape
from hotrow.sizes import Whole


class YouTubeDNN(nn.Module):
    """user = MLP(mean of the history, all fields but the target, numbers); score = <user, row of the target>.

    "softmax": while training the output is [samples, samples], every user with every item of the batch, less the item's
    log q, and the loss is the cross entropy of a sample's own item, over the samples with label 1. log q, up to a
    constant, is the number at place `log_frequency` (no other part sees it). Left out, it is the log of how often the
    item is in this batch, so that each item counts once. In eval mode the output is the own score, [samples].
    "binary": the output is score + bias, always; the loss is the usual one.
    """

    task = "classification"  # of its own loss

    def __init__(
        self,
        shape: InputShape,
        *,
        target: str | None = None,
        history: str | None = None,
        hidden: Hidden = (1024, 512, 256),
        activation: Activation = "relu",
        dropout: Dropout = 0.0,
        objective: Literal["softmax", "binary"] = "softmax",
        log_frequency: Annotated[Whole, Field(ge=0)] | None = None,
    ) -> None:
        super().__init__()
        self.target, self.history = target_and_history(shape, "youtubednn", target, history)
        if log_frequency is not None and (objective == "binary" or log_frequency >= shape.numbers):
            reason = "only softmax needs it" if objective == "binary" else f"there are {shape.numbers} numbers"
            raise ConfigError(
                f"youtubednn.log_frequency={log_frequency}: {reason}: leave it out, or give a place from 0"
            )
        self.others = [name for name in shape.fields if name != self.target]
        self.seen = [place for place in range(shape.numbers) if place != log_frequency]
        dim = shape.fields[self.target]
        inputs = dim + sum(shape.fields[name] for name in self.others) + len(self.seen)
        self.user = MLP(inputs, hidden, dim, activation=activation, dropout=dropout)
        self.bias = nn.Parameter(torch.zeros(1)) if objective == "binary" else None
        self.log_frequency = log_frequency

    def forward(self, x: Inputs) -> Tensor:
        users, items = self.users(x), x[self.target]
        if self.bias is None and self.training:
            return users @ items.T - self._log_q(x, items)
        scores = (users * items).sum(1)
        return scores if self.bias is None else scores + self.bias

    def users(self, x: Inputs) -> Tensor:
        """[samples, dim], to be multiplied with the rows of any items."""
        history = x.sequence(self.history)
        parts = [masked_mean(history.rows, history.mask), *(x[name] for name in self.others), x.numbers[:, self.seen]]
        vectors: Tensor = self.user(torch.cat(parts, 1))
        return vectors

    def loss(self, output: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        wanted = labels[:, 0]
        if output.dim() == 1:
            if weights is None:
                return binary_cross_entropy_with_logits(output, wanted)
            return (weights * binary_cross_entropy_with_logits(output, wanted, reduction="none")).mean()
        losses = cross_entropy(output, torch.arange(len(output), device=output.device), reduction="none")
        losses = losses if weights is None else losses * weights
        return (losses * wanted).sum() / wanted.sum().clamp(min=1e-12)  # 0 where nobody wanted anything

    def _log_q(self, x: Inputs, items: Tensor) -> Tensor:
        if self.log_frequency is not None:
            return x.numbers[:, self.log_frequency]
        _, item, counts = torch.unique(items.detach(), dim=0, return_inverse=True, return_counts=True)
        often: Tensor = counts[item]
        return often.to(items.dtype).log()
