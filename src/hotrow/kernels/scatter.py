"""Backward of `pool`: gradients of bags summed for each distinct key, without atomics on floats.

Positions are grouped by key. A first launch sums the part of a frequent key (more than 64 positions) that lies in each
window of 64 grouped positions. A second one sums the other keys, several to a tile, and lists the frequent ones. A
third, small launch adds the windows of each of these. The result depends on the order of positions alone, which a
deterministic `unique` fixes.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hotrow.errors import InputError
from hotrow.kernels.launch import block_dim, check, launch, programs_of, takes_kernel, warp_tile
from hotrow.kernels.pool import Mode, bag_of, check_mode, check_offsets
from hotrow.kernels.unique import UniqueKeys

WINDOW = 64
_ADDED = 8192  # floats of windows that a program adds at once
AT_ONCE = 2  # positions of a key that are loaded together


class BagGradients(NamedTuple):
    """Gradients of bags, and which of them each position takes."""

    rows: Tensor  # [bags, dim], float32 or bfloat16, contiguous
    bags: Tensor | None  # int32 [positions]; None: position p takes row p
    scale: Tensor | None  # float32 [bags]; None: 1


def bag_gradients(
    who: str, unique: UniqueKeys, gradients: Tensor, offsets: Tensor | None, mode: Mode, dim: int | None = None
) -> BagGradients:
    """The gradient of what `pool` gave for the same offsets and mode, checked."""
    check_mode(who, mode)
    if gradients.dtype not in (torch.float32, torch.bfloat16):
        raise InputError(f"{who}: gradients is {gradients.dtype}: must be torch.float32 or torch.bfloat16")
    positions = len(unique.inverse)
    if offsets is not None:
        check_offsets(who, offsets, positions)
    bags = positions if offsets is None else len(offsets) - 1
    check(who, "gradients", gradients, gradients.dtype, (bags, dim))
    if offsets is None:
        return BagGradients(gradients.contiguous(), None, None)
    scale = 1.0 / offsets.diff().clamp(min=1).float() if mode == "mean" else None
    return BagGradients(gradients.contiguous(), bag_of(offsets, positions), scale)


def scatter(unique: UniqueKeys, gradients: Tensor, offsets: Tensor | None = None, mode: Mode = "sum") -> Tensor:
    """float32 [positions, dim]: the gradient of each of `unique.keys`; rows from `unique.size` on are not set.

    gradients [bags, dim], float32 or bfloat16, is the gradient of what `pool` gave for the same offsets and mode. The
    rule of `pool` for offsets holds here too: on a GPU, a position outside of every bag has a gradient of zeros.
    """
    given = bag_gradients("scatter", unique, gradients, offsets, mode)
    if not takes_kernel(gradients):
        return reference_scatter(unique, *given)
    return _kernel_scatter(unique, *given)


def reference_scatter(unique: UniqueKeys, gradients: Tensor, bags: Tensor | None, scale: Tensor | None) -> Tensor:
    """The same in torch."""
    gradients = gradients.float() if scale is None else gradients.float() * scale[:, None]
    each = gradients if bags is None else gradients.index_select(0, bags)
    return torch.zeros_like(each).index_add_(0, unique.inverse, each)


def _kernel_scatter(unique: UniqueKeys, gradients: Tensor, bags: Tensor | None, scale: Tensor | None) -> Tensor:
    positions, dim = len(unique.inverse), gradients.shape[1]
    columns = block_dim("scatter", dim)
    out, tile, order = torch.empty(positions, dim, device=gradients.device), warp_tile(columns), unique.order()
    frequent = FrequentKeys.sum_windows(unique, BagGradients(gradients, bags, scale), order)
    sizes, groups = {"DIM": dim, "BLOCK_DIM": columns}, (unique.counts, unique.starts)
    given = (bags, scale, order, *groups, unique.size, frequent.listed, out, len(gradients))
    programs = programs_of(out, triton.cdiv(positions, tile["ROWS"]))
    launch(_scatter_kernel, programs, gradients, *given, WINDOW=WINDOW, AT_ONCE=AT_ONCE, **tile, **sizes)
    programs, tile = frequent.adding()
    launch(_add_parts_kernel, programs, *frequent, *groups, out, **tile, **sizes)
    return out


class FrequentKeys(NamedTuple):
    """Keys with more positions than a window: sums of their windows, and the list of them that a later launch makes."""

    parts: Tensor  # float32 [2 * windows, dim]
    listed: Tensor  # int32 [1 + most of them]: how many, then their numbers, in any order

    @classmethod
    def sum_windows(cls, unique: UniqueKeys, given: BagGradients, order: Tensor) -> "FrequentKeys":
        """Sum the windows of grouped positions."""
        positions, (bags, dim) = len(order), given.rows.shape
        windows, most = triton.cdiv(positions, WINDOW), positions // (WINDOW + 1)
        parts = torch.empty(2 * windows, dim, device=order.device)
        made = torch.empty if most else torch.zeros  # the launch clears the number
        listed = made(1 + most, dtype=torch.int32, device=order.device)
        columns = block_dim("scatter", dim)
        sizes = {"DIM": dim, "BLOCK_DIM": columns, "WINDOW": WINDOW, "num_warps": min(16, max(1, columns // 16))}
        groups = (unique.inverse, unique.counts, unique.starts)
        programs = windows if most else 0
        launch(_window_kernel, programs, *given, order, *groups, parts, listed, bags, positions, **sizes)
        return cls(parts, listed)

    def adding(self) -> tuple[int, dict[str, int]]:
        """Programs of the launch that adds windows, and their tile: a very frequent key has over a thousand windows."""
        programs = programs_of(self.parts, len(self.listed) - 1)
        columns = block_dim("scatter", self.parts.shape[1])
        return programs, {"ROWS": max(1, _ADDED // columns), "WINDOW": WINDOW, "num_warps": 8}


@triton.jit(do_not_specialize=["bag_count", "positions"])
def _window_kernel(
    gradients, bags, scale, order, inverse, counts, starts, parts, frequent, bag_count, positions,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Sum the parts of frequent keys that lie in a window. Only its first and its last key can be frequent.

    The list of frequent keys is empty then.
    """
    window = tl.program_id(0)
    tl.store(frequent + window, 0, mask=window == 0)
    column = tl.arange(0, BLOCK_DIM)
    head = window * WINDOW
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
            tl.store(parts + (2 * window.to(tl.int64) + side) * DIM + column, tl.sum(each, 0), mask=column < DIM)


