"""A table in plain torch that follows a table in GPU memory call by call, and says where they differ.

It has a row for each key of a small set. Which rows are evicted is the choice of the table: the twin checks that the
choice is allowed, and that evicted rows leave as they were.
"""

from typing import Any

import torch
from torch import Tensor

from hotrow.kernels.update import RowFields, StepScalars, reference_update
from hotrow.store.hbm import HbmRows, HbmSpec

LRU_TICKS = 127  # rows that were not seen for longer count as equally old
LFU_CALLS = 255


class TwinMismatch(AssertionError):
    """A table does not do what its twin does."""


def require(condition: object, sentence: str) -> None:
    if not condition:
        raise TwinMismatch(sentence)


def check_close(got: Tensor, wanted: Tensor) -> None:
    """Floats after tens of updates: one update more or less changes values by about lr."""
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


class TableTwin:
    """Rows of `keys`, by their place in it (their id)."""

    def __init__(self, spec: HbmSpec, keys: Tensor, one_bucket: bool = False) -> None:
        count, device = len(keys), keys.device
        self.spec, self.keys, self.one_bucket = spec, keys, one_bucket
        self._sorted, self._order = keys.sort()
        self.there = torch.zeros(count, dtype=torch.bool, device=device)
        self.values = torch.zeros(count, spec.dim, device=device)
        self.state = torch.zeros(count, spec.state_dim, device=device)
        self.fields = {name: torch.zeros(count, dtype=torch.int32, device=device) for name in spec.fields}
        self.first = torch.full((count, spec.dim), torch.nan, device=device)  # first values, once they were seen
        self.calls = 0  # that see rows
        self.seen = torch.zeros(count, dtype=torch.int64, device=device)  # LRU: last call; LFU: number of calls
        self.period = 0

    def mask(self, ids: Tensor) -> Tensor:
        """bool [keys], set at these ids."""
        return torch.zeros_like(self.there).index_fill_(0, ids, True)

    def follow(self, plan: Any, ids: Tensor, held: Tensor) -> Tensor:
        """Take over what a call did that makes rows; returns which rows are new. `held`: rows of pinned plans."""
        asked, before = self.mask(ids), self.there.clone()
        present = self.mask(ids[plan.present])
        require(torch.equal(present[ids], plan.present), "equal keys have different rows")
        used = asked | held
        evicted = self._evicted(plan.evicted, used)
        away, made = asked & ~present, asked & present & ~before
        require(not (away & before).any(), "a key that had a row was turned away")
        require(int(away.sum()) == plan.turned_away, f"{int(away.sum())} keys have no row: {plan.turned_away} counted")
        self.there = (before & ~evicted) | made
        self._check_choice(evicted, away, used)
        self._make(made)
        self.see(ids)
        return made

    def _evicted(self, rows: HbmRows | None, used: Tensor) -> Tensor:
        if rows is None:
            return torch.zeros_like(used)
        self.check_rows(rows)
        evicted = self.mask(self.ids_of(rows.keys))
        require(not (evicted & used).any(), "a row in use was evicted")
        return evicted

    def _check_choice(self, evicted: Tensor, away: Tensor, used: Tensor) -> None:
        """In a table of one bucket the lowest scores go, and only when all slots are taken."""
        if not self.one_bucket or not (evicted | away).any():
            return
        require(int(self.there.sum()) == self.spec.slots, "rows were evicted or turned away beside free slots")
        kept = self.there & ~used
        require(not away.any() or not kept.any(), "a key was turned away beside rows that are not in use")
        if not evicted.any() or not kept.any():
            return
        if self.spec.eviction == "lru":
            tick = self.spec.calls_per_tick
            ages = ((self.calls + 1) // tick - self.seen // tick).clamp(max=LRU_TICKS)
            require(ages[evicted].min() >= ages[kept].max(), "LRU evicted a row that was seen after one that stays")
        else:
            calls = self.seen.clamp(max=LFU_CALLS)
            require(
                calls[evicted].max() <= calls[kept].min(), "LFU evicted a row that more calls saw than one that stays"
            )

    def _make(self, made: Tensor) -> None:
        self.state[made] = self.spec.rule.initial if "adagrad" in self.spec.rule.kind else 0.0
        for name, column in self.fields.items():
            column[made] = {"version": 1, "period": self.period}.get(name, 0)
        self.seen[made] = 0

    def see(self, ids: Tensor) -> None:
        """A call sees the rows of these ids, once each."""
        self.calls += 1
        rows = self.mask(ids) & self.there
        self.seen[rows] = self.calls if self.spec.eviction == "lru" else self.seen[rows] + 1

    def learn_first_values(self, made: Tensor, ids: Tensor, out: Tensor) -> None:
        """New rows have the first values that they had before; unseen ones are as `init` says."""
        shown = torch.empty_like(self.first).index_copy_(0, ids, out)
        unknown = made & self.first.isnan().any(1)
        self.first[unknown] = shown[unknown]
        amount, fresh = self.spec.amount, shown[unknown]
        if self.spec.init == "constant":
            require((fresh == amount).all(), "a first value is not the constant")
        else:  # 9 standard deviations: beyond them is less than one number in 2^62
            bound = amount if self.spec.init == "uniform" else 9 * amount
            require((fresh.abs() <= bound).all(), f"a first value is beyond {bound}")
            require(2 * len(torch.unique(fresh)) >= fresh.numel(), "many first values are equal")
        self.values[made] = self.first[made]

    def apply(self, ids: Tensor, gradients: Tensor, scalars: StepScalars) -> tuple[int, int, int]:
        """An update with float64 gradients of each key; returns rows updated, refused and absent."""
        sums = torch.zeros_like(self.values, dtype=torch.float64).index_add_(0, ids, gradients).float()
        asked = self.mask(ids).nonzero().squeeze(1)
        slots, refused = torch.where(self.there[asked], asked, -1), torch.zeros_like(asked[:1])
        counters = RowFields(*(self.fields.get(name) for name in ("version", "last_update", "period", "updates")))
        state = self.state if self.spec.state_dim else None
        reference_update(self.spec.rule, self.values, state, slots, sums[asked], counters, scalars, refused)
        present = int((slots >= 0).sum())
        return present - int(refused), int(refused), len(asked) - present

    def ids_of(self, keys: Tensor) -> Tensor:
        places = torch.searchsorted(self._sorted, keys).clamp(max=len(self._sorted) - 1)
        require(torch.equal(self._sorted[places], keys), "a row has a key that was never given")
        return self._order[places]

    def check_rows(self, rows: HbmRows) -> None:
        """Whole rows, each once, are those of the twin."""
        ids = self.ids_of(rows.keys)
        require(len(torch.unique(ids)) == len(ids), "a row occurs twice")
        require(self.there[ids].all(), "a row was returned that does not exist")
        check_close(rows.values, self.values[ids])
        check_close(rows.state, self.state[ids])
        for name, column in rows.fields.items():
            require(torch.equal(column, self.fields[name][ids]), f"{name} differs")
