"""Deep & Cross (Wang et al. 2017): layers that multiply the input with itself, beside a network."""

import torch
from torch import Tensor, nn

from hotrow.models.layers import MLP, Activation, DataNormChoice, Dropout, Hidden, Switch, Units, VectorCross
from hotrow.models.reading import side_by_side, width
from hotrow.nn.inputs import Inputs, InputShape


class DCN(nn.Module):
    """x_{l+1} = x_0 * (w_l . x_l) + b_l + x_l; odds = w . [x_L, MLP(x_0)] + b."""

    def __init__(
        self,
        shape: InputShape,
        *,
        cross_layers: Units = 6,
        hidden: Hidden = (1024, 1024),
        activation: Activation = "relu",
        dropout: Dropout = 0.0,
        batch_norm: Switch = True,
        data_norm: DataNormChoice = False,
    ) -> None:
        super().__init__()
        inputs = width(shape, "dcn")
        self.cross = VectorCross(inputs, cross_layers)
        self.deep = MLP(
            inputs, hidden, activation=activation, dropout=dropout, batch_norm=batch_norm, data_norm=data_norm
        )
        self.top = nn.Linear(inputs + self.deep.width, 1)

    def forward(self, x: Inputs) -> Tensor:
        first = side_by_side(x)
        odds: Tensor = self.top(torch.cat([self.cross(first), self.deep(first)], 1))
        return odds.squeeze(1)
