"""Products of every two vectors of a sample: plain torch, and a GPU kernel (docs/gpu.md) where it computes the same.

Imports torch alone; `hotrow.kernels` only for tensors on a GPU, where Triton is installed.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

KERNEL_WIDTH_MAX = 1024  # floats of a row that a kernel takes


def weights_and_pairs(rows: Tensor) -> Tensor:
    """FM over rows [samples, fields, 1 + dim]: the sum of first floats, and of the products of every two vectors."""
    if not takes_kernel(rows):
        return torch_weights_and_pairs(rows)
    from hotrow.kernels.second_order import second_order

    return second_order(rows)


def torch_weights_and_pairs(rows: Tensor) -> Tensor:
    """The same without a kernel, in the type of the rows as there: autocast would multiply in bfloat16."""
    with torch.autocast(rows.device.type, enabled=False):
        found: Tensor = _WeightsAndPairs.apply(rows)  # type: ignore[no-untyped-call]
    return found


def dot_products(rows: Tensor, dense: Tensor | None) -> Tensor:
    """DLRM over rows [samples, fields, dim]: `dense` [samples, dim], then the products of it and all rows in pairs."""
    rows = _as_autocast(rows)
    dense = None if dense is None else dense.to(rows.dtype)
    if not takes_kernel(rows):
        return torch_dot_products(rows, dense)
    from hotrow.kernels.dot_interaction import dot_interaction

    return dot_interaction(rows, dense)


def torch_dot_products(rows: Tensor, dense: Tensor | None) -> Tensor:
    """The same without a kernel."""
    vectors = rows if dense is None else torch.cat([dense.unsqueeze(1), rows], 1)
    count = vectors.shape[1]
    left, right = torch.tril_indices(count, count, offset=-1, device=rows.device)
    products = (vectors @ vectors.transpose(1, 2)).flatten(1)[:, left * count + right]
    return products if dense is None else torch.cat([dense, products], 1)


def takes_kernel(rows: Tensor) -> bool:
    """Whether rows [samples, fields, dim] are where a kernel computes, and of a type and size that it takes."""
    fits = rows.dtype in (torch.float32, torch.bfloat16) and 0 < rows.shape[2] <= KERNEL_WIDTH_MAX
    return rows.is_cuda and fits and find_spec("triton") is not None


def _as_autocast(rows: Tensor) -> Tensor:
    """In the type that autocast would multiply in."""
    if torch.is_autocast_enabled(rows.device.type):
        return rows.to(torch.get_autocast_dtype(rows.device.type))
    return rows


class _WeightsAndPairs(torch.autograd.Function):
    """By the square of the sum. The gradient of a vector is the sum of the others: one pass over the rows.

    Autograd's own way through squares and sums takes four, and the rows are larger than the caches.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        total, flat, weights = rows.sum(1), rows.flatten(1), rows[:, :, 0]
        squares = torch.linalg.vecdot(flat, flat) - torch.linalg.vecdot(weights, weights)
        ctx.save_for_backward(rows, total)
        vectors = total[:, 1:]
        odds: Tensor = total[:, 0] + 0.5 * (torch.linalg.vecdot(vectors, vectors) - squares)
        return odds

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        rows, total = ctx.saved_tensors
        scaled = (total * gradient[:, None])[:, None, :]
        found = torch.addcmul(scaled, rows, gradient[:, None, None], value=-1)
        found[:, :, 0] = gradient[:, None]
        return found
