"""What cached rows hold, on a device: value and state by slot, as they are now and as they were fetched (the base).

Only arithmetic is here; which rows are where, and which of them have changes, `RowIndex` knows.

The base of a row without changes is the row itself, so an update copies nothing. With N workers that are expected to
update a row at the same time, an accumulator v of Adagrad is kept as v / N: it grows by the own gradients alone, which
are what a write-back sends, and the step is that of v (`on_own_part`).
"""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from hotrow.cache.device_copies import DeviceCopies
from hotrow.cache.row_index import I64
from hotrow.errors import ConfigError
from hotrow.kernels.pool import pool
from hotrow.kernels.update import RowFields, UpdateRule, update_rows
from hotrow.kernels.update_rule import signed
from hotrow.store.arrays import Flags, Floats, Integers

QUAD = 4  # floats: rows begin at multiples of 16 bytes
GROWTH = 16  # one part in so many, where more rows are in use than there is room for


def on_own_part(rule: UpdateRule, workers: int) -> UpdateRule:
    """The same steps for an accumulator that is kept as one part in `workers`."""
    if rule.kind == "sgd" or workers == 1:
        return rule
    root = math.sqrt(workers)
    eps = rule.eps / (workers if rule.eps_inside else root)
    return replace(rule, lr=rule.lr / root, decay=rule.decay * root, eps=eps)  # lr times decay stays


