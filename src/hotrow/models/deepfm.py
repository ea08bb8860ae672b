"""DeepFM (Guo et al. 2017): a factorisation machine and a network over the same rows."""

from torch import Tensor, nn

from hotrow.models.interactions import weights_and_pairs
from hotrow.models.layers import MLP, Activation, DataNormChoice, Dropout, FirstOrder, Hidden, Switch
from hotrow.models.reading import multiplied, side_by_side, width
from hotrow.nn.inputs import Inputs, InputShape


class DeepFM(nn.Module):
    """odds = FM(x) + MLP(rows, numbers). The network sees whole rows, their weights too, so that nothing is copied."""

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
        inputs = width(shape, "deepfm")
        multiplied(shape, "deepfm")
        self.first_order = FirstOrder(shape)
        self.deep = MLP(
            inputs, hidden, 1, activation=activation, dropout=dropout, batch_norm=batch_norm, data_norm=data_norm
        )

    def forward(self, x: Inputs) -> Tensor:
        odds: Tensor = (
            self.first_order.of_numbers(x) + weights_and_pairs(x.rows) + self.deep(side_by_side(x)).squeeze(1)
        )
        return odds
