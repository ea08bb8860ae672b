"""Logistic regression: a weight for every id and every number."""

from torch import Tensor, nn

from hotrow.models.layers import FirstOrder
from hotrow.models.reading import width
from hotrow.nn.inputs import Inputs, InputShape


class LR(nn.Module):
    """odds = b + sum of the ids' weights + w . numbers. Only the first float of a row is used: a dim of 1 is enough."""

    def __init__(self, shape: InputShape) -> None:
        super().__init__()
        width(shape, "lr")
        self.first_order = FirstOrder(shape)

    def forward(self, x: Inputs) -> Tensor:
        odds: Tensor = self.first_order(x)
        return odds
