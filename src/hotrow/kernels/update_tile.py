"""The update of a tile of rows: what `update_rows` and the fused backward end with.

The order of an update is that of the store in memory: refuse a gradient whose squared norm is not finite, clip, L2 into
the gradient, SWAP decay of the second moment, weight decay, the optimizer's rule, counters.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hotrow.errors import InputError
from hotrow.kernels.launch import block_dim, check
from hotrow.kernels.update_rule import RowFields, StepScalars, UpdateRule

_NEVER = -1e9  # log2 of a beta of 0: any power of it is 0
SCALARS = ["stamp", "now"]  # arguments that no kernel is compiled for


class TableRows:
    """Rows of a table, in place, and the rule that updates them; checked when made.

    values float32 [rows, dim] and state float32 [rows, state_dim] may be columns of one larger tensor; all counters
    that are there have the same stride. `refused` int64 [1] counts.
    """

    def __init__(
        self, who: str, rule: UpdateRule, values: Tensor, state: Tensor | None, fields: RowFields, refused: Tensor
    ) -> None:
        self.rule, self.values, self.fields, self.refused = rule, values, fields, refused
        self.state = state if rule.state_dim(values.shape[1] if values.dim() == 2 else 0) else None
        self._check(who)
        decayed, by_row = rule.kind == "decayed_adagrad", rule.counts_updates
        self._places = (
            values,
            self.state,
            fields.version,
            fields.last_update,
            fields.period if rule.swap_period else None,
            fields.updates if by_row else None,
            refused,
            values.stride(0),
            0 if self.state is None else self.state.stride(0),
            fields.stride,
        )
        self._settings = (
            rule.l2,
            rule.clip or 0.0,
            rule.eps,
            rule.rate if decayed else 1 - rule.beta1,
            1 - rule.rate if decayed else 1 - rule.beta2,
            rule.swap_floor,
        )
        self.constants: dict[str, Any] = {  # that `update_tile` is compiled for
            "KIND": rule.kind,
            "DIM": values.shape[1],
            "BLOCK_DIM": block_dim(who, values.shape[1]),
            "CLIP": rule.clip is not None,
            "EPS_INSIDE": rule.eps_inside,
            "SWAP_LOG2": math.log2(rule.swap_decay) if rule.swap_period else None,
            "LOG2_BETA1": _log2(rule.beta1) if by_row else None,
            "LOG2_BETA2": _log2(rule.beta2) if by_row else None,
        }

    def arguments(self, scalars: StepScalars) -> tuple[Any, ...]:
        """Of `update_tile`: the rows and the numbers of one update."""
        numbers = (scalars.lr, scalars.keep, *self._settings, scalars.step_size, scalars.stamp, scalars.period)
        return self._places + numbers

    def _check(self, who: str) -> None:
        check(who, "values", self.values, torch.float32, (None, None))
        rows, dim = self.values.shape
        if state_dim := self.rule.state_dim(dim):
            if self.state is None:
                raise InputError(
                    f"{who}: state is missing: {self.rule.kind} has {state_dim} floats of it beside a row of {dim}"
                )
            check(who, "state", self.state, torch.float32, (rows, state_dim))
        check(who, "refused", self.refused, torch.int64, (1,))
        for name, field in self.fields.present():
            check(who, f"fields.{name}", field, torch.int32, (rows,), strided=True)
        if len({field.stride() for _, field in self.fields.present()}) > 1:
            raise InputError(f"{who}: fields have different strides: give columns of one tensor, or a tensor each")
        self.fields.check(self.rule)


def _log2(beta: float) -> float:
    return math.log2(beta) if beta > 0 else _NEVER


@triton.jit
def update_tile(
    slot, present, g, value, column,
    values, state, version, last_update, period, updates, refused, value_stride, state_stride, field_stride,
    lr, keep, l2, clip, eps, rate1, rate2, floor, step_size, stamp, now,
    KIND: tl.constexpr, DIM: tl.constexpr,
    CLIP: tl.constexpr, EPS_INSIDE: tl.constexpr, SWAP_LOG2: tl.constexpr,
    LOG2_BETA1: tl.constexpr, LOG2_BETA2: tl.constexpr,
):  # fmt: skip
    """Update the rows at distinct slots, where `present`, with gradients g; `value` is what they hold."""
    wide = present[:, None] & (column < DIM)[None, :]
    at_value = values + slot[:, None] * value_stride + column[None, :]
    squares = tl.sum(g * g, axis=1)
    kept = present & (squares < float("inf"))  # a NaN is not
    tile = kept[:, None] & (column < DIM)[None, :]
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
            factor = _swap_factor(period + slot * field_stride, kept, now, SWAP_LOG2)[:, None]
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
            step_size = lr * _correction_by_row(updates + slot * field_stride, kept, LOG2_BETA1, LOG2_BETA2)[:, None]
        root = tl.sqrt_rn(v + eps) if EPS_INSIDE else tl.sqrt_rn(v) + eps
        change = tl.where(root > 0, tl.div_rn(step_size * numerator, root), 0.0)

    tl.store(at_value, keep * value - change, mask=tile)
    tl.atomic_add(refused + 0 * slot, tl.full(slot.shape, 1, tl.int64), mask=present & (kept == 0), sem="relaxed")
    if version is not None:
        old = tl.load(version + slot * field_stride, mask=kept, other=0)
        tl.store(version + slot * field_stride, tl.where(old == -1, 2, old + 1), mask=kept)
    if last_update is not None:
        tl.store(last_update + slot * field_stride, stamp, mask=kept)


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
