"""Deep Interest Evolution Network (Zhou et al. 2019): how interests grew, and the one that led to the candidate."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import softplus

from hotrow.models.layers import AUGRU, MLP, Activation, DataNormChoice, Dropout, Hidden, Switch, WithAuxiliary
from hotrow.models.reading import side_by_side, target_and_history
from hotrow.nn.inputs import Inputs, InputShape, SequenceRows


class DIEN(nn.Module):
    """h = GRU(history); a = softmax over t of h_t W target; odds = MLP(all rows, numbers, AUGRU(h, a)).

    `auxiliary` weighs a second loss, in training alone: <h_t, row t + 1> shall tell the next row of the history from
    one drawn from the batch. Backward adds its gradient; the loss that is shown does not contain it. 0: without.
    """

    def __init__(
        self,
        shape: InputShape,
        *,
        target: str | None = None,
        history: str | None = None,
        hidden: Hidden = (200, 80),
        activation: Activation = "dice",
        dropout: Dropout = 0.0,
        batch_norm: Switch = False,
        data_norm: DataNormChoice = False,
        auxiliary: Annotated[float, Field(strict=True, ge=0, le=1e6)] = 1.0,
    ) -> None:
        super().__init__()
        self.target, self.history = target_and_history(shape, "dien", target, history)
        dim = shape.fields[self.target]
        self.interests = nn.GRU(dim, dim, batch_first=True)
        self.relevance = nn.Linear(dim, dim, bias=False)
        self.evolution = AUGRU(dim, dim)
        inputs = shape.flat + shape.numbers + dim
        self.deep = MLP(
            inputs, hidden, 1, activation=activation, dropout=dropout, batch_norm=batch_norm, data_norm=data_norm
        )
        self.auxiliary = auxiliary

    def forward(self, x: Inputs) -> Tensor:
        history = x.sequence(self.history)
        longest = history.rows.shape[1]
        states = self.interests(history.rows)[0] if longest else history.rows  # torch's GRU refuses no steps at all
        last = self.evolution(states, self._attention(states, history.mask, x[self.target]))
        odds: Tensor = self.deep(torch.cat([side_by_side(x), last], 1)).squeeze(1)
        if self.training and self.auxiliary and longest > 1 and bool(history.mask[:, 1:].any()):
            odds = WithAuxiliary.apply(odds, self.auxiliary * self.next_row_loss(states, history))  # type: ignore[no-untyped-call]
        return odds

    def next_row_loss(self, states: Tensor, history: SequenceRows) -> Tensor:
        """How badly the states tell the rows that follow from others: the mean over all places but the first."""
        there = history.mask[:, 1:]
        now, following, pool = states[:, :-1][there], history.rows[:, 1:][there], history.rows[history.mask]
        others = pool[torch.randperm(len(pool), device=pool.device)[: len(now)]]
        right, wrong = (now * following).sum(1), (now * others).sum(1)
        return (softplus(-right) + softplus(wrong)).mean()

    def _attention(self, states: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """[samples, longest], 0 at padding, so that padding leaves the state of the second GRU as it is."""
        scores = (self.relevance(states) @ target.unsqueeze(2)).squeeze(2)
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        attention: Tensor = scores.softmax(1) * mask
        return attention
