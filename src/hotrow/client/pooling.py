"""From the rows of distinct ids to the vectors of a batch, and from the gradients of these back to distinct ids."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hotrow.client.aggregate import RowGradients
from hotrow.client.base import FeatureVectors
from hotrow.data.batch import FeatureBlock
from hotrow.store import LookupPlan as Plan
from hotrow.store import kernels

U32 = NDArray[np.uint32]
F32 = NDArray[np.float32]
I64 = NDArray[np.int64]


def spread(part: FeatureBlock, unique_rows: F32, which: U32, samples: int, threads: int) -> FeatureVectors:
    """The vectors of one part from the unique rows of its table; id k of the part takes row which[k]."""
    dim = unique_rows.shape[1]
    if part.bounds is None:
        rows = torch.empty(samples, len(part.features), dim)
        np.take(unique_rows, which, axis=0, out=rows.view(-1, dim).numpy(), mode="clip")
        return FeatureVectors(part, rows)
    if part.kind == "bags":
        rows = torch.empty(samples, len(part.features), dim)
        kernels.pool(unique_rows, which, part.bounds, None, part.pooling, rows.view(-1, dim).numpy(), threads)
        return FeatureVectors(part, rows)
    lengths = np.diff(part.bounds)
    longest = int(lengths.max(initial=0))
    rows = torch.zeros(samples, longest, dim)
    rows.view(-1, dim).numpy()[places_in_padding(part.bounds, longest)] = unique_rows[which]
    return FeatureVectors(part, rows, torch.from_numpy(np.arange(longest) < lengths[:, None]))


def shares_of(inverse: U32, parts: Sequence[FeatureBlock]) -> list[U32]:
    """The parts of a table's inverse, one for each feature block."""
    return np.split(inverse, np.cumsum([len(part.keys) for part in parts[:-1]]))


def folded(outputs: Sequence[FeatureVectors], inverse: U32, unique: int, threads: int) -> tuple[F32, I64 | None]:
    """The gradient of each distinct id of a table, and the ids that the model used, where it did not use all."""
    used = [output.rows.grad is not None for output in outputs]
    which = shares_of(inverse, [output.part for output in outputs])
    sums = [
        _folded(output, mine, unique, threads)
        for output, mine, there in zip(outputs, which, used, strict=True)
        if there
    ]
    total = sums[0]
    for other in sums[1:]:
        total += other
    if all(used):
        return total, None
    return total, np.unique(np.concatenate([mine for mine, there in zip(which, used, strict=True) if there]))


def _folded(output: FeatureVectors, which: U32, unique: int, threads: int) -> F32:
    part, gradient = output.part, _gradient(output).numpy()
    if part.bounds is not None and part.kind == "bags":
        return kernels.pool_backward(gradient, which, part.bounds, None, part.pooling, unique, None, threads)
    if part.bounds is not None:
        gradient = gradient[places_in_padding(part.bounds, output.rows.shape[1])]
    return kernels.pool_backward(gradient, which, np.arange(len(which) + 1), None, "sum", unique, None, threads)


def places_in_padding(bounds: I64, longest: int) -> I64:
    """The position of each id of a sequence part in [samples * longest]."""
    lengths = np.diff(bounds)
    return np.arange(bounds[-1]) + np.repeat(np.arange(len(lengths)) * longest - bounds[:-1], lengths)


def row_gradients(plan: Plan, outputs: Sequence[FeatureVectors], versions: U32 | None) -> RowGradients:
    """The gradients of one table for the native store: by occurrence, with the plan of the lookup."""
    keys = [output.part.keys for output in outputs]
    gradients = [_gradient(output) for output in outputs]
    if len(outputs) == 1 and outputs[0].part.kind == "one":
        return RowGradients(keys[0], plan, gradients[0].numpy(), versions=versions)
    joined = gradients[0] if len(gradients) == 1 else torch.cat(gradients)
    starts = np.cumsum([0, *(len(gradient) for gradient in gradients[:-1])])
    rows = np.concatenate([_row_of_key(output) + start for output, start in zip(outputs, starts, strict=True)])
    flat = np.concatenate(keys)
    return RowGradients(flat, plan, joined.numpy(), rows.astype(np.uint32), _weights(outputs), versions)


def _gradient(output: FeatureVectors) -> Tensor:
    """[bags, dim]. A part that the model did not use has none: `_weights` leaves its rows unchanged."""
    gradient = output.rows.grad
    if gradient is None:
        gradient = torch.zeros_like(output.rows, requires_grad=False)
    return gradient.contiguous().view(-1, output.rows.shape[-1])


def _row_of_key(output: FeatureVectors) -> I64:
    """The row of its output's gradient for each id."""
    part = output.part
    if part.bounds is None:
        return np.arange(len(part.keys))
    if part.kind == "bags":
        return np.repeat(np.arange(len(part.bounds) - 1), np.diff(part.bounds))
    return places_in_padding(part.bounds, output.rows.shape[1])


def _weights(outputs: Sequence[FeatureVectors]) -> F32 | None:
    """The factor of each id's gradient: its share of a mean, 0 where the model did not use it; None: all 1."""
    shares = [_shares(output) for output in outputs]
    if all(share is None for share in shares):
        return None
    sizes = [len(output.part.keys) for output in outputs]
    return np.concatenate(
        [np.ones(size, np.float32) if share is None else share for share, size in zip(shares, sizes, strict=True)]
    )


def _shares(output: FeatureVectors) -> F32 | None:
    part = output.part
    if output.rows.grad is None:
        return np.zeros(len(part.keys), np.float32)
    if part.bounds is None or part.kind != "bags" or part.pooling == "sum":
        return None
    lengths = np.diff(part.bounds)
    return np.repeat(np.float32(1) / np.maximum(lengths, 1).astype(np.float32), lengths)