@triton.jit(do_not_specialize=["bag_count"])
def _scatter_kernel(
    gradients, bags, scale, order, counts, starts, size, frequent, out, bag_count,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, WINDOW: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK_DIM)
    distinct = tl.load(size)
    for tile in range(tl.program_id(0), tl.cdiv(distinct, ROWS), tl.num_programs(0)):
        key = tile * ROWS + tl.arange(0, ROWS)
        count = tl.load(counts + key, mask=key < distinct, other=0)
        list_frequent(frequent, key, count > WINDOW)
        count = tl.where(count > WINDOW, 0, count)
        total = sum_keys(key, count, gradients, bags, scale, order, starts, bag_count, column, DIM, AT_ONCE)
        inside = (count > 0)[:, None] & (column < DIM)[None, :]
        tl.store(out + key.to(tl.int64)[:, None] * DIM + column[None, :], total, mask=inside)


@triton.jit
def list_frequent(frequent, key, which):
    """Add keys to the list of frequent ones."""
    place = tl.atomic_add(frequent + 0 * key, tl.full(key.shape, 1, tl.int32), mask=which, sem="relaxed")
    tl.store(frequent + 1 + place, key, mask=which)


@triton.jit
def sum_keys(
    key, count, gradients, bags, scale, order, starts, bag_count, column, DIM: tl.constexpr, AT_ONCE: tl.constexpr
):  # fmt: skip
    """The sums of several keys that are not frequent."""
    start = tl.load(starts + key, mask=count > 0, other=0)
    total = _gradient(gradients, bags, scale, order, bag_count, start, count > 0, column, DIM)
    for step in range(1, tl.max(count, axis=0), AT_ONCE):
        if AT_ONCE == 1:
            total += _gradient(gradients, bags, scale, order, bag_count, start + step, step < count, column, DIM)
        else:  # the places of all before the first gradient: their loads do not wait for each other
            first = tl.load(order + start + step, mask=step < count, other=0)
            second = tl.load(order + start + step + 1, mask=step + 1 < count, other=0)
            each = _row_of(gradients, bags, scale, bag_count, first, step < count, column, DIM)
            other = _row_of(gradients, bags, scale, bag_count, second, step + 1 < count, column, DIM)
            total += each + other
    return total


@triton.jit
def _gradient(gradients, bags, scale, order, bag_count, place, own, column, DIM: tl.constexpr):
    """Gradients of the positions at grouped places; zeros where a place is not `own`, or its position in no bag."""
    row = tl.load(order + place, mask=own, other=0)
    return _row_of(gradients, bags, scale, bag_count, row, own, column, DIM)


@triton.jit
def _row_of(gradients, bags, scale, bag_count, row, own, column, DIM: tl.constexpr):
    """Gradients of positions; zeros as `_gradient` says."""
    if bags is not None:
        row = tl.load(bags + row, mask=own, other=0)
        own = own & (row >= 0) & (row < bag_count)  # offsets that do not cover the batch: -1, or the number of bags
    tile = own[:, None] & (column < DIM)[None, :]
    each = tl.load(gradients + row.to(tl.int64)[:, None] * DIM + column[None, :], mask=tile, other=0.0).to(tl.float32)
    if scale is not None:
        each = each * tl.load(scale + row, mask=own, other=0.0)[:, None]
    return each


@triton.jit
def _add_parts_kernel(
    parts, frequent, counts, starts, out,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK_DIM)
    for place in range(tl.program_id(0), tl.load(frequent), tl.num_programs(0)):
        key = tl.load(frequent + 1 + place)
        total = sum_parts(key, counts, starts, parts, column, DIM, BLOCK_DIM, ROWS, WINDOW)
        tl.store(out + key.to(tl.int64) * DIM + column, total, mask=column < DIM)


@triton.jit
def sum_parts(
    key, counts, starts, parts, column,
    DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """The sum of the windows of a frequent key."""
    start = tl.load(starts + key)
    end = (start + tl.load(counts + key) - 1) // WINDOW + 1
    total = tl.zeros([ROWS, BLOCK_DIM], tl.float32)
    for begin in range(start // WINDOW, end, ROWS):
        each = begin + tl.arange(0, ROWS)
        side = (each * WINDOW < start).to(tl.int64)  # where the key is not the first of the window it is the last
        tile = (each < end)[:, None] & (column < DIM)[None, :]
        part = parts + (2 * each.to(tl.int64) + side)[:, None] * DIM + column[None, :]
        total += tl.load(part, mask=tile, other=0.0)
    return tl.sum(total, axis=0)
