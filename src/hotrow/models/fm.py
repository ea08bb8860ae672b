"""Factorisation machine (Rendle 2010): weights, and the products of every two fields' vectors."""

from torch import Tensor, nn

from hotrow.models.interactions import weights_and_pairs
from hotrow.models.layers import FirstOrder
from hotrow.models.reading import multiplied, no_sequences
from hotrow.nn.inputs import Inputs, InputShape


class FM(nn.Module):
    """odds = b + sum of weights + sum over pairs of fields of <v_i, v_j>. Numbers have a weight only."""

    def __init__(self, shape: InputShape) -> None:
        super().__init__()
        no_sequences(shape, "fm")
        multiplied(shape, "fm")
        self.first_order = FirstOrder(shape)

    def forward(self, x: Inputs) -> Tensor:
        return self.first_order.of_numbers(x) + weights_and_pairs(x.rows)
