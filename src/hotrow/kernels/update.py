"""Fused sparse optimizers: one pass over the rows of a batch, on values and state in place.

The order of an update is that of the store in memory: refuse a gradient whose squared norm is not finite, clip, L2 into
the gradient, SWAP decay of the second moment, weight decay, the optimizer's rule, counters.
"""

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hotrow.errors import InputError
from hotrow.kernels.launch import block_dim, block_rows, check, launch, takes_kernel
from hotrow.kernels.update_rule import Kind, RowFields, StepScalars, UpdateRule

__all__ = ["Kind", "RowFields", "StepScalars", "UpdateRule", "reference_update", "update_rows"]

_NEVER = -1e9  # log2 of a beta of 0: any power of it is 0


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
    refused = slots.new_zeros(1) if refused is None else refused
    batch = _Batch(values, state, slots, gradients, fields or RowFields(), refused)
    _check(rule, batch)
    scalars = StepScalars.of(rule, step, samples, lr_scale)
    if takes_kernel(values):
        _kernel_update(rule, batch, scalars)
    else:
        reference_update(rule, values, state, slots, gradients, batch.fields, scalars, refused)
    return refused


class _Batch(NamedTuple):
    values: Tensor
    state: Tensor | None
    slots: Tensor
    gradients: Tensor
    fields: RowFields
    refused: Tensor


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


def _check(rule: UpdateRule, batch: _Batch) -> None:
    who = "update_rows"
    check(who, "values", batch.values, torch.float32, (None, None))
    rows, dim = batch.values.shape
    if state_dim := rule.state_dim(dim):
        if batch.state is None:
            raise InputError(f"{who}: state is missing: {rule.kind} has {state_dim} floats of it beside a row of {dim}")
        check(who, "state", batch.state, torch.float32, (rows, state_dim))
    check(who, "slots", batch.slots, torch.int64, (None,))
    check(who, "gradients", batch.gradients, torch.float32, (len(batch.slots), dim))
    check(who, "refused", batch.refused, torch.int64, (1,))
    for name in ("version", "last_update", "period", "updates"):
        if (field := getattr(batch.fields, name)) is not None:
            check(who, f"fields.{name}", field, torch.int32, (rows,))
    batch.fields.check(rule)


def _kernel_update(rule: UpdateRule, batch: _Batch, scalars: StepScalars) -> None:
    values, fields, count = batch.values, batch.fields, len(batch.slots)
    dim = values.shape[1]
    state = batch.state if rule.state_dim(dim) else None
    columns = block_dim("update_rows", dim)
    rows = block_rows(columns)
    decayed, by_row = rule.kind == "decayed_adagrad", rule.counts_updates
    launch(
        _update_kernel,
        triton.cdiv(count, rows),
        values,
        state,
        batch.slots,
        batch.gradients.contiguous(),
        fields.version,
        fields.last_update,
        fields.period if rule.swap_period else None,
        fields.updates if by_row else None,
        batch.refused,
        count,
        values.stride(0),
        0 if state is None else state.stride(0),
        scalars.lr,
        scalars.keep,
        rule.l2,
        rule.clip or 0.0,
        rule.eps,
        rule.rate if decayed else 1 - rule.beta1,
        1 - rule.rate if decayed else 1 - rule.beta2,
        rule.swap_floor,
        scalars.step_size,
        scalars.stamp,
        scalars.period,
        KIND=rule.kind,
        DIM=dim,
        BLOCK_DIM=columns,
        ROWS=rows,
        CLIP=rule.clip is not None,
        EPS_INSIDE=rule.eps_inside,
        SWAP_LOG2=math.log2(rule.swap_decay) if rule.swap_period else None,
        LOG2_BETA1=_log2(rule.beta1) if by_row else None,
        LOG2_BETA2=_log2(rule.beta2) if by_row else None,
    )


def _log2(beta: float) -> float:
    return math.log2(beta) if beta > 0 else _NEVER


