"""DLRM (Naumov et al. 2019): numbers become a vector as long as a row, and every two vectors are multiplied."""

import torch
from torch import Tensor, nn

from hotrow.errors import ConfigError
from hotrow.models.layers import MLP, Hidden
from hotrow.models.reading import no_sequences
from hotrow.nn.inputs import Inputs, InputShape


class DLRM(nn.Module):
    """z = bottom(numbers); odds = top([z, <v_i, v_j> of z and all rows in pairs]). Without numbers there is no z."""

    pairs: Tensor

    def __init__(self, shape: InputShape, *, bottom: Hidden = (512, 256, 64), top: Hidden = (512, 256)) -> None:
        super().__init__()
        no_sequences(shape, "dlrm")
        dim, vectors = shape.dim, len(shape.fields) + bool(shape.numbers)
        if vectors < 2:
            raise ConfigError("dlrm multiplies vectors in pairs: give it a second id feature, or numbers")
        self.bottom = MLP(shape.numbers, (*bottom, dim)) if shape.numbers else None
        left, right = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("pairs", left * vectors + right, persistent=False)
        self.top = MLP(len(self.pairs) + (dim if self.bottom else 0), top, 1)

    def forward(self, x: Inputs) -> Tensor:
        rows, dense = x.rows, []
        if self.bottom is not None:
            dense = [self.bottom(x.numbers)]
            rows = torch.cat([dense[0].unsqueeze(1), rows], 1)
        products = (rows @ rows.transpose(1, 2)).flatten(1)
        odds: Tensor = self.top(torch.cat([*dense, products[:, self.pairs]], 1))
        return odds.squeeze(1)
