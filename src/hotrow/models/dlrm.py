"""DLRM (Naumov et al. 2019): numbers become a vector as long as a row, and every two vectors are multiplied."""

from torch import Tensor, nn

from hotrow.errors import ConfigError
from hotrow.models.interactions import dot_products
from hotrow.models.layers import MLP, Hidden
from hotrow.models.reading import no_sequences
from hotrow.nn.inputs import Inputs, InputShape


class DLRM(nn.Module):
    """z = bottom(numbers); odds = top([z, <v_i, v_j> of z and all rows in pairs]). Without numbers there is no z."""

    def __init__(self, shape: InputShape, *, bottom: Hidden = (512, 256, 64), top: Hidden = (512, 256)) -> None:
        super().__init__()
        no_sequences(shape, "dlrm")
        dim, vectors = shape.dim, len(shape.fields) + bool(shape.numbers)
        if vectors < 2:
            raise ConfigError("dlrm multiplies vectors in pairs: give it a second id feature, or numbers")
        self.bottom = MLP(shape.numbers, (*bottom, dim)) if shape.numbers else None
        self.top = MLP(vectors * (vectors - 1) // 2 + (dim if self.bottom else 0), top, 1)

    def forward(self, x: Inputs) -> Tensor:
        dense = None if self.bottom is None else self.bottom(x.numbers)
        odds: Tensor = self.top(dot_products(x.rows, dense))
        return odds.squeeze(1)
