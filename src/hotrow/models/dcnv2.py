"""DCN-V2 (Wang et al. 2021): cross layers with a matrix instead of a vector."""

from typing import Literal

import torch
from torch import Tensor, nn

from hotrow.models.layers import MLP, Activation, DataNormChoice, Dropout, Hidden, MatrixCross, Switch, Units
from hotrow.models.reading import side_by_side, width
from hotrow.nn.inputs import Inputs, InputShape


class DCNv2(nn.Module):
    """x_{l+1} = x_0 * (W_l x_l + b_l) + x_l; stacked: odds = w . MLP(x_L) + b, parallel: w . [x_L, MLP(x_0)] + b.

    With `rank` each W_l is the product of a tall and a flat matrix.
    """

    def __init__(
        self,
        shape: InputShape,
        *,
        cross_layers: Units = 3,
        rank: Units | None = None,
        structure: Literal["stacked", "parallel"] = "stacked",
        hidden: Hidden = (768, 768),
        activation: Activation = "relu",
        dropout: Dropout = 0.0,
        batch_norm: Switch = False,
        data_norm: DataNormChoice = False,
    ) -> None:
        super().__init__()
        inputs = width(shape, "dcnv2")
        self.cross = MatrixCross(inputs, cross_layers, rank)
        self.deep = MLP(
            inputs, hidden, activation=activation, dropout=dropout, batch_norm=batch_norm, data_norm=data_norm
        )
        self.parallel = structure == "parallel"
        self.top = nn.Linear(self.deep.width + (inputs if self.parallel else 0), 1)

    def forward(self, x: Inputs) -> Tensor:
        first = side_by_side(x)
        crossed = self.cross(first)
        last = torch.cat([crossed, self.deep(first)], 1) if self.parallel else self.deep(crossed)
        odds: Tensor = self.top(last)
        return odds.squeeze(1)
