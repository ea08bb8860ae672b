"""DeepFM's second order: the products of every two vectors of a sample, summed, by the square of the sum."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from hotrow.kernels.launch import block_dim, block_rows, check_vectors, launch, takes_kernel


def second_order(rows: Tensor, weights: bool = True) -> Tensor:
    """float32 [samples] from rows [samples, fields, width], float32 or bfloat16; differentiable.

    With `weights` the first float of a row is the weight of its id: weights are summed, and the vectors behind them
    multiplied (`hotrow.models.interactions.weights_and_pairs`). Without, whole rows are the vectors.
    """
    check_vectors("second_order", rows, "width")
    if not takes_kernel(rows) or not rows.numel():
        return reference_second_order(rows, weights)
    result: Tensor = _SecondOrder.apply(rows, weights)
    return result


def reference_second_order(rows: Tensor, weights: bool) -> Tensor:
    """The same in torch."""
    rows = rows.float()
    vectors = rows[:, :, int(weights) :]
    pairs = 0.5 * (vectors.sum(1).square().sum(1) - vectors.square().sum((1, 2)))
    return pairs + rows[:, :, 0].sum(1) if weights else pairs


class _SecondOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: bool) -> Tensor:
        rows = rows.contiguous()
        samples, _, width = rows.shape
        total, out = rows.new_empty(samples, width, dtype=torch.float32), rows.new_empty(samples, dtype=torch.float32)
        programs, sizes = _sizes(rows, weights)
        launch(_second_order_forward_kernel, programs, rows, total, out, samples, **sizes)
        ctx.save_for_backward(rows, total)
        ctx.weights = weights
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        rows, total = ctx.saved_tensors
        found = torch.empty_like(rows)
        programs, sizes = _sizes(rows, ctx.weights)
        tensors = (rows, total, gradient.contiguous(), found)
        launch(_second_order_backward_kernel, programs, *tensors, len(rows), **sizes)
        return found, None


def _sizes(rows: Tensor, weights: bool) -> tuple[int, dict[str, Any]]:
    samples, fields, width = rows.shape
    columns = block_dim("second_order", width)
    tile = block_rows(columns)
    sizes = {"FIELDS": fields, "WIDTH": width, "WEIGHTS": int(weights), "SAMPLES": tile, "BLOCK_WIDTH": columns}
    return triton.cdiv(samples, tile), sizes


@triton.jit(do_not_specialize=["samples"])
def _second_order_forward_kernel(
    rows, total, out, samples,
    FIELDS: tl.constexpr, WIDTH: tl.constexpr, WEIGHTS: tl.constexpr, SAMPLES: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    column = tl.arange(0, BLOCK_WIDTH)
    tile = (sample < samples)[:, None] & (column < WIDTH)[None, :]
    sums = tl.zeros([SAMPLES, BLOCK_WIDTH], tl.float32)
    squares = tl.zeros([SAMPLES, BLOCK_WIDTH], tl.float32)
    for field in range(FIELDS):
        x = tl.load(rows + (sample[:, None] * FIELDS + field) * WIDTH + column[None, :], mask=tile, other=0.0)
        x = x.to(tl.float32)
        sums += x
        squares += x * x
    tl.store(total + sample[:, None] * WIDTH + column[None, :], sums, mask=tile)
    parts = tl.where(column[None, :] < WEIGHTS, sums, 0.5 * (sums * sums - squares))
    tl.store(out + sample, tl.sum(parts, axis=1), mask=sample < samples)


@triton.jit(do_not_specialize=["samples"])
def _second_order_backward_kernel(
    rows, total, gradient, found, samples,
    FIELDS: tl.constexpr, WIDTH: tl.constexpr, WEIGHTS: tl.constexpr, SAMPLES: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(0).to(tl.int64) * SAMPLES + tl.arange(0, SAMPLES)
    column = tl.arange(0, BLOCK_WIDTH)
    tile = (sample < samples)[:, None] & (column < WIDTH)[None, :]
    g = tl.load(gradient + sample, mask=sample < samples, other=0.0)[:, None]
    sums = tl.load(total + sample[:, None] * WIDTH + column[None, :], mask=tile, other=0.0)
    for field in range(FIELDS):
        at = (sample[:, None] * FIELDS + field) * WIDTH + column[None, :]
        x = tl.load(rows + at, mask=tile, other=0.0).to(tl.float32)
        of_row = tl.where(column[None, :] < WEIGHTS, g, g * (sums - x))
        tl.store(found + at, of_row.to(found.dtype.element_ty), mask=tile)
