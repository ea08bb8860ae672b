"""DeepFM and DLRM as in `hotrow.models`, in torch alone: the machine that measures has no more.

The first layer of DeepFM takes rows and numbers apart, and DLRM's products are padded to a multiple of 8 columns: the
same functions, without a copy of all rows, and with rows of a length that tensor cores read well.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hotrow.models.interactions import dot_products, torch_dot_products, torch_weights_and_pairs, weights_and_pairs

NUMBERS = 13
_ALIGNED = 8  # columns


class DeepFmNetwork(nn.Module):
    """odds = weights and products of rows + MLP(rows, numbers), from rows [samples, fields, dim] and numbers."""

    def __init__(self, fields: int, dim: int, *, kernels: bool, hidden: Sequence[int] = (400, 400, 400)) -> None:
        super().__init__()
        self.of_rows = nn.Linear(fields * dim, hidden[0])
        self.of_numbers = nn.Linear(NUMBERS, hidden[0], bias=False)
        self.weights = nn.Linear(NUMBERS, 1)
        self.upper = _mlp(hidden, 1)
        self._pairs = weights_and_pairs if kernels else torch_weights_and_pairs

    def forward(self, rows: Tensor, numbers: Tensor) -> Tensor:
        first_order = self.weights(numbers).squeeze(1) + self._pairs(rows)
        odds: Tensor = first_order + self.deep(rows.flatten(1), numbers).squeeze(1).float()
        return odds

    def deep(self, rows: Tensor, numbers: Tensor) -> Tensor:
        odds: Tensor = self.upper(F.relu(self.of_rows(rows) + self.of_numbers(numbers)))
        return odds

    def compile(self, *arguments: Any, **settings: Any) -> None:
        """Compile the dense part; the kernels stay as they are."""
        self.deep = torch.compile(self.deep, *arguments, **settings)  # type: ignore[method-assign]


class DlrmNetwork(nn.Module):
    """odds = top([z, products of z and all rows in pairs]) with z = bottom(numbers)."""

    def __init__(
        self,
        fields: int,
        dim: int,
        *,
        kernels: bool,
        bottom: Sequence[int] = (512, 256, 64),
        top: Sequence[int] = (512, 256),
    ) -> None:
        super().__init__()
        width = dim + fields * (fields + 1) // 2
        self._padding = -width % _ALIGNED
        self.bottom: Callable[[Tensor], Tensor] = _mlp((NUMBERS, *bottom), dim).append(nn.ReLU())
        self.top: Callable[[Tensor], Tensor] = _mlp((width + self._padding, *top), 1)
        self._products = dot_products if kernels else torch_dot_products

    def forward(self, rows: Tensor, numbers: Tensor) -> Tensor:
        products = self._products(rows, self.bottom(numbers).to(rows.dtype))
        return self.top(F.pad(products, (0, self._padding))).squeeze(1).float()

    def compile(self, *arguments: Any, **settings: Any) -> None:
        """As in DeepFM."""
        for network in (self.bottom, self.top):
            network.compile(*arguments, **settings)  # type: ignore[attr-defined]


def _mlp(widths: Sequence[int], outputs: int) -> nn.Sequential:
    """ReLU after each layer but the last."""
    layers: list[nn.Module] = []
    for inputs, units in pairwise(widths):
        layers += [nn.Linear(inputs, units), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def matrix_flops(network: nn.Module) -> int:
    """Of the matrix products of one sample, forward and backward."""
    return sum(6 * each.weight.numel() for each in network.modules() if isinstance(each, nn.Linear))


NETWORKS: dict[str, Callable[..., nn.Module]] = {"deepfm": DeepFmNetwork, "dlrm": DlrmNetwork}
