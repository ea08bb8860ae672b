"""The pieces that models are made of: networks, interactions of fields, attention over a history."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PlainValidator
from torch import Tensor, nn
from torch.nn import functional as F

from hotrow.errors import ConfigError
from hotrow.nn.data_norm import DataNorm, DataNormSettings
from hotrow.nn.inputs import Inputs, InputShape, SequenceRows
from hotrow.sizes import Whole

Units = Annotated[Whole, Field(ge=1, le=65_536)]
Hidden = tuple[Units, ...]
Switch = Annotated[bool, Field(strict=True)]


def _data_norm(value: Any) -> bool | DataNormSettings:
    """As a file says it: a switch, or settings."""
    if isinstance(value, bool | DataNormSettings):
        return value
    if isinstance(value, Mapping):
        return DataNormSettings(**value)
    raise ValueError("must be true, false, or settings of DataNorm, as { least = 0.5 }")


DataNormChoice = Annotated[bool | DataNormSettings, PlainValidator(_data_norm)]  # True: with its defaults
Dropout = Annotated[float, Field(strict=True, ge=0, lt=1)]
Activation = Literal["relu", "tanh", "sigmoid", "prelu", "dice"]


class MLP(nn.Sequential):
    """Linear, normalisation, activation and dropout for each of `hidden`; `outputs` adds a last layer, linear alone."""

    def __init__(
        self,
        inputs: int,
        hidden: Sequence[int],
        outputs: int | None = None,
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        data_norm: DataNormChoice = False,
    ) -> None:
        if batch_norm and data_norm:
            raise ConfigError(
                f"data_norm={data_norm!r}: a layer is normalised in one way: set batch_norm to false beside it"
            )
        settings = DataNormSettings() if data_norm is True else data_norm
        layers: list[nn.Module] = []
        width = inputs
        for units in hidden:
            layers.append(nn.Linear(width, units, bias=not batch_norm))  # the mean goes anyway
            layers += [BatchNorm(units)] if batch_norm else []
            layers += [DataNorm(units, **settings.model_dump())] if settings else []
            layers.append(_activation(activation, units))
            layers += [nn.Dropout(dropout)] if dropout else []
            width = units
        if outputs is not None:
            layers.append(nn.Linear(width, outputs))
        super().__init__(*layers)
        self.width = width if outputs is None else outputs


def _activation(name: Activation, units: int) -> nn.Module:
    match name:
        case "relu":
            return nn.ReLU()
        case "tanh":
            return nn.Tanh()
        case "sigmoid":
            return nn.Sigmoid()
        case "prelu":
            return nn.PReLU(units)
        case "dice":
            return Dice(units)


class BatchNorm(nn.BatchNorm1d):
    """One sample has no variance: a batch so short is normalised as in eval mode."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) < 2:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


class Dice(nn.Module):
    """p * s + (1 - p) * alpha * s with p = sigmoid of the normalised s: DIN's activation, PReLU with a moving bend."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.norm = BatchNorm(units, eps=1e-8, affine=False)
        self.alpha = nn.Parameter(torch.zeros(units))

    def forward(self, x: Tensor) -> Tensor:
        share = torch.sigmoid(self.norm(x))
        return x * (share + (1 - share) * self.alpha)


class FirstOrder(nn.Module):
    """A bias, a weight for every number, and the weights of the ids: the first float of every row."""

    def __init__(self, shape: InputShape) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))
        self.weights = nn.Parameter(torch.zeros(shape.numbers))
        self._dims = len(set(shape.fields.values()))

    def forward(self, x: Inputs) -> Tensor:
        odds = self.of_numbers(x)
        if self._dims == 1:
            return odds + x.rows.sum(1)[:, 0]  # the sum first: its gradient costs one pass, that of a slice two
        return odds + sum(x[name][:, 0] for name in x.fields)

    def of_numbers(self, x: Inputs) -> Tensor:
        """All but the ids' weights, [samples]."""
        return self.bias + x.numbers @ self.weights


