"""Backward of `pool`: gradients of bags summed for each distinct key, without atomics on floats.

Positions are grouped by key. Windows of 64 grouped positions run first and sum the part of a frequent key (more than 64
positions) that lies in them; the programs after them sum the other keys, several to a tile. A second, small launch adds
the windows of each frequent key. The result depends on the order of positions alone, which a deterministic `unique`
fixes.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hotrow.errors import InputError
from hotrow.kernels.launch import block_dim, block_rows, check, launch, takes_kernel
from hotrow.kernels.pool import Mode, bag_of, check_mode, check_offsets
from hotrow.kernels.unique import UniqueKeys

WINDOW = 64


def scatter(unique: UniqueKeys, gradients: Tensor, offsets: Tensor | None = None, mode: Mode = "sum") -> Tensor:
    """float32 [positions, dim]: the gradient of each of `unique.keys`; rows from `unique.size` on are not set.

    gradients [bags, dim], float32 or bfloat16, is the gradient of what `pool` gave for the same offsets and mode. The
    rule of `pool` for offsets holds here too: on a GPU, a position outside of every bag has a gradient of zeros.
    """
    check_mode("scatter", mode)
    if gradients.dtype not in (torch.float32, torch.bfloat16):
        raise InputError(f"scatter: gradients is {gradients.dtype}: must be torch.float32 or torch.bfloat16")
    positions = len(unique.inverse)
    check("scatter", "gradients", gradients, gradients.dtype, (_bags(unique, offsets), None))
    bags = None if offsets is None else bag_of(offsets, positions)
    scale = 1.0 / offsets.diff().clamp(min=1).float() if offsets is not None and mode == "mean" else None
    if not takes_kernel(gradients):
        return reference_scatter(unique, gradients, bags, scale)
    return _kernel_scatter(unique, gradients.contiguous(), bags, scale)


def reference_scatter(unique: UniqueKeys, gradients: Tensor, bags: Tensor | None, scale: Tensor | None) -> Tensor:
    """The same in torch."""
    gradients = gradients.float() if scale is None else gradients.float() * scale[:, None]
    each = gradients if bags is None else gradients.index_select(0, bags)
    return torch.zeros_like(each).index_add_(0, unique.inverse, each)


def _bags(unique: UniqueKeys, offsets: Tensor | None) -> int:
    if offsets is None:
        return len(unique.inverse)
    check_offsets("scatter", offsets, len(unique.inverse))
    return len(offsets) - 1


def _kernel_scatter(unique: UniqueKeys, gradients: Tensor, bags: Tensor | None, scale: Tensor | None) -> Tensor:
    positions, dim = len(unique.inverse), gradients.shape[1]
    columns = block_dim("scatter", dim)
    rows = block_rows(columns)
    windows = triton.cdiv(positions, WINDOW)
    out = torch.empty(positions, dim, device=gradients.device)
    parts = torch.empty(2 * windows, dim, device=gradients.device)
    order = unique.order()
    groups = (unique.inverse, unique.counts, unique.starts)
    sizes = {"DIM": dim, "BLOCK_DIM": columns, "WINDOW": WINDOW}
    tensors = (bags, scale, order, *groups, unique.size, parts, out)
    programs = windows + triton.cdiv(positions, rows)
    launch(_scatter_kernel, programs, gradients, *tensors, len(gradients), positions, windows, ROWS=rows, **sizes)
    adding = windows if windows > 1 else 0  # one window holds no frequent key
    launch(_add_parts_kernel, adding, order, *groups, parts, out, positions, ROWS=max(1, 4096 // columns), **sizes)
    return out


@triton.jit(do_not_specialize=["bag_count", "positions", "windows"])
def _scatter_kernel(
    gradients, bags, scale, order, inverse, counts, starts, size, parts, out, bag_count, positions, windows,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK_DIM)
    if program < windows:  # a frequent key is longer than a window: only the first and the last key can be one
        head = program * WINDOW
        tail = tl.minimum(head + WINDOW, positions) - 1
        first = tl.load(inverse + tl.load(order + head))
        last = tl.load(inverse + tl.load(order + tail))
        place = head + tl.arange(0, WINDOW)
        for side in range(2):
            key = first if side == 0 else last
            count = tl.load(counts + key)
            start = tl.load(starts + key)
            if (count > WINDOW) & ((side == 0) | (first != last)):
                own = (place >= start) & (place < start + count)
                each = _gradient(gradients, bags, scale, order, bag_count, place, own, column, DIM)
                tl.store(parts + (2 * program.to(tl.int64) + side) * DIM + column, tl.sum(each, 0), mask=column < DIM)
    else:
        key = (program - windows) * ROWS + tl.arange(0, ROWS)
        count = tl.load(counts + key, mask=key < tl.load(size), other=0)
        count = tl.where(count > WINDOW, 0, count)
        most = tl.max(count, axis=0)
        if most > 0:
            start = tl.load(starts + key, mask=count > 0, other=0)
            total = tl.zeros([ROWS, BLOCK_DIM], tl.float32)
            for step in range(0, most):
                place, own = start + step, step < count
                total += _gradient(gradients, bags, scale, order, bag_count, place, own, column, DIM)
            tile = (count > 0)[:, None] & (column < DIM)[None, :]
            tl.store(out + key.to(tl.int64)[:, None] * DIM + column[None, :], total, mask=tile)


@triton.jit
def _gradient(gradients, bags, scale, order, bag_count, place, own, column, DIM: tl.constexpr):
    """Gradients of the positions at grouped places; zeros where a place is not `own`, or its position in no bag."""
    row = tl.load(order + place, mask=own, other=0)
    if bags is not None:
        row = tl.load(bags + row, mask=own, other=0)
        own = own & (row >= 0) & (row < bag_count)  # offsets that do not cover the batch: -1, or the number of bags
    tile = own[:, None] & (column < DIM)[None, :]
    each = tl.load(gradients + row.to(tl.int64)[:, None] * DIM + column[None, :], mask=tile, other=0.0).to(tl.float32)
    if scale is not None:
        each = each * tl.load(scale + row, mask=own, other=0.0)[:, None]
    return each


@triton.jit(do_not_specialize=["positions"])
def _add_parts_kernel(
    order, inverse, counts, starts, parts, out, positions,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Add the windows of the frequent key that begins in this window, if one does: it is the window's last."""
    window = tl.program_id(0)
    column = tl.arange(0, BLOCK_DIM)
    tail = tl.minimum(window * WINDOW + WINDOW, positions) - 1
    key = tl.load(inverse + tl.load(order + tail))
    count = tl.load(counts + key)
    start = tl.load(starts + key)
    if (count > WINDOW) & (start // WINDOW == window):
        end = (start + count - 1) // WINDOW + 1
        total = tl.zeros([BLOCK_DIM], tl.float32)
        for begin in range(window, end, ROWS):
            each = begin + tl.arange(0, ROWS)
            side = (each * WINDOW < start).to(tl.int64)  # where the key is not the first of the window it is the last
            tile = (each < end)[:, None] & (column < DIM)[None, :]
            part = parts + (2 * each.to(tl.int64) + side)[:, None] * DIM + column[None, :]
            total += tl.sum(tl.load(part, mask=tile, other=0.0), axis=0)
        tl.store(out + key.to(tl.int64) * DIM + column, total, mask=column < DIM)
