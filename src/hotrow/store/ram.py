"""Rows in this process's memory: the Python face of the native store.

Every call takes a batch of keys, checks it, and crosses into native code once, without the GIL. A `Batch` that a lookup
gave back serves the update of the same keys again: the duplicates are folded and the rows are found already.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from hotrow import _native
from hotrow.config import AnyInit, Constant, Normal, Table, Uniform
from hotrow.errors import ConfigError, InputError
from hotrow.optim.sparse import AnyOptimizer
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

Per: TypeAlias = Literal["key", "unique"]


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of an update, in rows: each counted once however often its key stands in the batch."""

    rows: int
    refused: int  # the gradient was not finite: the row stays as it was
    absent: int  # no such row: nothing was created
    weightless: int = 0  # every weight of the key was 0: the row stays as it was


@dataclass(frozen=True, slots=True)
class Rows:
    """Whole rows as columns."""

    keys: Keys
    values: Floats
    state: Floats
    fields: dict[str, Integers]


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts since the tier was made, and bytes in use."""

    rows: int
    value_bytes: int
    state_bytes: int
    slab_bytes: int  # rows with all their fields, erased ones included
    index_bytes: int
    splits: int  # segments of the index that grew in two
    created: int
    erased: int
    refused: int  # rows skipped because their gradient was not finite
    absent: int  # rows that an update did not find


class Batch:
    """The keys of one batch, duplicates folded, with the rows where the last lookup found them.

    Use it in one thread at a time. Rows may come and go meanwhile: a row that moved is looked up anew.
    """

    __slots__ = ("_native", "absent")

    def __init__(self, native: _native.Batch) -> None:
        self._native = native
        self.absent = 0  # unique keys that the last find did not find

    def __len__(self) -> int:
        return len(self._native)

    @property
    def unique(self) -> int:
        return self._native.unique

    @property
    def keys(self) -> Keys:
        """The unique keys, in the order of everything that is `per="unique"`."""
        out = np.empty(self.unique, np.uint64)
        self._native.keys(out)
        return out

    @property
    def inverse(self) -> Integers:
        """For each key of the batch, which unique key it is."""
        out = np.empty(len(self), np.uint32)
        self._native.inverse(out)
        return out

    def absent_mask(self) -> npt.NDArray[np.bool_]:
        """For each key of the batch, whether the last find missed it."""
        if not self._native.looked_up:
            raise InputError("absent_mask: the batch has not been looked up yet: call find first")
        out = np.empty(len(self), np.bool_)
        self._native.absent_mask(out)
        return out


class RamTier:
    """One table's rows in memory. Safe to use from several threads at once."""

    def __init__(self, table: Table, *, threads: int = 1, partitions: int = 32) -> None:
        self.table = table
        self.dim = table.dim
        self.threads = whole_number("threads", threads, 1, 1024)
        self.partitions = whole_number("partitions", partitions, 1, 1024)
        if partitions & (partitions - 1):
            raise ConfigError(f"partitions={partitions}: must be a power of two")
        kind, amount = _first_values(table.init, table.dim)
        self._native = _native.RamTier(
            dim=table.dim,
            optimizer=_optimizer(table.optimizer),
            init_kind=kind,
            init_amount=amount,
            stream=_stream(table.seed, table.name),
            clock=table.clock,
            last_seen=table.last_seen,
            partitions_log2=partitions.bit_length() - 1,
        )
        self.state_dim = self._native.state_dim
        self.fields: tuple[str, ...] = tuple(self._native.fields)

    def __len__(self) -> int:
        return len(self._native)

    def batch(self, keys: ArrayLike) -> Batch:
        """Plan a batch: group its keys by partition and fold duplicates."""
        return Batch(self._native.batch(as_keys("keys", keys), self.threads))

    def find(self, keys: ArrayLike | Batch, out: ArrayLike | None = None, *, per: Per = "key") -> Batch:
        """Copy rows into `out`. Absent ones become NaN there and are counted in the batch's `absent`."""
        batch = self._batch(keys)
        buffer = None if out is None else self._output(out, _count(batch, per))
        batch.absent = self._native.find(batch._native, buffer, per == "unique", self.threads)
        return batch

    def find_or_init(self, keys: ArrayLike | Batch, out: ArrayLike | None = None, *, per: Per = "key") -> Batch:
        """As `find`, but absent rows are created with their first values."""
        batch = self._batch(keys)
        buffer = None if out is None else self._output(out, _count(batch, per))
        self._native.find_or_init(batch._native, buffer, per == "unique", self.threads)
        batch.absent = 0
        return batch

    def apply(
        self,
        keys: ArrayLike | Batch,
        gradients: ArrayLike,
        *,
        step: int = 0,
        samples: int = 0,
        weights: ArrayLike | None = None,
        rows: ArrayLike | None = None,
        per: Per = "key",
    ) -> Applied:
        """One optimizer update per row, with the (weighted) sum of the gradients of its keys.

        `step` is the dense step being applied, from 0; `samples` counts all samples up to and including this batch
        (SWAP's clock). `rows[i]` names the row of `gradients` that key i takes; without it key i takes row i.
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
        when = _when(step, samples)
        return Applied(*self._native.apply(batch._native, gradient, weight, row, per == "unique", *when, self.threads))

    def add(
        self,
        keys: ArrayLike | Batch,
        values: ArrayLike,
        state: ArrayLike | None = None,
        *,
        step: int = 0,
        samples: int = 0,
        clocks: ArrayLike | None = None,
    ) -> Applied:
        """Add changes of value and state to the rows (a cache's write-back); clocks only ever rise."""
        batch = self._batch(keys)
        change = as_matrix("values", values, len(batch), self.dim)
        change_of_state = None if state is None else as_matrix("state", state, len(batch), self.state_dim)
        if clocks is not None and "clock" not in self.fields:
            raise InputError(f"clocks: rows of table '{self.table.name}' keep no clock, make it with clock=True")
        clock = None if clocks is None else as_integers("clocks", clocks, len(batch))
        when = _when(step, samples)
        return Applied(*self._native.add(batch._native, change, change_of_state, clock, *when, self.threads))

    def put(
        self,
        keys: ArrayLike,
        values: ArrayLike,
        state: ArrayLike | None = None,
        fields: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Insert or overwrite whole rows. What is not given keeps what it was, or starts as in a fresh row."""
        batch = self.batch(keys)
        if batch.unique != len(batch):
            raise InputError(f"keys: {len(batch) - batch.unique} of them stand there twice, give each row once")
        value = as_matrix("values", values, len(batch), self.dim)
        if not np.isfinite(value).all():
            raise InputError("values holds NaN or infinity: a row cannot start from it")
        whole = None if state is None else as_matrix("state", state, len(batch), self.state_dim)
        for name in fields or {}:
            self._demand_field(name)
        columns = {name: as_integers(name, column, len(batch)) for name, column in (fields or {}).items()}
        if "version" in columns and not columns["version"].all():
            raise InputError("version holds a 0: rows that exist have 1 or more")
        self._native.put(batch._native, value, whole, columns, self.threads)

    def first_values(self, keys: ArrayLike, out: ArrayLike) -> None:
        """What `find_or_init` would put into rows that are absent, without creating any."""
        ids = as_keys("keys", keys)
        self._native.first_values(ids, self._output(out, len(ids)), self.threads)

    def versions(self, keys: ArrayLike | Batch) -> Integers:
        """How often each row changed, counted from 1; 0 where the row is absent."""
        return self.read(keys, "version")

    def clocks(self, keys: ArrayLike | Batch) -> Integers:
        """HET's clock of each row; 0 where the row is absent."""
        return self.read(keys, "clock")

    def last_updates(self, keys: ArrayLike | Batch) -> Integers:
        """The step after which each row last changed; 0 where it never did or the row is absent."""
        return self.read(keys, "last_update")

    def read(self, keys: ArrayLike | Batch, field: str) -> Integers:
        """One field of each row, 0 where the row is absent."""
        self._demand_field(field)
        batch = self._batch(keys)
        out = np.empty(len(batch), np.uint32)
        self._native.read(batch._native, field, out, self.threads)
        return out

    def touch(self, keys: ArrayLike | Batch, step: int) -> int:
        """Mark rows as seen at `step`; returns how many of them exist."""
        self._demand_field("last_seen")
        return self._native.touch(self._batch(keys)._native, _when(step, 0)[0], self.threads)

    def erase(self, keys: ArrayLike | Batch) -> int:
        """Remove rows; returns how many there were."""
        return self._native.erase(self._batch(keys)._native, self.threads)

    def export(self, rows: int = 65_536) -> Iterator[Rows]:
        """All rows in chunks of at most `rows`. What changes meanwhile is seen or not, row by row."""
        rows = whole_number("rows", rows, 1, 2**32, InputError)
        cursor = 0
        while True:
            keys = np.empty(rows, np.uint64)
            values = np.empty((rows, self.dim), np.float32)
            state = np.empty((rows, self.state_dim), np.float32)
            fields = {name: np.empty(rows, np.uint32) for name in self.fields}
            count, cursor = self._native.export_rows(cursor, keys, values, state, fields)
            if count == 0:
                return
            columns = {name: column[:count] for name, column in fields.items()}
            yield Rows(keys[:count], values[:count], state[:count], columns)

    def stats(self) -> Stats:
        """Counts and bytes."""
        found = self._native.stats()
        rows = found["rows"]
        return Stats(value_bytes=rows * self.dim * 4, state_bytes=rows * self.state_dim * 4, **found)

    def verify(self) -> list[str]:
        """Faults of the structure as sentences; none means that rows and index agree."""
        return self._native.verify()

    def _batch(self, keys: ArrayLike | Batch) -> Batch:
        if not isinstance(keys, Batch):
            return self.batch(keys)
        if keys._native.partitions != self.partitions:
            raise InputError(
                f"keys: the batch was planned for a table of {keys._native.partitions} partitions, "
                f"this one has {self.partitions}: plan it with this table's batch()"
            )
        return keys

    def _output(self, out: ArrayLike, rows: int) -> Floats:
        return as_matrix("out", as_output("out", out, 2), rows, self.dim)

    def _demand_field(self, name: str) -> None:
        if name not in self.fields:
            raise InputError(f"'{name}': rows of table '{self.table.name}' carry only {', '.join(self.fields)}")


def _count(batch: Batch, per: Per) -> int:
    if per not in ("key", "unique"):
        raise InputError(f"per={per!r}: must be 'key' or 'unique'")
    return len(batch) if per == "key" else batch.unique


def _when(step: int, samples: int) -> tuple[int, int]:
    most = 2**62
    return whole_number("step", step, 0, most, InputError), whole_number("samples", samples, 0, most, InputError)


def _first_values(init: AnyInit, dim: int) -> tuple[int, float]:
    scale = dim**-0.5 if init.scaled else 1.0
    match init:
        case Uniform(bound=bound):
            return 0, bound * scale
        case Normal(std=std):
            return 1, std * scale
        case Constant(value=value):
            return 2, value * scale


def _stream(seed: int, table: str) -> int:
    """64 bits from seed and table name; with the key they decide a row's first value, on any machine, for ever."""
    digest = hashlib.blake2b(table.encode(), digest_size=8, key=seed.to_bytes(8, "little")).digest()
    return int.from_bytes(digest, "little")


def _optimizer(spec: AnyOptimizer) -> _native.Optimizer:
    native = _native.Optimizer()
    native.rule = getattr(_native.Rule, spec.name)
    settings = spec.model_dump(exclude={"name", "clip", "swap", "correction"})
    for name, value in settings.items():
        setattr(native, name, value)
    native.clip = spec.clip or 0.0
    native.correct_by_row = getattr(spec, "correction", "global") == "row"
    if (swap := getattr(spec, "swap", None)) is not None:
        native.swap_period, native.swap_decay, native.swap_floor = swap.period, swap.decay, swap.floor or 0.0
    return native
