"""Changes of rows against the base with which they were fetched: what a write-back sends.

Values add up, and so does the state of SGD (none), Adagrad and row-wise Adagrad. Under SWAP a state is of a period and
decays by a factor for each later one, so states are brought to one period before they are added or subtracted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotrow.cache.clocks import ClockRule, after_write_back
from hotrow.optim.sparse import Swap
from hotrow.store.arrays import Flags, Floats, Integers, Keys
from hotrow.store.rows import Rows

I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """Changes of rows, each key once. `state` is of the row's period."""

    keys: Keys
    values: Floats
    state: Floats
    clocks: Integers  # current clock of the worker
    updates: Integers  # that the change is made of
    periods: Integers
    slots: I64 | None = None  # where the rows are, of rows that lie beside their index

    def __len__(self) -> int:
        return len(self.keys)

    def some(self, which: Flags | I64 | slice) -> "Changes":
        """Those of a mask, or of places; a slice shares their memory."""
        state, periods = self.state[which], self.periods[which]
        slots = None if self.slots is None else self.slots[which]
        clocks, updates = self.clocks[which], self.updates[which]
        return Changes(self.keys[which], self.values[which], state, clocks, updates, periods, slots)


def periods_of(rows: Rows) -> Integers:
    """The SWAP period of each row's state; zeros without SWAP."""
    return rows.fields["period"] if "period" in rows.fields else np.zeros(len(rows.keys), np.uint32)


def decayed(state: Floats, periods: Integers, to: Integers | int, swap: Swap | None) -> Floats:
    """State of earlier periods as it is at the period `to`."""
    if swap is None or not state.size:
        return state
    behind: I64 = np.asarray(to, np.int64) - periods.astype(np.int64)
    if not behind.any():
        return state
    return state * np.power(swap.decay, behind).astype(np.float32)[:, None]


def no_changes(dim: int, state_dim: int) -> Changes:
    """Changes of no row."""
    none = np.empty(0, np.uint32)
    return Changes(
        np.empty(0, np.uint64), np.empty((0, dim), np.float32), np.empty((0, state_dim), np.float32), none, none, none
    )


def of_one_period(changes: Changes, samples: int, swap: Swap | None) -> tuple[Changes, int]:
    """The same changes with all state of one period, and samples that lie in it: `samples`, or more."""
    if swap is None or not len(changes):
        return changes, samples
    to = max(samples // swap.period, int(changes.periods.max()))
    state = decayed(changes.state, changes.periods, to, swap)
    periods = np.full(len(changes), to, np.uint32)
    whole = Changes(changes.keys, changes.values, state, changes.clocks, changes.updates, periods)
    return whole, max(samples, to * swap.period)


def with_changes(rows: Rows, changes: Changes, rule: ClockRule, swap: Swap | None) -> Rows:
    """Rows of the server as they are after a write-back that is on its way; keys of the rows and changes occur once."""
    _, at, which = np.intersect1d(rows.keys, changes.keys, assume_unique=True, return_indices=True)
    if not len(at):
        return rows
    values, state, fields = rows.values.copy(), rows.state.copy(), {name: f.copy() for name, f in rows.fields.items()}
    of_rows = periods_of(rows)[at]
    to = np.maximum(of_rows, changes.periods[which])
    values[at] += changes.values[which]
    state[at] = decayed(state[at], of_rows, to, swap) + decayed(changes.state[which], changes.periods[which], to, swap)
    if "period" in fields:
        fields["period"][at] = to
    clocks, of_changes = fields["clock"][at].astype(np.int64), changes.clocks[which].astype(np.int64)
    fields["clock"][at] = after_write_back(rule, clocks, of_changes, changes.updates[which].astype(np.int64))
    return Rows(rows.keys, values, state, fields)