@triton.jit(do_not_specialize=["n", "stamp", "now"])
def _update_kernel(
    values, state, slots, gradients, version, last_update, period, updates, refused,
    n, value_stride, state_stride, lr, keep, l2, clip, eps, rate1, rate2, floor, step_size, stamp, now,
    KIND: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr,
    CLIP: tl.constexpr, EPS_INSIDE: tl.constexpr, SWAP_LOG2: tl.constexpr,
    LOG2_BETA1: tl.constexpr, LOG2_BETA2: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK_DIM)
    slot = tl.load(slots + row, mask=row < n, other=-1)
    present = slot >= 0
    wide = present[:, None] & (column < DIM)[None, :]
    g = tl.load(gradients + row[:, None] * DIM + column[None, :], mask=wide, other=0.0)
    at_value = values + slot[:, None] * value_stride + column[None, :]
    value = tl.load(at_value, mask=wide, other=0.0)  # before the norm is known, so that no load waits for another
    squares = tl.sum(g * g, axis=1)
    kept = present & (squares < float("inf"))  # a NaN is not
    tile = kept[:, None] & (column < DIM)[None, :]
    skipped = tl.sum((present & (kept == 0)).to(tl.int64), axis=0)
    if skipped > 0:
        tl.atomic_add(refused, skipped)
    if CLIP:
        norm = tl.sqrt_rn(squares)
        g = tl.where(norm > clip, tl.div_rn(clip, norm), 1.0)[:, None] * g
    g = g + l2 * value

    if KIND == "sgd":
        change = lr * g
    else:
        numerator = g
        if KIND == "rowwise_adagrad":
            at_v = (state + slot * state_stride)[:, None]
            v = tl.load(at_v, mask=present[:, None], other=0.0)
        else:
            at_v = state + slot[:, None] * state_stride + column[None, :]
            at_v = at_v + DIM if KIND == "adam" else at_v
            v = tl.load(at_v, mask=wide, other=0.0)
        if SWAP_LOG2 is not None:
            factor = _swap_factor(period + slot, kept, now, SWAP_LOG2)[:, None]
            v = tl.maximum(v * factor, tl.minimum(v, floor))  # the floor stops decay and never raises
        if KIND == "rowwise_adagrad":
            v = v + (tl.sum(g * g, axis=1) / DIM)[:, None]
            tl.debug_barrier()  # as in _swap_factor
            tl.store(at_v, v, mask=kept[:, None])
        else:
            if KIND == "adagrad":
                v = v + g * g
            elif KIND == "decayed_adagrad":
                v = rate1 * v + rate2 * (g * g)
            else:
                mean = tl.load(at_v - DIM, mask=wide, other=0.0)
                numerator = mean + rate1 * (g - mean)
                tl.store(at_v - DIM, numerator, mask=tile)
                v = v + rate2 * (g * g - v)
            tl.store(at_v, v, mask=tile)
        if LOG2_BETA1 is not None:
            step_size = lr * _correction_by_row(updates + slot, kept, LOG2_BETA1, LOG2_BETA2)[:, None]
        root = tl.sqrt_rn(v + eps) if EPS_INSIDE else tl.sqrt_rn(v) + eps
        change = tl.where(root > 0, tl.div_rn(step_size * numerator, root), 0.0)

    tl.store(at_value, keep * value - change, mask=tile)
    if version is not None:
        old = tl.load(version + slot, mask=kept, other=0)
        tl.store(version + slot, tl.where(old == -1, 2, old + 1), mask=kept)
    if last_update is not None:
        tl.store(last_update + slot, stamp, mask=kept)


@triton.jit
def _swap_factor(at_period, kept, now, SWAP_LOG2: tl.constexpr):
    """decay ** (periods since the row's), in float64; moves the row's period."""
    stands_at = tl.load(at_period, mask=kept, other=0).to(tl.uint32, bitcast=True).to(tl.int64)
    here = now.to(tl.uint32, bitcast=True).to(tl.int64)
    tl.debug_barrier()  # several warps load the field of a row, each for its own columns: none after the store
    tl.store(at_period, tl.maximum(here, stands_at).to(tl.int32), mask=kept)
    return tl.exp2(tl.maximum(here - stands_at, 0).to(tl.float64) * SWAP_LOG2).to(tl.float32)


@triton.jit
def _correction_by_row(at_updates, kept, LOG2_BETA1: tl.constexpr, LOG2_BETA2: tl.constexpr):
    """Adam's correction after one more update of the row."""
    t = tl.load(at_updates, mask=kept, other=0) + 1
    tl.debug_barrier()  # as in _swap_factor
    tl.store(at_updates, t, mask=kept)
    times = t.to(tl.uint32, bitcast=True).to(tl.float64)
    first = (1.0 - tl.exp2(times * LOG2_BETA1)).to(tl.float32)
    second = (1.0 - tl.exp2(times * LOG2_BETA2)).to(tl.float32)
    return tl.div_rn(tl.sqrt_rn(second), first)
