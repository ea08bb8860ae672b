"""xDeepFM (Lian et al. 2018): weights, vector-wise interactions of bounded degree, and a network."""

from torch import Tensor, nn

from hotrow.models.layers import CIN, MLP, Activation, DataNormChoice, Dropout, FirstOrder, Hidden, Switch
from hotrow.models.reading import multiplied, side_by_side, width
from hotrow.nn.inputs import Inputs, InputShape


class XDeepFM(nn.Module):
    """odds = LR(x) + w . CIN(vectors) + MLP(rows, numbers). The interactions are linear, as the paper found best."""

    def __init__(
        self,
        shape: InputShape,
        *,
        cin: Hidden = (200, 200, 200),
        hidden: Hidden = (400, 400),
        activation: Activation = "relu",
        dropout: Dropout = 0.0,
        batch_norm: Switch = False,
        data_norm: DataNormChoice = False,
    ) -> None:
        super().__init__()
        inputs = width(shape, "xdeepfm")
        multiplied(shape, "xdeepfm")
        self.first_order = FirstOrder(shape)
        self.cin = CIN(len(shape.fields), cin)
        self.of_cin = nn.Linear(self.cin.width, 1, bias=False)
        self.deep = MLP(
            inputs, hidden, 1, activation=activation, dropout=dropout, batch_norm=batch_norm, data_norm=data_norm
        )

    def forward(self, x: Inputs) -> Tensor:
        interactions = self.of_cin(self.cin(x.rows[:, :, 1:]))
        odds: Tensor = self.first_order(x) + (interactions + self.deep(side_by_side(x))).squeeze(1)
        return odds
