"""Random inputs for models, and the slow twins of the pieces that several references share. All in float64."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hotrow.models.layers import MLP
from hotrow.nn.inputs import Inputs, InputShape, SequenceRows

Vector = NDArray[np.float64]
Model = TypeVar("Model", bound=nn.Module)
FIELDS = InputShape(numbers=3, fields={"user": 5, "item": 5, "shop": 5})
HISTORY = InputShape(numbers=3, fields={"user": 5, "item": 5}, sequences={"seen": 5})
GRAPH = InputShape(numbers=3, fields={"node": 5}, sequences={"hop1": 5, "hop2": 5})


def made(
    shape: InputShape,
    samples: int = 6,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    lengths: Sequence[int] | None = None,
    longest: int | None = None,
    padding: float = 0.0,
) -> Inputs:
    """Inputs of a shape, whose rows want gradients. Histories have `lengths`; graphs (hop1, hop2) fan-outs 2 and 3."""
    random = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=random, dtype=torch.float64).to(dtype)

    numbers = normal(samples, shape.numbers)
    blocks = {}
    for dim, group in groupby(shape.fields.items(), key=lambda field: field[1]):
        names = tuple(name for name, _ in group)
        blocks[names] = normal(samples, len(names), dim).requires_grad_()
    sequences = {}
    for name, dim in shape.sequences.items():
        if name in ("hop1", "hop2"):
            count = {"hop1": 2, "hop2": 6}[name]
            mask = torch.ones(samples, count, dtype=torch.bool)
        else:
            ends = torch.tensor(lengths if lengths is not None else [sample % 4 for sample in range(samples)])
            count = max(ends.tolist(), default=0) if longest is None else longest
            mask = torch.arange(count) < ends[:, None]
        rows = torch.full((samples, count, dim), padding, dtype=dtype)
        rows[mask] = normal(int(mask.sum()), dim)
        sequences[name] = SequenceRows(rows.requires_grad_(), mask)
    return Inputs(numbers, blocks, sequences)


def leaves(x: Inputs) -> dict[str, Tensor]:
    """The tensors whose gradients go back to tables, by feature."""
    found = {" ".join(names): block for names, block in x._blocks.items()}
    return found | {name: sequence.rows for name, sequence in x._sequences.items()}


def array(tensor: Any) -> Vector:
    """A tensor's numbers."""
    assert isinstance(tensor, Tensor)
    numbers: Vector = tensor.detach().numpy()
    return numbers


def backward(loss: Tensor) -> None:
    """Gradients of a loss, or of the sum of an output."""
    loss.sum().backward()  # type: ignore[no-untyped-call]


def stirred(model: Model, seed: int = 1) -> Model:
    """The model in float64 and eval mode with every parameter and statistic random, so that no zero hides a fault."""
    random = torch.Generator().manual_seed(seed)
    model.double().eval()
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            fresh = torch.randn(value.shape, generator=random, dtype=torch.float64) * 0.5
            value.copy_(fresh.abs() + 0.1 if name.endswith("running_var") else fresh)
    return model


def network(mlp: MLP, inputs: Vector) -> Vector:
    """What an MLP of relu layers says of one vector, unit by unit."""
    values = inputs
    for layer in mlp:
        if isinstance(layer, nn.Linear):
            weights, bias = array(layer.weight), array(layer.bias)
            values = np.array([sum(w * v for w, v in zip(row, values, strict=True)) for row in weights]) + bias
        else:
            assert isinstance(layer, nn.ReLU)
            values = np.array([max(0.0, value) for value in values])
    return values


def side(x: Inputs, sample: int) -> Vector:
    """One sample's rows and numbers, side by side."""
    return np.concatenate([*(array(x[name][sample]) for name in x.fields), array(x.numbers[sample])])


def sigmoid(value: Any) -> Any:
    """Element by element."""
    return 1 / (1 + np.exp(-value))
