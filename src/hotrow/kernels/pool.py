"""Rows gathered and pooled over bags: sum or mean, in float32 or bfloat16."""

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from hotrow.errors import InputError
from hotrow.kernels.launch import block_dim, block_rows, check, launch, takes_kernel

Mode = Literal["sum", "mean"]
_OUTPUTS = (torch.float32, torch.bfloat16)


def pool(
    values: Tensor,
    slots: Tensor,
    inverse: Tensor | None = None,
    offsets: Tensor | None = None,
    mode: Mode = "sum",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """One row of `dtype` per bag: the sum or mean of its rows, added up in float32; zeros for an empty bag.

    values float32 [rows, dim]; slots int64, a row of values each, or -1 for a row of zeros; inverse int32 [positions]
    names the slot of each position (None: position p has slot p); bag b holds the positions from offsets[b] to
    offsets[b + 1], int64 (None: every position is a bag). Offsets ascend from 0 to the number of positions: others are
    refused on the CPU; on a GPU, where a check would wait, a position outside of the batch counts as a row of zeros.
    """
    check("pool", "values", values, torch.float32, (None, None))
    check("pool", "slots", slots, torch.int64, (None,))
    if inverse is not None:
        check("pool", "inverse", inverse, torch.int32, (None,))
    if offsets is not None:
        check_offsets("pool", offsets, len(slots if inverse is None else inverse))
    check_output("pool", mode, dtype)
    return pool_checked(values, slots, inverse, offsets, mode, dtype)


def pool_checked(
    values: Tensor,
    slots: Tensor,
    inverse: Tensor | None,
    offsets: Tensor | None,
    mode: Mode,
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """As `pool`, of arguments that fit; into `out` where it is given."""
    if takes_kernel(values):
        return _kernel_pool(values, slots, inverse, offsets, mode, dtype, out)
    pooled = reference_pool(values, slots, inverse, offsets, mode, dtype)
    return pooled if out is None else out.copy_(pooled)


def _kernel_pool(
    values: Tensor,
    slots: Tensor,
    inverse: Tensor | None,
    offsets: Tensor | None,
    mode: Mode,
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    positions = len(slots if inverse is None else inverse)
    bags = positions if offsets is None else len(offsets) - 1
    dim = values.shape[1]
    columns = block_dim("pool", dim)
    rows = block_rows(columns)
    out = torch.empty(bags, dim, dtype=dtype, device=values.device) if out is None else out
    launch(
        _pool_kernel, triton.cdiv(bags, rows), values, slots, inverse, offsets, out, bags, positions,
        values.stride(0),
        DIM=dim, BLOCK_DIM=columns, ROWS=rows, MEAN=mode == "mean",
    )  # fmt: skip
    return out


def reference_pool(
    values: Tensor,
    slots: Tensor,
    inverse: Tensor | None,
    offsets: Tensor | None,
    mode: Mode,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The same in torch."""
    chosen = slots if inverse is None else slots[inverse]
    rows = torch.where(chosen[:, None] >= 0, values[chosen.clamp(min=0)], 0.0)
    if offsets is None:
        return rows.to(dtype)
    pooled = rows.new_zeros(len(offsets) - 1, values.shape[1]).index_add(0, bag_of(offsets, len(rows)), rows)
    if mode == "mean":
        pooled = pooled / offsets.diff().clamp(min=1)[:, None]
    return pooled.to(dtype)


def bag_of(offsets: Tensor, positions: int) -> Tensor:
    """int32 [positions]: the bag of each position, without asking the device how long bags are."""
    return torch.searchsorted(offsets, torch.arange(positions, device=offsets.device), right=True, out_int32=True).sub_(
        1
    )


def check_offsets(who: str, offsets: Tensor, positions: int) -> None:
    """Refuse offsets of another type or shape; on the CPU also those that do not ascend from 0 to `positions`."""
    check(who, "offsets", offsets, torch.int64, (None,))
    rule = f"must ascend from 0 to {positions:,}, the number of positions"
    if not len(offsets):
        raise InputError(f"{who}: offsets is empty: {rule}")
    if offsets.is_cuda:
        return
    first, last = int(offsets[0]), int(offsets[-1])
    if first != 0 or last != positions:
        raise InputError(f"{who}: offsets go from {first:,} to {last:,}: {rule}")
    if bool((offsets.diff() < 0).any()):
        raise InputError(
            f"{who}: offsets[{int((offsets.diff() < 0).nonzero()[0]) + 1}] is below the one before: {rule}"
        )


def check_output(who: str, mode: str, dtype: torch.dtype) -> None:
    check_mode(who, mode)
    if dtype not in _OUTPUTS:
        raise InputError(f"{who}: dtype={dtype}: must be one of {', '.join(map(str, _OUTPUTS))}")


def check_mode(who: str, mode: str) -> None:
    if mode not in ("sum", "mean"):
        raise InputError(f"{who}: mode={mode!r}: must be 'sum' or 'mean'")


@triton.jit(do_not_specialize=["bags", "positions"])
def _pool_kernel(
    values, slots, inverse, offsets, out, bags, positions, stride,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    bag = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK_DIM)
    inside = bag < bags
    if offsets is None:
        pooled = _row(values, slots, inverse, bag, inside, column, stride, DIM)
    else:
        begin = tl.load(offsets + bag, mask=inside, other=0)
        length = tl.load(offsets + bag + 1, mask=inside, other=0) - begin
        pooled = tl.zeros([ROWS, BLOCK_DIM], tl.float32)
        for place in range(0, tl.max(length, axis=0)):
            position = begin + place
            there = (place < length) & (position >= 0) & (position < positions)
            pooled += _row(values, slots, inverse, position, there, column, stride, DIM)
        if MEAN:
            pooled = tl.div_rn(pooled, tl.maximum(length, 1).to(tl.float32)[:, None])
    tile = inside[:, None] & (column < DIM)[None, :]
    tl.store(out + bag[:, None] * DIM + column[None, :], pooled.to(out.dtype.element_ty), mask=tile)


@triton.jit
def _row(values, slots, inverse, position, inside, column, stride, DIM: tl.constexpr):
    """The row of each position; zeros where there is none."""
    if inverse is not None:
        position = tl.load(inverse + position, mask=inside, other=0).to(tl.int64)
    slot = tl.load(slots + position, mask=inside, other=-1)
    tile = (slot >= 0)[:, None] & (column < DIM)[None, :]
    return tl.load(values + slot[:, None] * stride + column[None, :], mask=tile, other=0.0)
