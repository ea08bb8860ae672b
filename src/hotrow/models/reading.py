"""How a model reads its inputs: all side by side, which feature a setting names, and what it cannot be built for."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from hotrow.errors import ConfigError
from hotrow.nn.inputs import Inputs, InputShape


def side_by_side(x: Inputs) -> Tensor:
    """All rows and numbers of a sample as one vector; without numbers nothing is copied."""
    if not x.numbers.shape[1]:
        return x.flat
    return torch.cat([x.flat, x.numbers], 1) if x.fields else x.numbers


def width(shape: InputShape, model: str) -> int:
    """The floats that `side_by_side` gives to a model that reads no sequences."""
    no_sequences(shape, model)
    if not shape.flat + shape.numbers:
        raise ConfigError(f"{model}: there are neither id features nor numbers: give it something to look at")
    return shape.flat + shape.numbers


def no_sequences(shape: InputShape, model: str, but: Sequence[str] = ()) -> None:
    """Refuse sequences that a model would not look at."""
    unread = [name for name in shape.sequences if name not in but]
    if unread:
        raise ConfigError(
            f"{model} does not read the sequence {unread[0]!r}: leave its `sequence` setting out to have its ids pooled"
        )


def multiplied(shape: InputShape, model: str) -> None:
    """Refuse fields that cannot be multiplied with each other: of several sizes, too short, or none at all."""
    _ = shape.dim
    weight_and_vector(shape, model)


def weight_and_vector(shape: InputShape, model: str) -> None:
    """Refuse rows too short for a linear weight and a vector behind it."""
    short = [name for name, dim in shape.fields.items() if dim < 2]
    if short:
        raise ConfigError(
            f"dim=1 of {short[0]!r}: {model} takes the first float of a row as the id's weight and the rest as its "
            "vector: give 2 or more"
        )


def chosen(setting: str, given: str | None, features: Mapping[str, int], kind: str) -> str:
    """The feature that a setting names; left out, the only one there is."""
    there = ", ".join(repr(name) for name in features) or "none"
    if given is None and len(features) != 1:
        raise ConfigError(f"{setting} is missing: it must name one {kind}; there are: {there}")
    if given is not None and given not in features:
        raise ConfigError(f"{setting}={given!r}: there is no such {kind}; there are: {there}")
    return next(iter(features)) if given is None else given


def target_and_history(shape: InputShape, model: str, target: str | None, history: str | None) -> tuple[str, str]:
    """The candidate item and what the user saw before; their rows are compared, so they must be of one size."""
    target = chosen("target", target, shape.fields, "id feature")
    history = chosen("history", history, shape.sequences, "sequence")
    no_sequences(shape, model, but=[history])
    if shape.fields[target] != shape.sequences[history]:
        raise ConfigError(
            f"dim: {model} compares rows of {target!r} ({shape.fields[target]} floats) with those of {history!r} "
            f"({shape.sequences[history]}): give their tables one dim"
        )
    return target, history
