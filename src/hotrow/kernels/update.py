"""Fused sparse optimizers: one pass over the rows of a batch, on values and state in place.

update_tile.py has the order of an update.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hotrow.kernels.launch import check, launch, takes_kernel, warp_tile
from hotrow.kernels.update_rule import Kind, RowFields, StepScalars, UpdateRule
from hotrow.kernels.update_tile import SCALARS, TableRows, update_tile

__all__ = ["Kind", "RowFields", "StepScalars", "UpdateRule", "reference_update", "update_rows"]


def update_rows(
    rule: UpdateRule,
    values: Tensor,
    state: Tensor | None,
    slots: Tensor,
    gradients: Tensor,
    fields: RowFields | None = None,
    *,
    step: int = 0,
    samples: int = 0,
    lr_scale: float = 1.0,
    refused: Tensor | None = None,
) -> Tensor:
    """Update the rows at `slots` with `gradients`, in place; returns `refused`, to which rows left alone are added.

    values float32 [rows, dim] and state float32 [rows, rule.state_dim(dim)] may be columns of one larger tensor;
    slots int64 [n], each row at most once, -1 to skip; gradients float32 [n, dim]; refused int64 [1].
    `samples` counts all samples up to and including this batch, and must not go back from call to call.
    """
    refused = torch.zeros(1, dtype=torch.int64, device=slots.device) if refused is None else refused
    rows = TableRows("update_rows", rule, values, state, fields or RowFields(), refused)
    check("update_rows", "slots", slots, torch.int64, (None,))
    update_slots(rows, slots, gradients, StepScalars.of(rule, step, samples, lr_scale))
    return refused


def update_slots(rows: TableRows, slots: Tensor, gradients: Tensor, scalars: StepScalars) -> None:
    """As `update_rows`, of rows that were checked."""
    check("update_rows", "gradients", gradients, torch.float32, (len(slots), rows.values.shape[1]))
    if takes_kernel(rows.values):
        _kernel_update(rows, slots, gradients.contiguous(), scalars)
    else:
        given = (rows.values, rows.state, slots, gradients, rows.fields, scalars, rows.refused)
        reference_update(rows.rule, *given)


def _kernel_update(rows: TableRows, slots: Tensor, gradients: Tensor, scalars: StepScalars) -> None:
    tile = warp_tile(rows.constants["BLOCK_DIM"])
    programs = triton.cdiv(len(slots), tile["ROWS"])
    places = slots, gradients, len(slots)
    launch(_update_kernel, programs, *places, *rows.arguments(scalars), **rows.constants, **tile)


def reference_update(
    rule: UpdateRule,
    values: Tensor,
    state: Tensor | None,
    slots: Tensor,
    gradients: Tensor,
    fields: RowFields,
    scalars: StepScalars,
    refused: Tensor,
) -> None:
    """The same in torch. Values, state and gradients may be float64."""
    squares = gradients.square().sum(1)
    present, finite = slots >= 0, squares.isfinite()
    refused += (present & ~finite).sum()
    kept = present & finite
    slots, g, squares = slots[kept], gradients[kept], squares[kept]
    value, dim = values[slots], values.shape[1]
    if rule.clip is not None:
        norm = squares.sqrt()
        g = torch.where(norm > rule.clip, rule.clip / norm, 1.0)[:, None] * g
    g = g + rule.l2 * value
    change = _change(rule, state, slots, g, dim, fields, scalars)
    values[slots] = scalars.keep * value - change
    if fields.version is not None:
        version = fields.version[slots]
        fields.version[slots] = torch.where(version == -1, 2, version + 1)
    if fields.last_update is not None:
        fields.last_update[slots] = scalars.stamp


def _change(
    rule: UpdateRule, state: Tensor | None, slots: Tensor, g: Tensor, dim: int, fields: RowFields, scalars: StepScalars
) -> Tensor:
    """What is subtracted from the values; moves the state."""
    if state is None or rule.kind == "sgd":
        return scalars.lr * g
    mean, v = state[slots, :-dim], state[slots, -dim:]  # `mean` is Adam's, else empty
    if rule.swap_period and fields.period is not None:
        stands_at, now = _unsigned(fields.period[slots]), scalars.period % 2**32
        factor = (rule.swap_decay ** (now - stands_at).clamp(min=0).double()).to(v.dtype)[:, None]
        v = torch.maximum(v * factor, v.clamp(max=rule.swap_floor))  # the floor stops decay and never raises
        fields.period[slots] = stands_at.clamp(min=now).to(torch.int32)
    numerator, step_size = g, torch.full_like(g[:, :1], scalars.step_size)
    if rule.kind == "adam":
        mean = numerator = mean + (1 - rule.beta1) * (g - mean)
        v = v + (1 - rule.beta2) * (g * g - v)
    elif rule.kind == "decayed_adagrad":
        v = rule.rate * v + (1 - rule.rate) * (g * g)
    else:
        v = v + (g * g if rule.kind == "adagrad" else (g * g).mean(1, keepdim=True))
    if rule.counts_updates and fields.updates is not None:
        t = _unsigned(fields.updates[slots] + 1).double()
        fields.updates[slots] += 1
        step_size = (scalars.lr * (1 - rule.beta2**t).sqrt() / (1 - rule.beta1**t)).to(g.dtype)[:, None]
    state[slots] = torch.cat([mean, v], 1)
    root = (v + rule.eps).sqrt() if rule.eps_inside else v.sqrt() + rule.eps
    return torch.where(root > 0, step_size * numerator / root, 0.0)


def _unsigned(field: Tensor) -> Tensor:
    return field.to(torch.int64) & 0xFFFFFFFF


@triton.jit(do_not_specialize=["n", *SCALARS])
def _update_kernel(
    slots, gradients, n,
    values, state, version, last_update, period, updates, refused, value_stride, state_stride, field_stride,
    lr, keep, l2, clip, eps, rate1, rate2, floor, step_size, stamp, now,
    KIND: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr,
    CLIP: tl.constexpr, EPS_INSIDE: tl.constexpr, SWAP_LOG2: tl.constexpr,
    LOG2_BETA1: tl.constexpr, LOG2_BETA2: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK_DIM)
    slot = tl.load(slots + row, mask=row < n, other=-1)
    present = slot >= 0
    tile = present[:, None] & (column < DIM)[None, :]
    g = tl.load(gradients + row[:, None] * DIM + column[None, :], mask=tile, other=0.0)
    value = tl.load(values + slot[:, None] * value_stride + column[None, :], mask=tile, other=0.0)
    update_tile(
        slot, present, g, value, column,
        values, state, version, last_update, period, updates, refused, value_stride, state_stride, field_stride,
        lr, keep, l2, clip, eps, rate1, rate2, floor, step_size, stamp, now,
        KIND, DIM, CLIP, EPS_INSIDE, SWAP_LOG2, LOG2_BETA1, LOG2_BETA2,
    )  # fmt: skip
