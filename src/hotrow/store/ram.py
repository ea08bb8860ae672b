"""Lookups and updates of rows in this process's memory, or in a segment that outlives it.

Every call takes a batch of keys, checks it, and enters native code once, without the GIL. The `LookupPlan` that a
lookup returns also serves the update of the same keys: duplicates are folded and rows are found already.
"""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np

from hotrow import _native
from hotrow.errors import InputError
from hotrow.spec import whole_number
from hotrow.store.applied import Applied
from hotrow.store.arrays import (
    ArrayLike,
    Flags,
    Floats,
    Integers,
    as_flags,
    as_integers,
    as_keys,
    as_matrix,
    as_output,
    as_weights,
)
from hotrow.store.inspection import TableInspection
from hotrow.store.rows import LookupPlan, RowsToPut

Per: TypeAlias = Literal["key", "unique"]


class RamTier(TableInspection):
    """Holds one table's rows in memory. Thread-safe, in the process that made it.

    With `keep_evicted` a plan carries the rows that were evicted for it. With a segment in the table's settings the
    rows are in it: rows that an earlier process left are used (`attached` says how many) unless `attach` is False,
    which refuses them. `close`, or the end of the program, removes the segment unless it is to be kept.

    Example:
        >>> import numpy as np
        >>> import hotrow as hr
        >>> from hotrow.store import RamTier
        >>> tier = RamTier(hr.Table(dim=2, optimizer=hr.SGD(lr=1.0), init=hr.Constant(value=0.5)))
        >>> rows = np.empty((3, 2), np.float32)
        >>> plan = tier.find_or_init(np.array([7, 7, 9]), rows)
        >>> tier.apply(plan, np.ones((3, 2), np.float32)).rows
        2
        >>> _ = tier.find(np.array([7, 9, 7]), rows)
        >>> rows[:, 0].tolist()
        [-1.5, -0.5, -1.5]
    """

    def find(self, keys: ArrayLike | LookupPlan, out: ArrayLike | None = None, *, per: Per = "key") -> LookupPlan:
        """Copy rows into `out`. Absent ones become NaN there and are counted in the batch's `absent`."""
        batch = self._batch(keys)
        count = _count(batch, per)
        buffer = None if out is None else self._output(out, count)
        batch.absent = self._native.find(batch._native, buffer, per == "unique", self.threads)
        return batch

    def find_or_init(
        self,
        keys: ArrayLike | LookupPlan,
        out: ArrayLike | None = None,
        *,
        per: Per = "key",
        samples: int | None = None,
        seen: bool = True,
        pinned: Sequence[LookupPlan] = (),
    ) -> LookupPlan:
        """As `find`, but absent rows are created with their first values, if their keys are admitted.

        Keys that are not give the table's default row and are counted in the batch's `turned_away`. `samples` counts
        all samples trained so far (expiry's clock). `seen=False` reads ahead: rows that are there keep their place in
        the order of eviction, and no key is counted for admission. Rows of the `pinned` plans, where their last lookups
        found them, are not evicted: a key whose row would need the place of one is turned away.
        """
        if not isinstance(seen, bool | np.bool_):
            raise InputError(f"seen={seen!r}: must be True or False (False reads ahead)")
        now = sample_count(samples)
        batch = self._batch(keys)
        count = _count(batch, per)
        buffer = None if out is None else self._output(out, count)
        batch.turned_away = self._native.find_or_init(
            batch._native, buffer, per == "unique", bool(seen), now, self._plans("pinned", pinned), self.threads
        )
        batch.absent = 0
        return self._with_evicted(batch)

    def read_rows(
        self,
        keys: ArrayLike | LookupPlan,
        out: ArrayLike,
        *,
        per: Per = "key",
        only: Flags | None = None,
        as_found: bool = False,
        settled: bool = True,
    ) -> LookupPlan:
        """Copy rows that exist into `out`, those of unique keys whose flag in `only` is set.

        The rest of `out` stays as it is. No row is created or seen. With `as_found` a row that was made since the last
        lookup of the plan is left out. Without `settled` an update that waits goes on waiting: its rows must not be
        among these.
        """
        batch = self._batch(keys)
        buffer = self._output(out, _count(batch, per))
        _check_as_found(as_found, batch)
        native = self._native if settled else self._unsettled
        native.read_rows(batch._native, buffer, per == "unique", _only(only, batch), bool(as_found), self.threads)
        return batch

    def apply(
        self,
        keys: ArrayLike | LookupPlan,
        gradients: ArrayLike,
        *,
        step: int = 0,
        samples: int = 0,
        weights: ArrayLike | None = None,
        rows: ArrayLike | None = None,
        per: Per = "key",
        lr_scale: float = 1.0,
        only: Flags | None = None,
        as_found: bool = False,
    ) -> Applied:
        """One optimizer update per row, with the (weighted) sum of the gradients of its keys.

        `step` is the dense step being applied, from 0; `samples` counts all samples up to and including this batch
        (SWAP's clock). `rows[i]` names the row of `gradients` that key i takes; without it key i takes row i.
        `lr_scale` multiplies the learning rate, for schedules. `only` has a flag for each unique key: the others are
        neither updated nor counted, and calls with flags that share no key give the bits of one call. With `as_found`
        a row counts only where the last lookup of the plan found it (and left it: pin the plan in later lookups): a row
        that was made since is absent.
        """
        batch = self._batch(keys)
        count = _count(batch, per)
        if per == "unique" and (weights is not None or rows is not None):
            raise InputError("per='unique': such gradients are sums already, they take neither weights nor rows")
        gradient = as_matrix("gradients", gradients, None if rows is not None else count, self.dim)
        weight = None if weights is None else as_weights("weights", weights, count)
        row = None if rows is None else as_integers("rows", rows, count)
        if row is not None and row.size and row.max() >= len(gradient):
            raise InputError(f"rows names gradient row {row.max()}, but there are only {len(gradient)}")
        _check_as_found(as_found, batch)
        when = *_when(step, samples), self._lr_scale(lr_scale)
        chosen = _only(only, batch), bool(as_found)
        return Applied(
            *self._native.apply(batch._native, gradient, weight, row, per == "unique", *when, *chosen, self.threads)
        )

    def apply_later(self, plan: LookupPlan, gradients: ArrayLike, **settings: Any) -> None:
        """An `apply` that waits: it is performed before the next call touches the table, or by `settle`.

        The gradients must not change until then. `deferred.take_results` returns its result.
        """
        self.deferred.put(lambda: self.apply(plan, gradients, **settings))

    def settle(self) -> None:
        """Perform an update that waits."""
        self.deferred.settle()

    def add(
        self,
        keys: ArrayLike | LookupPlan,
        values: ArrayLike,
        state: ArrayLike | None = None,
        *,
        step: int = 0,
        samples: int = 0,
        clocks: ArrayLike | None = None,
    ) -> Applied:
        """Add changes of value and state to the rows (a cache's write-back); clocks only ever rise.

        Changes are of the SWAP period of `samples`. Row or change, whichever is of the earlier period, is decayed
        to the other's, then they are added. Where SWAP has a floor, a change of state from an earlier period than the
        table's is refused.
        """
        batch = self._batch(keys)
        change = as_matrix("values", values, len(batch), self.dim)
        change_of_state = None if state is None else as_matrix("state", state, len(batch), self.state_dim)
        if clocks is not None and "clock" not in self.fields:
            raise InputError(f"clocks: rows of table '{self.table.name}' keep no clock, make it with clock=True")
        clock = None if clocks is None else as_integers("clocks", clocks, len(batch))
        when = _when(step, samples)
        try:
            added = self._native.add(batch._native, change, change_of_state, clock, *when, self.threads)
        except ValueError as refused:  # a change that is late for a floor: only the table knows its period
            raise InputError(str(refused)) from None
        return Applied(*added)

    def put(
        self,
        keys: ArrayLike,
        values: ArrayLike,
        state: ArrayLike | None = None,
        fields: Mapping[str, ArrayLike] | None = None,
        *,
        pinned: Sequence[LookupPlan] = (),
    ) -> LookupPlan:
        """Insert or overwrite whole rows. A column that is not given keeps its values, or starts as in a new row.

        Values that are not finite are refused, but in rows with a `version`: training may have left them. These are
        the newest; they need no admission. Rows of the `pinned` plans are not evicted for them. The returned plan has
        the rows that were evicted, and the number that found no room (`turned_away`).
        """
        return self._put_planned(self.batch(keys), values, state, fields, pinned)

    def _put_planned(
        self,
        batch: LookupPlan,
        values: ArrayLike,
        state: ArrayLike | None,
        fields: Mapping[str, ArrayLike] | None,
        pinned: Sequence[LookupPlan],
    ) -> LookupPlan:
        if batch.unique != len(batch):
            raise InputError(f"keys: {len(batch) - batch.unique} of them occur twice, give each row once")
        value, whole, columns = self._columns(len(batch), values, state, fields)
        batch.turned_away = self._native.put(
            batch._native, value, whole, columns, self._plans("pinned", pinned), self.threads
        )
        return self._with_evicted(batch)

    def put_parts(self, parts: Sequence[RowsToPut]) -> int:
        """As `put` of one part after the other, on more threads: rows of a table's partitions are put side by side.

        Returns the number of keys that found no room. All parts are checked before the first row changes.
        """
        checked = []
        for part in parts:
            keys = as_keys("keys", part.keys)
            checked.append((keys, *self._columns(len(keys), part.values, part.state, part.fields)))
        try:
            return self._native.put_parts(checked, self.threads)
        except ValueError as refused:  # a key that occurs twice: only native code looks for it
            raise InputError(str(refused)) from None

    def _columns(
        self, rows: int, values: ArrayLike, state: ArrayLike | None, fields: Mapping[str, ArrayLike] | None
    ) -> tuple[Floats, Floats | None, dict[str, Integers]]:
        """Columns of whole rows, checked."""
        value = as_matrix("values", values, rows, self.dim)
        if fields is not None and not isinstance(fields, Mapping):
            raise InputError(f"fields is a {type(fields).__name__}: give a dict of a field's name and its numbers")
        if "version" not in (fields or {}) and not np.isfinite(value).all():  # with one it goes on from where it was
            raise InputError("values holds NaN or infinity: a row cannot start from it")
        whole = None if state is None else as_matrix("state", state, rows, self.state_dim)
        for name in fields or {}:
            self._check_field(name)
        columns = {name: as_integers(name, column, rows) for name, column in (fields or {}).items()}
        if "version" in columns and not columns["version"].all():
            raise InputError("version holds a 0: rows that exist have 1 or more")
        return value, whole, columns

    def reserve(self, rows: int) -> None:
        """Make room for so many rows that are going to be put. Without effect once there were rows."""
        self._native.reserve(whole_number("rows", rows, 0, 2**62, InputError), self.threads)

    def first_values(self, keys: ArrayLike, out: ArrayLike) -> None:
        """What `find_or_init` would put into rows that are absent, without creating any."""
        ids = as_keys("keys", keys)
        self._native.first_values(ids, self._output(out, len(ids)), self.threads)

    def touch(self, keys: ArrayLike | LookupPlan, samples: int | None = None) -> int:
        """Mark rows as seen, as a lookup does; returns how many of them exist."""
        self._check_field("last_seen")
        return self._native.touch(self._batch(keys)._native, sample_count(samples), self.threads)

    def expire(self, samples: int | None = None) -> int:
        """Remove every row that was not seen for `expiry` samples; returns how many. Without expiry there are none."""
        return self._native.expire(sample_count(samples), self.threads)

    def erase(self, keys: ArrayLike | LookupPlan) -> int:
        """Remove rows; returns how many there were."""
        return self._native.erase(self._batch(keys)._native, self.threads)

    def clear(self) -> None:
        """Remove all rows."""
        self.expire()  # an export leaves out rows that are expired and not removed yet
        for chunk in self.export():
            self.erase(chunk.keys)
        self.deferred.failed = False  # no row is left that it could have missed

    def _with_evicted(self, batch: LookupPlan) -> LookupPlan:
        if self._keeps_evicted:
            fell = self._empty_rows(self._native.evicted_rows(batch._native))
            self._native.evicted(batch._native, fell.keys, fell.values, fell.state, fell.fields)
            batch.evicted = fell
        return batch

    def _plans(self, what: str, plans: Sequence[LookupPlan]) -> list[_native.Batch]:
        for plan in plans:
            if not isinstance(plan, LookupPlan) or plan._native.partitions != self.partitions:
                raise InputError(f"{what} holds {plan!r}: give plans of table {self.table.name!r}")
        return [plan._native for plan in plans]

    def _output(self, out: ArrayLike, rows: int) -> Floats:
        return as_matrix("out", as_output("out", out, 2), rows, self.dim)

    def _lr_scale(self, scale: float) -> float:
        if not isinstance(scale, Real) or not 0 <= scale <= 1e30:
            raise InputError(f"lr_scale={scale!r}: must be from 0 to 1e30 (1 leaves the learning rate as it is)")
        if scale != 1 and self.table.optimizer.name == "ftrl":  # the value follows from its z only together with lr
            raise InputError(f"lr_scale={scale!r}: FTRL's state holds for one learning rate, leave it at 1")
        return float(scale)


def _count(batch: LookupPlan, per: Per) -> int:
    if not isinstance(per, str) or per not in ("key", "unique"):
        raise InputError(f"per={per!r}: must be 'key' or 'unique'")
    return len(batch) if per == "key" else batch.unique


def _only(only: Flags | None, batch: LookupPlan) -> Flags | None:
    return None if only is None else as_flags("only", only, batch.unique)


def _check_as_found(as_found: bool, batch: LookupPlan) -> None:
    if as_found and not batch._native.looked_up:
        raise InputError("as_found: the keys have not been looked up yet: give the plan of a lookup")


def _when(step: int, samples: int) -> tuple[int, int]:
    most = 2**62
    return whole_number("step", step, 0, most, InputError), whole_number("samples", samples, 0, most, InputError)


def sample_count(samples: int | None) -> int | None:
    return None if samples is None else whole_number("samples", samples, 0, 2**63, InputError)
