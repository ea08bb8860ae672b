"""Deep Interest Network (Zhou et al. 2018): what a user saw before counts by what it has to do with the candidate."""

import torch
from torch import Tensor, nn

from hotrow.models.layers import MLP, Activation, AttentionUnit, DataNormChoice, Dropout, Hidden, Switch
from hotrow.models.reading import side_by_side, target_and_history
from hotrow.nn.inputs import Inputs, InputShape


class DIN(nn.Module):
    """odds = MLP(all rows, numbers, sum over the history of a(row, target) * row), the weights a not normalised.

    `target` is the id feature of the candidate, `history` the sequence; left out, the only ones there are.
    """

    def __init__(
        self,
        shape: InputShape,
        *,
        target: str | None = None,
        history: str | None = None,
        attention: Hidden = (36,),
        hidden: Hidden = (200, 80),
        activation: Activation = "dice",
        dropout: Dropout = 0.0,
        batch_norm: Switch = False,
        data_norm: DataNormChoice = False,
    ) -> None:
        super().__init__()
        self.target, self.history = target_and_history(shape, "din", target, history)
        dim = shape.fields[self.target]
        self.attention = AttentionUnit(dim, attention, activation)
        inputs = shape.flat + shape.numbers + dim
        self.deep = MLP(
            inputs, hidden, 1, activation=activation, dropout=dropout, batch_norm=batch_norm, data_norm=data_norm
        )

    def forward(self, x: Inputs) -> Tensor:
        interest = self.attention(x[self.target], x.sequence(self.history))
        odds: Tensor = self.deep(torch.cat([side_by_side(x), interest], 1))
        return odds.squeeze(1)