def row_floats(rule: UpdateRule, dim: int) -> int:
    """Floats of a row, and of its base."""
    return -(-(dim + rule.state_dim(dim)) // QUAD) * QUAD


def row_bytes(rule: UpdateRule, dim: int) -> int:
    """On the device, everything counted."""
    return 8 * row_floats(rule, dim) + 4 * (3 if rule.swap_period else 1)


def unsigned(field: Tensor) -> Tensor:
    """The uint32 whose bits an int32 has, as int64."""
    return field.long() & 0xFFFFFFFF


class DeviceColumns:
    """Slots of a call are distinct and not negative, where nothing else is said."""

    def __init__(self, dim: int, rule: UpdateRule, workers: int, rows: int, device: torch.device) -> None:
        self.copies = DeviceCopies(device)
        self._dim, self._end, self._workers = dim, dim + rule.state_dim(dim), workers
        self._rule = on_own_part(rule, workers)
        self._calls = self._samples = 0
        self._written = self.copies.mark()
        self._now, self._base = (self._empty(rows, row_floats(rule, dim)) for _ in range(2))
        self._stamp = self._numbers(rows)  # the number of a row's last update
        self._period, self._base_period = (self._numbers(rows if rule.swap_period else 0) for _ in range(2))

    @property
    def rows(self) -> int:
        """With room for them."""
        return len(self._now)

    @property
    def bytes(self) -> int:
        """Of memory on the device."""
        return sum(each.nbytes for each in (self._now, self._base, self._stamp, self._period, self._base_period))

    def reserve(self, rows: int) -> None:
        """Make room: more rows may be in use than the capacity has."""
        if rows <= self.rows:
            return
        to = max(rows, self.rows + self.rows // GROWTH)
        self._now = self._grown(self._now, to)  # one by one: the old one is released before the next is made
        self._base = self._grown(self._base, to)
        self._stamp = self._grown(self._stamp, to)
        if self._rule.swap_period:
            self._period = self._grown(self._period, to)
            self._base_period = self._grown(self._base_period, to)
        self._written = self.copies.mark()

    def release(self) -> None:
        """Give the memory back."""
        self._now, self._base, self._stamp = self._now[:0].clone(), self._base[:0].clone(), self._stamp[:0].clone()
        self._period, self._base_period = self._period[:0].clone(), self._base_period[:0].clone()

    def read(self, slots: I64, default: float) -> Tensor:
        """Values [slots, dim], `default` in each element where a slot is negative."""
        (there,) = self.copies.up([slots])
        rows = pool(self._now[:, : self._dim], there)
        if default and (slots < 0).any():
            rows[there < 0] = default
        return rows

    def whole(self, slots: I64) -> tuple[Floats, Floats, Integers]:
        """Values, state and SWAP periods."""
        with self.copies.beside(self._written):
            (there,) = self.copies.up([slots])
            rows = self._now[there]
            values, state = rows[:, : self._dim], rows[:, self._dim : self._end] * self._workers
            return self._down(values, state, there)

    def update(self, slots: I64, gradients: Tensor, weights: Floats, *, samples: int, lr_scale: float) -> Flags:
        """Update rows with gradients times their weights; whether each was. Negative slots are left out."""
        self._calls += 1
        self._samples = max(self._samples, samples)
        factors = weights[slots >= 0]
        if len(factors) and (factors == factors[0]).all():
            (there,), factor = self.copies.up([slots]), float(factors[0])
            gradients = gradients if factor == 1 else gradients * factor
        else:
            there, of_rows = self.copies.up([slots, weights])
            gradients = gradients * of_rows[:, None]
        values, state = self._now[:, : self._dim], self._now[:, self._dim : self._end]
        update_rows(
            self._rule,
            values,
            state,
            there,
            gradients,
            RowFields(last_update=self._stamp, period=self._period if self._rule.swap_period else None),
            step=self._calls,
            samples=self._samples,
            lr_scale=lr_scale,
        )
        self._written = self.copies.mark()
        with self.copies.beside(self._written):
            stamped = self._stamp[there.clamp(min=0)] == signed(self._calls + 1)
            (updated,) = self.copies.down([stamped & (there >= 0)])
        return updated

    def changes(self, slots: I64) -> tuple[Floats, Floats, Integers]:
        """Changes of value and of the own part of the state, and the SWAP period of that."""
        with self.copies.beside(self._written):  # the stream that trains may be in the middle of another batch
            (there,) = self.copies.up([slots])
            base = self._base[there]
            if self._rule.swap_period:
                to = unsigned(self._period[there])
                base[:, self._dim : self._end] *= self._decay(self._base_period[there], to)
            change = self._now[there] - base
            return self._down(change[:, : self._dim], change[:, self._dim : self._end], there)

    def rebase(self, slots: I64) -> None:
        """Rows count as fetched as they are now."""
        (there,) = self.copies.up([slots])
        self._base[there] = self._now[there]
        if self._rule.swap_period:
            self._base_period[there] = self._period[there]
        self._written = self.copies.mark()

    def advance(self, periods: Integers) -> None:
        """SWAP periods of the server: an update that comes late counts in the latest one."""
        self._samples = max(self._samples, int(periods.max(initial=0)) * self._rule.swap_period)

    def fill(self, slots: I64, changed: Flags, values: Floats, state: Floats, periods: Integers | None) -> None:
        """Rows of the server become the base of those here. Changes of `changed` rows stay on top of it.

        States of different SWAP periods are brought to the latest.
        """
        given = [np.zeros(len(slots), np.uint32) if periods is None else periods] if self._rule.swap_period else []
        there, with_changes, value, whole_state, *of_server = self.copies.up(
            [slots, changed.astype(np.uint32), values, state, *given]
        )
        base = self._now.new_zeros(len(slots), self._now.shape[1])
        base[:, : self._dim] = value
        base[:, self._dim : self._end] = whole_state if self._workers == 1 else whole_state / self._workers
        now = base
        if changed.any():
            now = self._with_changes(base, there, with_changes != 0, of_server)
        self._now[there], self._base[there] = now, base
        for period in of_server:
            self._period[there] = self._base_period[there] = period
        self._written = self.copies.mark()

    def _with_changes(self, base: Tensor, there: Tensor, changed: Tensor, of_server: list[Tensor]) -> Tensor:
        """Rows with their changes on top of a new base, which is decayed to their period, as `of_server` is."""
        now, old = self._now[there], self._base[there]
        state = slice(self._dim, self._end)
        for period in of_server:
            of_row = self._period[there]
            to = torch.where(changed, torch.maximum(unsigned(period), unsigned(of_row)), unsigned(period))
            base[:, state] *= self._decay(period, to)
            now[:, state] *= self._decay(of_row, to)
            old[:, state] *= self._decay(self._base_period[there], to)
            period.copy_(to)
        return torch.where(changed[:, None], base + (now - old), base)

    def _decay(self, periods: Tensor, to: Tensor) -> Tensor:
        """What state of these periods is multiplied by to be of later ones: [rows, 1]."""
        behind = (to - unsigned(periods)).clamp(min=0)
        factor: Tensor = self._rule.swap_decay ** behind.double()
        return factor.float()[:, None]

    def _down(self, values: Tensor, state: Tensor, there: Tensor) -> tuple[Floats, Floats, Integers]:
        if self._rule.swap_period:
            value, whole_state, periods = self.copies.down([values, state, self._period[there]])
            return value, whole_state, periods
        value, whole_state = self.copies.down([values, state])
        return value, whole_state, np.zeros(len(there), np.uint32)

    def _grown(self, column: Tensor, rows: int) -> Tensor:
        wider = column.shape[1:]
        grown = self._empty(rows, *wider) if wider else self._numbers(rows)
        grown[: len(column)] = column
        return grown

    def _empty(self, rows: int, floats: int) -> Tensor:
        return self._allocated(rows, (floats,), torch.float32)

    def _numbers(self, rows: int) -> Tensor:
        return self._allocated(rows, (), torch.int32)

    def _allocated(self, rows: int, wide: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        try:
            return torch.zeros(rows, *wide, dtype=dtype, device=self.copies.device)
        except torch.OutOfMemoryError as full:
            raise ConfigError(
                f"Cache.capacity: {rows:,} rows on {self.copies.device} find no room there ({full}): give less, or "
                "memory='host'"
            ) from None
