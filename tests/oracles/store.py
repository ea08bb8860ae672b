"""The slow twin of the RAM tier: the same operations on a plain dict, one row after the other.

Arithmetic is float64; a row is rounded to float32 when it is stored, as the native rows are. Duplicates are summed in
float64 too, so tests give gradients whose float32 sums are exact. SWAP is eager here: when the period moves, every row
decays at once; a native row decays when it is next changed (`settled` brings it up to date).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hotrow.config import Table
from hotrow.optim.sparse import Adam
from oracles import optimizers

F32 = NDArray[np.float32]
FirstValues = Callable[[NDArray[np.uint64], F32], object]


@dataclass
class TwinRow:
    value: F32
    state: F32
    version: int = 1
    last_update: int = 0
    clock: int = 0
    last_seen: int = 0
    updates: int = 0


@dataclass(frozen=True)
class TwinApplied:
    rows: int
    refused: int
    absent: int


@dataclass
class TwinTier:
    """Rows of `table`. First values come from `first_values`, which has tests of its own."""

    table: Table
    first_values: FirstValues
    rows: dict[int, TwinRow] = field(default_factory=dict)
    period: int = 0
    now: int = 0  # ticks: lookups, or 1024 samples each where they are told
    created: int = 0
    erased: int = 0
    refused: int = 0
    absent: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    def find(self, keys: Iterable[int]) -> tuple[F32, set[int]]:
        """Values per key, NaN where absent, and the absent keys."""
        keys = list(keys)
        out = np.full((len(keys), self.table.dim), np.nan, np.float32)
        for i, key in enumerate(keys):
            if key in self.rows:
                out[i] = self.rows[key].value
        return out, {key for key in keys if key not in self.rows}

    def find_or_init(self, keys: Iterable[int], samples: int | None = None) -> tuple[F32, set[int]]:
        """Values per key and the keys that were created for it."""
        keys = list(keys)
        fresh = {key for key in keys if key not in self.rows}
        if samples is None:
            self.now += 1
        else:
            self.now = max(self.now, samples // 1024)
            self._move_period(samples)
        for key in fresh:
            self._create(key)
        for key in keys:
            self.rows[key].last_seen = self.now
        return self.find(keys)[0], fresh

    def apply(
        self,
        keys: Iterable[int],
        gradients: F32,
        *,
        step: int = 0,
        samples: int = 0,
        weights: F32 | None = None,
        rows: NDArray[np.int64] | None = None,
    ) -> TwinApplied:
        """One update per unique key with the weighted sum of its gradients."""
        keys = list(keys)
        self._move_period(samples)
        taken = gradients if rows is None else gradients[rows]
        sums = _summed(keys, taken, np.ones(len(keys), np.float32) if weights is None else weights)
        present = {key: total for key, total in sums.items() if key in self.rows}
        accepted = {key: total for key, total in present.items() if not optimizers.is_refused(total)}
        for key, total in accepted.items():
            self._update(self.rows[key], total.astype(np.float64), step)
        return self._counted(len(accepted), len(present) - len(accepted), len(sums) - len(present))

    def add(
        self,
        keys: Iterable[int],
        values: F32,
        state: F32 | None = None,
        *,
        step: int = 0,
        samples: int = 0,
        clocks: NDArray[np.uint32] | None = None,
    ) -> TwinApplied:
        """Add changes of value and state; the clock becomes the larger of the row's and the caller's.

        A change from an earlier period is decayed to the table's, border by border, as if it had come in its time.
        """
        keys = list(keys)
        self._move_period(samples)
        ended = self._periods_since(samples)
        ones = np.ones(len(keys), np.float32)
        sums = _summed(keys, values if state is None else np.hstack([values, state]), ones)
        present = {key: total for key, total in sums.items() if key in self.rows}
        accepted = {key: total for key, total in present.items() if not optimizers.is_refused(total)}
        for key, total in accepted.items():
            row = self.rows[key]
            row.value = _stored(row.value + total[: self.table.dim])
            if state is not None:
                change = total[self.table.dim :].astype(np.float64)
                row.state = _stored(row.state + optimizers.decayed(self.table.optimizer, change, self.table.dim, ended))
            self._changed(row, step)
        for i, key in enumerate(keys):
            if clocks is not None and key in accepted:
                self.rows[key].clock = max(self.rows[key].clock, int(clocks[i]))
        return self._counted(len(accepted), len(present) - len(accepted), len(sums) - len(present))

    def put(self, keys: Iterable[int], values: F32, state: F32 | None = None) -> None:
        """Insert or overwrite rows. What is not given is kept, or starts as in a fresh row with that value."""
        for i, key in enumerate(keys):
            value = values[i].astype(np.float64)
            if key not in self.rows:
                state_now = self._first_state(values[i])
                self.rows[key] = TwinRow(values[i].copy(), state_now, version=0, last_seen=self.now)
                self.created += 1
            row = self.rows[key]
            old_state = row.state.astype(np.float64)
            row.value = _stored(value)
            row.state = _stored(optimizers.state_put_under(self.table.optimizer, value, old_state))
            if state is not None:
                row.state = state[i].copy()
            row.version += 1
            row.last_seen = self.now

    def touch(self, keys: Iterable[int], samples: int) -> int:
        """Say that the rows were seen after `samples` samples; return how many are present."""
        self.now = max(self.now, samples // 1024)
        self._move_period(samples)
        present = {key for key in keys if key in self.rows}
        for key in present:
            self.rows[key].last_seen = self.now
        return len(present)

    def erase(self, keys: Iterable[int]) -> int:
        gone = [key for key in set(keys) if self.rows.pop(key, None) is not None]
        self.erased += len(gone)
        return len(gone)

    def versions(self, keys: Iterable[int]) -> list[int]:
        return [self.rows[key].version if key in self.rows else 0 for key in keys]

    def clocks(self, keys: Iterable[int]) -> list[int]:
        return [self.rows[key].clock if key in self.rows else 0 for key in keys]

    def last_updates(self, keys: Iterable[int]) -> list[int]:
        return [self.rows[key].last_update if key in self.rows else 0 for key in keys]

    def export(self) -> dict[int, TwinRow]:
        return dict(self.rows)

    def settled(self, state: F32, period: int) -> F32:
        """The state of a native row that was last decayed to `period`, decayed to the twin's period."""
        spec = self.table.optimizer
        return _stored(optimizers.decayed(spec, state.astype(np.float64), self.table.dim, self.period - period))

    def _create(self, key: int) -> None:
        value = np.empty((1, self.table.dim), np.float32)
        self.first_values(np.array([key], np.uint64), value)
        self.rows[key] = TwinRow(value[0], self._first_state(value[0]))
        self.created += 1

    def _first_state(self, value: F32) -> F32:
        return _stored(optimizers.first_state(self.table.optimizer, value.astype(np.float64)))

    def _move_period(self, samples: int) -> None:
        swap = optimizers.swap_of(self.table.optimizer)
        if swap is None or samples // swap.period <= self.period:
            return
        moved, self.period = samples // swap.period - self.period, samples // swap.period
        for row in self.rows.values():
            state = row.state.astype(np.float64)
            row.state = _stored(optimizers.decayed(self.table.optimizer, state, self.table.dim, moved))

    def _periods_since(self, samples: int) -> int:
        swap = optimizers.swap_of(self.table.optimizer)
        return 0 if swap is None else self.period - samples // swap.period

    def _update(self, row: TwinRow, gradient: NDArray[np.float64], step: int) -> None:
        spec = self.table.optimizer
        row.updates += 1
        t = step + 1 if isinstance(spec, Adam) and spec.correction == "global" else row.updates
        value, state = row.value.astype(np.float64), row.state.astype(np.float64)
        value, state = optimizers.updated(spec, value, state, gradient, t=t)
        row.value, row.state = _stored(value), _stored(state)
        self._changed(row, step)

    def _changed(self, row: TwinRow, step: int) -> None:
        row.version += 1
        row.last_update = step + 1

    def _counted(self, rows: int, refused: int, absent: int) -> TwinApplied:
        self.refused += refused
        self.absent += absent
        return TwinApplied(rows, refused, absent)


def _summed(keys: list[int], gradients: F32, weights: F32) -> dict[int, F32]:
    sums: dict[int, NDArray[np.float64]] = {}
    with np.errstate(invalid="ignore", over="ignore"):
        for key, gradient, weight in zip(keys, gradients, weights, strict=True):
            sums[key] = sums.get(key, np.zeros(len(gradient))) + np.float64(weight) * gradient.astype(np.float64)
        return {key: total.astype(np.float32) for key, total in sums.items()}


def _stored(numbers: NDArray[np.float64] | F32) -> F32:
    return numbers.astype(np.float32)
