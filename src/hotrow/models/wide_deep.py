"""Wide & Deep (Cheng et al. 2016): logistic regression beside a network, trained as one."""

from torch import Tensor, nn

from hotrow.models.layers import MLP, Activation, DataNormChoice, Dropout, FirstOrder, Hidden, Switch
from hotrow.models.reading import side_by_side, weight_and_vector, width
from hotrow.nn.inputs import Inputs, InputShape


class WideDeep(nn.Module):
    """odds = LR(x) + MLP(rows, numbers). The network sees whole rows, their weights too."""

    def __init__(
        self,
        shape: InputShape,
        *,
        hidden: Hidden = (1024, 512, 256),
        activation: Activation = "relu",
        dropout: Dropout = 0.0,
        batch_norm: Switch = False,
        data_norm: DataNormChoice = False,
    ) -> None:
        super().__init__()
        weight_and_vector(shape, "wide_deep")
        inputs = width(shape, "wide_deep")
        self.wide = FirstOrder(shape)
        self.deep = MLP(
            inputs, hidden, 1, activation=activation, dropout=dropout, batch_norm=batch_norm, data_norm=data_norm
        )

    def forward(self, x: Inputs) -> Tensor:
        odds: Tensor = self.wide(x) + self.deep(side_by_side(x)).squeeze(1)
        return odds
