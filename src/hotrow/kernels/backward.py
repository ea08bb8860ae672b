"""Backward of `pool` and the optimizer in one pass: gradients are summed for each key, and its row is updated at once.

What `scatter` and `update_rows` do one after the other, without the sums in memory between them. Frequent keys take
two small launches more: their windows are summed before (scatter.py), and added up behind it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hotrow.kernels.launch import check, launch, programs_of, takes_kernel, warp_tile
from hotrow.kernels.pool import Mode
from hotrow.kernels.scatter import (
    AT_ONCE,
    WINDOW,
    BagGradients,
    FrequentKeys,
    bag_gradients,
    list_frequent,
    reference_scatter,
    sum_keys,
    sum_parts,
)
from hotrow.kernels.unique import UniqueKeys
from hotrow.kernels.update import reference_update
from hotrow.kernels.update_rule import StepScalars
from hotrow.kernels.update_tile import SCALARS, TableRows, update_tile


def update_from_bags(
    rows: TableRows,
    slots: Tensor,
    unique: UniqueKeys,
    gradients: Tensor,
    offsets: Tensor | None = None,
    mode: Mode = "sum",
    *,
    step: int = 0,
    samples: int = 0,
    lr_scale: float = 1.0,
    missing: Tensor | None = None,
) -> None:
    """Update the row of each of `unique.keys`, at slots int64 [positions], with the sum of its gradients.

    Slots -1 and -2 are skipped, and counted in missing[0] and missing[1], int64 [2]; slots from `unique.size` on are
    not read. Gradients, offsets and mode are those of `scatter`, the numbers those of `update_rows`.
    """
    check("update_from_bags", "slots", slots, torch.int64, (len(unique.inverse),))
    given = bag_gradients("update_from_bags", unique, gradients, offsets, mode, rows.values.shape[1])
    if missing is not None:
        check("update_from_bags", "missing", missing, torch.int64, (2,))
    scalars = StepScalars.of(rows.rule, step, samples, lr_scale)
    update_checked(rows, slots, unique, given, scalars, missing)


def update_checked(
    rows: TableRows,
    slots: Tensor,
    unique: UniqueKeys,
    given: BagGradients,
    scalars: StepScalars,
    missing: Tensor | None = None,
) -> None:
    """As `update_from_bags`, of arguments that fit."""
    if takes_kernel(slots):
        _kernel_update(rows, slots, unique, given, scalars, missing)
        return
    size, rule = int(unique.size), rows.rule
    if missing is not None:
        missing += torch.stack([(slots[:size] == absent).sum() for absent in (-1, -2)])
    sums = reference_scatter(unique, *given)[:size]
    reference_update(rule, rows.values, rows.state, slots[:size], sums, rows.fields, scalars, rows.refused)


def _kernel_update(
    rows: TableRows,
    slots: Tensor,
    unique: UniqueKeys,
    given: BagGradients,
    scalars: StepScalars,
    missing: Tensor | None,
) -> None:
    arguments, constants, order = rows.arguments(scalars), rows.constants, unique.order()
    tile, groups = warp_tile(constants["BLOCK_DIM"]), (unique.counts, unique.starts)
    frequent = FrequentKeys.sum_windows(unique, given, order)
    programs = programs_of(slots, triton.cdiv(len(slots), tile["ROWS"]))
    places = (order, *groups, unique.size, frequent.listed, slots, missing, len(given.rows))
    launch(_backward_kernel, programs, *given, *places, *arguments, WINDOW=WINDOW, AT_ONCE=AT_ONCE, **tile, **constants)
    programs, tile = frequent.adding()
    launch(_frequent_kernel, programs, *frequent, *groups, slots, *arguments, **tile, **constants)


@triton.jit(do_not_specialize=["bag_count", *SCALARS])
def _backward_kernel(
    gradients, bags, scale, order, counts, starts, size, frequent, slots, missing, bag_count,
    values, state, version, last_update, period, updates, refused, value_stride, state_stride, field_stride,
    lr, keep, l2, clip, eps, rate1, rate2, floor, step_size, stamp, now,
    KIND: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, WINDOW: tl.constexpr,
    AT_ONCE: tl.constexpr, CLIP: tl.constexpr, EPS_INSIDE: tl.constexpr, SWAP_LOG2: tl.constexpr,
    LOG2_BETA1: tl.constexpr, LOG2_BETA2: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK_DIM)
    distinct = tl.load(size)
    for tile in range(tl.program_id(0), tl.cdiv(distinct, ROWS), tl.num_programs(0)):
        key = tile * ROWS + tl.arange(0, ROWS)
        known = key < distinct
        count = tl.load(counts + key, mask=known, other=0)
        slot = tl.load(slots + key, mask=known, other=0)
        if missing is not None:
            one = tl.full(slot.shape, 1, tl.int64)
            tl.atomic_add(missing - 1 - slot, one, mask=known & (slot < 0), sem="relaxed")
        list_frequent(frequent, key, (slot >= 0) & (count > WINDOW))
        present = (slot >= 0) & (count > 0) & (count <= WINDOW)
        inside = present[:, None] & (column < DIM)[None, :]
        value = tl.load(values + slot[:, None] * value_stride + column[None, :], mask=inside, other=0.0)
        count = tl.where(present, count, 0)
        g = sum_keys(key, count, gradients, bags, scale, order, starts, bag_count, column, DIM, AT_ONCE)
        update_tile(
            slot, present, g, value, column,
            values, state, version, last_update, period, updates, refused, value_stride, state_stride, field_stride,
            lr, keep, l2, clip, eps, rate1, rate2, floor, step_size, stamp, now,
            KIND, DIM, CLIP, EPS_INSIDE, SWAP_LOG2, LOG2_BETA1, LOG2_BETA2,
        )  # fmt: skip


@triton.jit(do_not_specialize=SCALARS)
def _frequent_kernel(
    parts, frequent, counts, starts, slots,
    values, state, version, last_update, period, updates, refused, value_stride, state_stride, field_stride,
    lr, keep, l2, clip, eps, rate1, rate2, floor, step_size, stamp, now,
    KIND: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, WINDOW: tl.constexpr,
    CLIP: tl.constexpr, EPS_INSIDE: tl.constexpr, SWAP_LOG2: tl.constexpr,
    LOG2_BETA1: tl.constexpr, LOG2_BETA2: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK_DIM)
    for place in range(tl.program_id(0), tl.load(frequent), tl.num_programs(0)):
        key = tl.load(frequent + 1 + place)
        slot = tl.load(slots + key + tl.arange(0, 1))
        present = slot >= 0
        inside = present[:, None] & (column < DIM)[None, :]
        value = tl.load(values + slot[:, None] * value_stride + column[None, :], mask=inside, other=0.0)
        g = sum_parts(key, counts, starts, parts, column, DIM, BLOCK_DIM, ROWS, WINDOW)[None, :]
        update_tile(
            slot, present, g, value, column,
            values, state, version, last_update, period, updates, refused, value_stride, state_stride, field_stride,
            lr, keep, l2, clip, eps, rate1, rate2, floor, step_size, stamp, now,
            KIND, DIM, CLIP, EPS_INSIDE, SWAP_LOG2, LOG2_BETA1, LOG2_BETA2,
        )  # fmt: skip
