"""Which columns are read, what they must hold, and the rows in which they do not."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hotrow.data.labels import missing_labels
from hotrow.data.numbers import Mask, floats, numbers
from hotrow.data.schema import Schema, Time
from hotrow.data.shown import shown
from hotrow.data.times import nulls, times
from hotrow.data.wrong_type import Purpose, WrongType

__all__ = ["Columns", "RowFault", "checked", "numbers", "times"]


class RowFault(NamedTuple):
    """Why a row cannot be used."""

    reason: str
    wrong_type: WrongType | None = None  # where a value has another type than its setting says


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns are read, and what must be in them. Others than numbers and times are taken as they are."""

    names: tuple[str, ...]
    labels: frozenset[str] = frozenset()  # numbers, none missing
    label_texts: frozenset[str] = frozenset()  # labels of any type, taken as they are, none missing
    numbers: frozenset[str] = frozenset()
    time: Time | None = None
    as_they_are: frozenset[str] = frozenset()  # also ids or groups: looked at, but handed on unchanged
    weight: str | None = None  # a number of 0 or more, never missing

    @classmethod
    def of(cls, schema: Schema, labels: bool = True) -> "Columns":
        """All that a schema names; without labels, for data that has none."""
        wanted = frozenset(label.column for label in schema.label)
        by_value = frozenset(label.column for label in schema.label if label.positive is not None)
        raw = frozenset([*(ids.column for ids in schema.ids), *([schema.group] if schema.group else [])])
        numbers = frozenset(number.column for number in schema.numbers)
        others = raw | numbers | ({schema.time.column} if schema.time else set())
        names = tuple(name for name in schema.columns if labels or name in others)
        if not labels:
            return cls(names, numbers=numbers, time=schema.time, as_they_are=raw)
        return cls(names, wanted - by_value, by_value, numbers, schema.time, raw, schema.weight)

    def instead(self, without: Iterable[str], plus: Iterable[str] = ()) -> "Columns":
        """Other columns are read: those named `without` are made later, out of some in `plus`."""
        left_out = frozenset(without)
        return replace(self, names=tuple(dict.fromkeys([*(n for n in self.names if n not in left_out), *plus])))

    @property
    def demanding(self) -> tuple[str, ...]:
        """Columns that may hold something that makes a row useless."""
        times = {self.time.column} if self.time else set()
        wanted = self._must_be_numbers | self.label_texts | self.numbers | times
        return tuple(name for name in self.names if name in wanted)

    @property
    def _must_be_numbers(self) -> frozenset[str]:
        """Columns in which a row without a number is useless."""
        return self.labels | ({self.weight} if self.weight else set())

    def purpose(self, name: str) -> Purpose:
        """What a column of numbers is for."""
        return "label" if name in self.labels else "weight" if name == self.weight else "number"

    @property
    def numeric(self) -> frozenset[str]:
        """Columns that come out as float64."""
        others = self.as_they_are | ({self.time.column} if self.time else set())
        return ((self._must_be_numbers | self.numbers) & frozenset(self.names)) - others

    @property
    def never_missing(self) -> frozenset[str]:
        """Columns that every usable row has a value in; a time is checked apart."""
        return self._must_be_numbers | self.label_texts


def checked(batch: pa.RecordBatch, columns: Columns) -> tuple[pa.RecordBatch, dict[int, RowFault]]:
    """The rows that can be used, with texts that are numbers or times as such; and row -> fault of the others."""
    faults: dict[int, RowFault] = {}
    good = list(batch.columns)
    for place, name in enumerate(batch.schema.names):
        if name in columns.labels | columns.numbers or name == columns.weight:
            typed, bad, gone = _checked_numbers(batch[name], name, must=name in columns.never_missing)
            _note(faults, bad, batch[name], name, "is no number", columns.purpose(name))
            _note(faults, gone, batch[name], name, "is missing")
            good[place] = typed if name in columns.numeric else good[place]
        if name == columns.weight:
            _note(faults, floats(batch[name], name)[0] < 0, batch[name], name, "is negative: a weight is 0 or more")
        if name in columns.label_texts:
            _note(faults, missing_labels(batch[name], name), batch[name], name, "is missing")
        if columns.time is not None and name == columns.time.column:
            seconds, bad = times(batch[name], columns.time)
            _note(faults, bad, batch[name], name, f"cannot be read as a time (format {columns.time.format!r})", "time")
            typed = name not in columns.as_they_are | columns.labels | columns.numbers
            good[place] = pa.array(seconds, pa.timestamp("s")) if typed else good[place]
    result = pa.RecordBatch.from_arrays(good, names=batch.schema.names)
    if not faults:
        return result, faults
    kept = np.ones(batch.num_rows, bool)
    kept[list(faults)] = False
    return result.filter(pa.array(kept)), dict(sorted(faults.items()))


def _checked_numbers(column: pa.Array, name: str, *, must: bool) -> tuple[pa.Array, Mask | None, Mask | None]:
    """The column as numbers, which rows hold none, and which lack one where there must be one."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column, None, nulls(column) if must and column.null_count else None
    values, bad = floats(column, name)
    typed = column if pa.types.is_floating(kind) else pa.array(values, from_pandas=True)
    return typed, bad, np.isnan(values) if must else None


def _note(
    faults: dict[int, RowFault],
    bad: Mask | None,
    column: pa.Array,
    name: str,
    fault: str,
    purpose: Purpose | None = None,
) -> None:
    if bad is None or not bad.any():
        return
    for row in np.flatnonzero(bad).tolist():
        value = shown(column[row])
        reason = f"{name} is missing" if value in (None, "") else f"{name} {str(value)!r} {fault}"
        wrong = WrongType(purpose, name, value.strip()) if purpose and isinstance(value, str) else None
        faults.setdefault(row, RowFault(reason, wrong))
