"""A plain network over all rows and numbers side by side."""

from torch import Tensor, nn

from hotrow.models.layers import MLP, Activation, DataNormChoice, Dropout, Hidden, Switch
from hotrow.models.reading import side_by_side, width
from hotrow.nn.inputs import Inputs, InputShape


class DNN(nn.Module):
    """odds = MLP(rows, numbers)."""

    def __init__(
        self,
        shape: InputShape,
        *,
        hidden: Hidden = (400, 400, 400),
        activation: Activation = "relu",
        dropout: Dropout = 0.0,
        batch_norm: Switch = False,
        data_norm: DataNormChoice = False,
    ) -> None:
        super().__init__()
        inputs = width(shape, "dnn")
        self.deep = MLP(
            inputs, hidden, 1, activation=activation, dropout=dropout, batch_norm=batch_norm, data_norm=data_norm
        )

    def forward(self, x: Inputs) -> Tensor:
        odds: Tensor = self.deep(side_by_side(x))
        return odds.squeeze(1)
