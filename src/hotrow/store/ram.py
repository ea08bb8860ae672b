"""Rows in this process's memory, or in a segment that outlives it: the Python face of the native store.

Every call takes a batch of keys, checks it, and crosses into native code once, without the GIL. A `Batch` that a lookup
gave back serves the update of the same keys again: the duplicates are folded and the rows are found already.
"""

import os
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Literal, TypeAlias

import numpy as np

from hotrow import _native
from hotrow.config import Table
from hotrow.errors import ConfigError, InputError
from hotrow.spec import whole_number
from hotrow.store.arrays import (
    ArrayLike,
    Floats,
    Integers,
    Keys,
    as_integers,
    as_keys,
    as_matrix,
    as_output,
    as_weights,
)
from hotrow.store.native_spec import identity, table_spec
from hotrow.store.pushes import Pushes
from hotrow.store.rows import Applied, Attached, GoneKeys, LookupPlan, Rows, Stats
from hotrow.store.segments import refused_rows, segment_path

Per: TypeAlias = Literal["key", "unique"]


class RamTier:
    """One table's rows in memory. Safe to use from several threads at once, in the process that made it.

    With `keep_evicted` a batch carries the rows that fell out for it. With a segment in the table's settings the rows
    live there: what an earlier process left is taken over (`attached` says what was found) unless `attach` is False,
    which refuses it. `close`, or the end of the program, removes the segment unless it is to be kept.
    """

    def __init__(
        self,
        table: Table,
        *,
        threads: int = 1,
        partitions: int | None = None,
        keep_evicted: bool = False,
        attach: bool = True,
    ) -> None:
        if not isinstance(table, Table):
            raise ConfigError(f"table={table!r}: give a hotrow.Table(dim=...)")
        if not isinstance(keep_evicted, bool):
            raise ConfigError(f"keep_evicted={keep_evicted!r}: must be True or False")
        self.table = table
        self.dim = table.dim
        self.threads = whole_number("threads", threads, 1, 1024)
        if partitions is not None and (whole_number("partitions", partitions, 1, 1024) & (partitions - 1)):
            raise ConfigError(f"partitions={partitions}: must be a power of two")
        self._keeps_evicted = keep_evicted
        spec, self.partitions = table_spec(table, partitions, keep_evicted=keep_evicted)
        self.capacity_rows = spec.capacity_rows  # 0: no limit
        self.attached: Attached | None = None
        self._process = os.getpid()
        self._opened: _native.RamTier | None = self._open(spec, attach=attach)
        self.state_dim = self._native.state_dim
        self.fields: tuple[str, ...] = tuple(spec.fields)

    def _open(self, spec: _native.TableSpec, *, attach: bool) -> _native.RamTier:
        segment = self.table.segment
        if segment is None:
            return _native.RamTier(spec, None)
        path = segment_path(segment.run, self.table.name, segment.directory, huge=segment.huge)
        agreed = identity(self.table, spec, self.partitions)
        native = _native.RamTier(spec, (str(path), agreed, segment.huge, segment.keep))
        if native.attached and not attach:  # its lock is held here: no rows can come between the check and the refusal
            native.leave_segment()
            native.close_segment()
            raise refused_rows(path, path.stat().st_size, "left behind")
        if native.attached:
            start = time.perf_counter()
            rows, dropped = native.attach(self.threads)
            self.attached = Attached(rows, dropped, time.perf_counter() - start, native.push_partly())
        self._finalizer = weakref.finalize(self, _end, native)
        return native

    @property
    def _native(self) -> _native.RamTier:
        if self._opened is None:
            raise InputError(f"table {self.table.name!r} is closed: make a new tier")
        if os.getpid() != self._process:  # a fork copies locks as they were held, and rows in the middle of a change
            raise InputError(
                f"table {self.table.name!r} belongs to process {self._process}: a forked child cannot use it; "
                f"open a table in the child, or start the child by spawn"
            )
        return self._opened

    @property
    def pushes(self) -> Pushes:
        """The log of applied pushes; it lives in the segment."""
        if self.table.segment is None:
            raise InputError(f"pushes: table {self.table.name!r} has no segment to keep them in: give it one")
        return Pushes(lambda: self._native)

    @property
    def samples(self) -> int:
        """The latest count of samples that the table was told, down to a tick; it outlives the process in a segment."""
        return self._native.samples

    def close(self, *, leave: bool = False) -> None:
        """Give the rows up, and remove their segment unless it is to be kept. The tier cannot be used after it.

        With `leave` the segment stays, whatever its settings say: the next process attaches to it.
        """
        if self._opened is not None and self.table.segment is not None:
            if leave and os.getpid() == self._process:
                self._opened.leave_segment()
            self._finalizer()
        self._opened = None

    def __len__(self) -> int:
        return len(self._native)

    def batch(self, keys: ArrayLike) -> LookupPlan:
        """Plan a batch: group its keys by partition and fold duplicates."""
        return LookupPlan(self._native.batch(as_keys("keys", keys), self.threads))

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
    ) -> LookupPlan:
        """As `find`, but absent rows are created with their first values, if their keys are let in.

        Keys that are not give the table's default row and are counted in the batch's `turned_away`. `samples` counts
        all samples trained so far (expiry's clock). `seen=False` reads ahead: rows that are there keep their place in
        the order of eviction, and nobody is counted for admission.
        """
        if not isinstance(seen, bool | np.bool_):
            raise InputError(f"seen={seen!r}: must be True or False (False reads ahead)")
        now = _samples(samples)
        batch = self._batch(keys)
        count = _count(batch, per)
        buffer = None if out is None else self._output(out, count)
        batch.turned_away = self._native.find_or_init(
            batch._native, buffer, per == "unique", bool(seen), now, self.threads
        )
        batch.absent = 0
        return self._with_evicted(batch)

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
    ) -> Applied:
        """One optimizer update per row, with the (weighted) sum of the gradients of its keys.

        `step` is the dense step being applied, from 0; `samples` counts all samples up to and including this batch
        (SWAP's clock). `rows[i]` names the row of `gradients` that key i takes; without it key i takes row i.
        `lr_scale` multiplies the learning rate, for schedules.
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
        when = *_when(step, samples), self._lr_scale(lr_scale)
        return Applied(*self._native.apply(batch._native, gradient, weight, row, per == "unique", *when, self.threads))

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

        Changes stand at the SWAP period of `samples`. Row or change, whichever stands at the earlier period, is decayed
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
    ) -> LookupPlan:
        """Insert or overwrite whole rows. What is not given keeps what it was, or starts as in a fresh row.

        Rows that are put are the newest; they pass by admission. The batch that comes back says what fell out for them,
        and how many found no room in a table that evicts nobody (`turned_away`).
        """
        batch = self.batch(keys)
        if batch.unique != len(batch):
            raise InputError(f"keys: {len(batch) - batch.unique} of them stand there twice, give each row once")
        value = as_matrix("values", values, len(batch), self.dim)
        if not np.isfinite(value).all():
            raise InputError("values holds NaN or infinity: a row cannot start from it")
        whole = None if state is None else as_matrix("state", state, len(batch), self.state_dim)
        if fields is not None and not isinstance(fields, Mapping):
            raise InputError(f"fields is a {type(fields).__name__}: give a dict of a field's name and its numbers")
        for name in fields or {}:
            self._check_field(name)
        columns = {name: as_integers(name, column, len(batch)) for name, column in (fields or {}).items()}
        if "version" in columns and not columns["version"].all():
            raise InputError("version holds a 0: rows that exist have 1 or more")
        batch.turned_away = self._native.put(batch._native, value, whole, columns, self.threads)
        return self._with_evicted(batch)

    def first_values(self, keys: ArrayLike, out: ArrayLike) -> None:
        """What `find_or_init` would put into rows that are absent, without creating any."""
        ids = as_keys("keys", keys)
        self._native.first_values(ids, self._output(out, len(ids)), self.threads)

    def versions(self, keys: ArrayLike | LookupPlan) -> Integers:
        """How often each row changed, counted from 1; 0 where the row is absent."""
        return self.read(keys, "version")

    def clocks(self, keys: ArrayLike | LookupPlan) -> Integers:
        """HET's clock of each row; 0 where the row is absent."""
        return self.read(keys, "clock")

    def last_updates(self, keys: ArrayLike | LookupPlan) -> Integers:
        """The step after which each row last changed; 0 where it never did or the row is absent."""
        return self.read(keys, "last_update")

    def read(self, keys: ArrayLike | LookupPlan, field: str) -> Integers:
        """One field of each row, 0 where the row is absent."""
        self._check_field(field)
        batch = self._batch(keys)
        out = np.empty(len(batch), np.uint32)
        self._native.read(batch._native, field, out, self.threads)
        return out

    def touch(self, keys: ArrayLike | LookupPlan, samples: int | None = None) -> int:
        """Mark rows as seen, as a lookup does; returns how many of them exist."""
        self._check_field("last_seen")
        return self._native.touch(self._batch(keys)._native, _samples(samples), self.threads)

    def expire(self, samples: int | None = None) -> int:
        """Remove every row that nobody saw for `expiry` samples; returns how many. Without expiry there are none."""
        return self._native.expire(_samples(samples), self.threads)

    def take_evicted_keys(self) -> GoneKeys:
        """Keys whose rows were evicted or expired since the last call, for an export that has to follow."""
        keys, complete = self._native.take_gone_keys()
        return GoneKeys(np.frombuffer(keys, np.uint64), complete)

    def eviction_order(self, partition: int = 0) -> Keys:
        """The keys of a partition, the first to be evicted first."""
        if self.table.policy not in ("lru", "lfu"):
            raise InputError(f"eviction_order: table {self.table.name!r} evicts nobody: make it with a capacity")
        partition = whole_number("partition", partition, 0, self.partitions - 1, InputError)
        return np.frombuffer(self._native.eviction_order(partition), np.uint64)

    def erase(self, keys: ArrayLike | LookupPlan) -> int:
        """Remove rows; returns how many there were."""
        return self._native.erase(self._batch(keys)._native, self.threads)

    def clear(self) -> None:
        """Remove all rows."""
        for chunk in self.export():
            self.erase(chunk.keys)

    def export(self, rows: int = 65_536) -> Iterator[Rows]:
        """All rows in chunks of at most `rows`. What changes meanwhile is seen or not, row by row."""
        rows = whole_number("rows", rows, 1, 2**32, InputError)
        cursor = 0
        while True:
            chunk = self._empty_rows(rows)
            count, cursor = self._native.export_rows(cursor, chunk.keys, chunk.values, chunk.state, chunk.fields)
            if count == 0:
                return
            fields = {name: column[:count] for name, column in chunk.fields.items()}
            yield Rows(chunk.keys[:count], chunk.values[:count], chunk.state[:count], fields)

    def stats(self) -> Stats:
        """Counts and bytes."""
        found = self._native.stats()
        rows = found["rows"]
        value_bytes = rows * self.dim * (4 if self.table.type == "float32" else 2)
        return Stats(
            value_bytes=value_bytes,
            state_bytes=rows * self.state_dim * 4,
            capacity_rows=self.capacity_rows,
            **found,
        )

    def verify(self) -> list[str]:
        """Faults of the structure as sentences; none means that rows and index agree."""
        return self._native.verify()

    def _batch(self, keys: ArrayLike | LookupPlan) -> LookupPlan:
        if not isinstance(keys, LookupPlan):
            return self.batch(keys)
        if keys._native.partitions != self.partitions:
            raise InputError(
                f"keys: the batch was planned for a table of {keys._native.partitions} partitions, "
                f"this one has {self.partitions}: plan it with this table's batch()"
            )
        if self._native.counts_occurrences and not keys._native.counted:
            raise InputError("keys: the batch was planned by another kind of table: plan it with this table's batch()")
        return keys

    def _empty_rows(self, rows: int) -> Rows:
        return Rows(
            np.empty(rows, np.uint64),
            np.empty((rows, self.dim), np.float32),
            np.empty((rows, self.state_dim), np.float32),
            {name: np.empty(rows, np.uint32) for name in self.fields},
        )

    def _with_evicted(self, batch: LookupPlan) -> LookupPlan:
        if self._keeps_evicted:
            fell = self._empty_rows(self._native.evicted_rows(batch._native))
            self._native.evicted(batch._native, fell.keys, fell.values, fell.state, fell.fields)
            batch.evicted = fell
        return batch

    def _output(self, out: ArrayLike, rows: int) -> Floats:
        return as_matrix("out", as_output("out", out, 2), rows, self.dim)

    def _lr_scale(self, scale: float) -> float:
        if not isinstance(scale, Real) or not 0 <= scale <= 1e30:
            raise InputError(f"lr_scale={scale!r}: must be from 0 to 1e30 (1 leaves the learning rate as it is)")
        if scale != 1 and self.table.optimizer.name == "ftrl":  # its z says what the value is only together with lr
            raise InputError(f"lr_scale={scale!r}: FTRL's state holds for one learning rate, leave it at 1")
        return float(scale)

    def _check_field(self, name: str) -> None:
        if not isinstance(name, str) or name not in self.fields:
            raise InputError(f"'{name}': rows of table '{self.table.name}' carry only {', '.join(self.fields)}")


def _count(batch: LookupPlan, per: Per) -> int:
    if not isinstance(per, str) or per not in ("key", "unique"):
        raise InputError(f"per={per!r}: must be 'key' or 'unique'")
    return len(batch) if per == "key" else batch.unique


def _when(step: int, samples: int) -> tuple[int, int]:
    most = 2**62
    return whole_number("step", step, 0, most, InputError), whole_number("samples", samples, 0, most, InputError)


def _end(native: _native.RamTier) -> None:
    """The tier is collected or the program ends. One that ends by an error leaves its rows to the next."""
    failed = hasattr(sys, "last_value") and not hasattr(sys, "ps1")  # at a prompt, an error is not the end
    if failed:
        native.leave_segment()
    native.close_segment()


def _samples(samples: int | None) -> int | None:
    return None if samples is None else whole_number("samples", samples, 0, 2**63, InputError)
