"""The network of PERSIA's experiments (Lian et al. 2022): five wide layers, most of whose work is dense."""

from torch import Tensor, nn

from hotrow.models.layers import MLP, Activation, DataNormChoice, Dropout, Hidden, Switch
from hotrow.models.reading import side_by_side, width
from hotrow.nn.inputs import Inputs, InputShape


class FFNN(nn.Module):
    """odds = MLP(rows, numbers), 4096-2048-1024-512-256."""

    def __init__(
        self,
        shape: InputShape,
        *,
        hidden: Hidden = (4096, 2048, 1024, 512, 256),
        activation: Activation = "relu",
        dropout: Dropout = 0.0,
        batch_norm: Switch = False,
        data_norm: DataNormChoice = False,
    ) -> None:
        super().__init__()
        inputs = width(shape, "ffnn")
        self.deep = MLP(
            inputs, hidden, 1, activation=activation, dropout=dropout, batch_norm=batch_norm, data_norm=data_norm
        )

    def forward(self, x: Inputs) -> Tensor:
        odds: Tensor = self.deep(side_by_side(x))
        return odds.squeeze(1)
