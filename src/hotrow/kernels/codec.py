"""float32 rows as fp16 with a scale each, bit for bit as the native codec (`hotrow.store.kernels.encode_rows`).

A row is multiplied by 2^14 / its largest finite |value| and rounded to nearest even. The scale is at most the largest
float32, and 1 where no element is finite and other than zero. Zeros keep their sign, infinities and NaN stay.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hotrow.kernels.launch import block_dim, block_rows, check, launch, takes_kernel

_KAPPA = 2.0**14
_LARGEST = torch.finfo(torch.float32).max


def encode_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """float32 [n, dim] as (float16 [n, dim], scale float32 [n])."""
    check("encode_rows", "rows", rows, torch.float32, (None, None))
    if not takes_kernel(rows):
        return reference_encode(rows)
    rows = rows.contiguous()
    half = torch.empty_like(rows, dtype=torch.float16)
    scale = torch.empty(len(rows), device=rows.device)
    _convert("encode_rows", _encode_kernel, rows, half, scale)
    return half, scale


def decode_rows(half: Tensor, scale: Tensor) -> Tensor:
    """Back to float32 [n, dim]."""
    check("decode_rows", "half", half, torch.float16, (None, None))
    check("decode_rows", "scale", scale, torch.float32, (len(half),))
    if not takes_kernel(half):
        return reference_decode(half, scale)
    half = half.contiguous()
    rows = torch.empty_like(half, dtype=torch.float32)
    _convert("decode_rows", _decode_kernel, rows, half, scale)
    return rows


def reference_encode(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The same in torch."""
    finite = torch.where(rows.isfinite(), rows.abs(), 0.0)
    largest = finite.amax(1) if rows.shape[1] else finite.new_zeros(len(rows))
    kappa = torch.full_like(largest, _KAPPA)  # torch divides a number by a tensor in two roundings
    scale = torch.where(largest > 0, (kappa / largest).clamp(max=_LARGEST), 1.0)
    return (rows * scale[:, None]).half(), scale


def reference_decode(half: Tensor, scale: Tensor) -> Tensor:
    """The same in torch."""
    return half.float() / scale[:, None]


def _convert(who: str, kernel: Any, rows: Tensor, half: Tensor, scale: Tensor) -> None:
    count, dim = rows.shape
    columns = block_dim(who, dim)
    tile = block_rows(columns)
    sizes = {"DIM": dim, "BLOCK_DIM": columns, "ROWS": tile, "LARGEST": _LARGEST}
    launch(kernel, triton.cdiv(count, tile), rows, half, scale, count, **sizes)


@triton.jit
def _tile(count, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr):
    """The rows of this program, where their elements are, and which of them exist."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK_DIM)
    tile = (row < count)[:, None] & (column < DIM)[None, :]
    at = row[:, None] * DIM + column[None, :]
    return row, at, tile


@triton.jit(do_not_specialize=["count"])
def _encode_kernel(
    rows, half, scale, count, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, LARGEST: tl.constexpr
):  # fmt: skip
    row, at, tile = _tile(count, DIM, BLOCK_DIM, ROWS)
    value = tl.load(rows + at, mask=tile, other=0.0)
    bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF  # without their signs, floats order as these integers do
    largest = tl.max(tl.where(bits < 0x7F800000, bits, 0), axis=1).to(tl.float32, bitcast=True)
    factor = tl.where(largest > 0, tl.minimum(tl.div_rn(16384.0, largest), LARGEST), 1.0)
    tl.store(scale + row, factor, mask=row < count)
    tl.store(half + at, (value * factor[:, None]).to(tl.float16), mask=tile)


@triton.jit(do_not_specialize=["count"])
def _decode_kernel(
    rows, half, scale, count, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, LARGEST: tl.constexpr
):  # fmt: skip
    row, at, tile = _tile(count, DIM, BLOCK_DIM, ROWS)
    factor = tl.load(scale + row, mask=row < count, other=1.0)
    value = tl.load(half + at, mask=tile, other=0.0).to(tl.float32)
    tl.store(rows + at, tl.div_rn(value, factor[:, None]), mask=tile)