class VectorCross(nn.Module):
    """DCN's layers: x <- x0 * (w . x) + b + x."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.weights = nn.ModuleList([nn.Linear(width, 1, bias=False) for _ in range(layers)])
        self.biases = nn.Parameter(torch.zeros(layers, width))

    def forward(self, first: Tensor) -> Tensor:
        x = first
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = torch.addcmul(x + bias, first, weight(x))
        return x


class MatrixCross(nn.Module):
    """DCN-V2's layers: x <- x0 * (W x + b) + x; with a rank, W is the product of two narrow matrices."""

    def __init__(self, width: int, layers: int, rank: int | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_matrix(width, rank) for _ in range(layers)])

    def forward(self, first: Tensor) -> Tensor:
        x = first
        for layer in self.layers:
            x = torch.addcmul(x, first, layer(x))
        return x


def _matrix(width: int, rank: int | None) -> nn.Module:
    if rank is None:
        return nn.Linear(width, width)
    return nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width))


class CIN(nn.Module):
    """xDeepFM's compressed interactions: every unit weighs all products of a vector of the layer below with a field's.

    Gives each unit's vector summed over its elements, all layers side by side. A layer takes
    samples * dim * fields * (units of the layer below) floats of memory.
    """

    def __init__(self, fields: int, layers: Sequence[int]) -> None:
        super().__init__()
        below = [fields, *layers][:-1]
        self.layers = nn.ModuleList(
            [nn.Linear(units * fields, out, bias=False) for units, out in zip(below, layers, strict=True)]
        )
        self.width = sum(layers)

    def forward(self, vectors: Tensor) -> Tensor:
        first = vectors.transpose(1, 2).contiguous()  # [samples, dim, fields], so that each layer is one product
        x, sums = first, []
        for layer in self.layers:
            x = layer((x.unsqueeze(3) * first.unsqueeze(2)).flatten(2))
            sums.append(x.sum(1))
        return torch.cat(sums, 1)


class AttentionUnit(nn.Module):
    """DIN's pooling: the sum of the history's rows, each times a weight that a small network gives it and the target.

    The weights are not made to add up to 1, so that a strong interest stays strong. The network sees
    [row, row * target, target] of the places where there is an id: padding costs nothing and changes nothing.
    """

    def __init__(self, dim: int, hidden: Sequence[int], activation: Activation) -> None:
        super().__init__()
        self.net = MLP(3 * dim, hidden, 1, activation=activation)

    def forward(self, target: Tensor, history: SequenceRows) -> Tensor:
        sample, place = history.mask.nonzero(as_tuple=True)
        rows, wanted = history.rows[sample, place], target[sample]
        weights = self.net(torch.cat([rows, rows * wanted, wanted], 1))
        return torch.zeros_like(target).index_add(0, sample, rows * weights)


class AUGRU(nn.Module):
    """DIEN's second GRU: the attention [samples, longest] scales the update gate, so attention 0 leaves the state.

    u = a * sigmoid(Wu x + Uu h), r = sigmoid(Wr x + Ur h), h <- (1 - u) * h + u * tanh(Wh x + r * (Uh h)).
    """

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.of_input = nn.Linear(inputs, 3 * units)  # u, r and h, one behind the other
        self.of_state = nn.Linear(units, 3 * units, bias=False)
        self.units = units

    def forward(self, rows: Tensor, attention: Tensor) -> Tensor:
        state = rows.new_zeros(len(rows), self.units)
        from_input = self.of_input(rows)
        for place in range(rows.shape[1]):
            update, reset, new = from_input[:, place].chunk(3, 1)
            from_update, from_reset, from_new = self.of_state(state).chunk(3, 1)
            update = attention[:, place, None] * torch.sigmoid(update + from_update)
            new = torch.tanh(new + torch.sigmoid(reset + from_reset) * from_new)
            state = state + update * (new - state)
        return state


def masked_mean(rows: Tensor, mask: Tensor) -> Tensor:
    """The mean over the last dimension but one of the rows that are there; zeros where there are none."""
    there = mask.unsqueeze(-1)
    total = torch.where(there, rows, 0).sum(-2)
    return total / there.sum(-2).clamp(min=1)


class WithAuxiliary(torch.autograd.Function):
    """The output as it is; backward adds the gradient of a second loss, whatever loss the output goes into."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, auxiliary: Tensor) -> Tensor:
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        return gradients[0], gradients[0].new_ones(())
