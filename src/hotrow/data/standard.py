"""Mean and deviation of numbers whose transform needs them, measured on the first rows of a source."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hotrow.data.numbers import numbers
from hotrow.data.schema import Number, Schema, Standard
from hotrow.data.source import Source
from hotrow.errors import InputError

ROUNDING = 1e-12  # of the mean: less is not in the data


@dataclass(slots=True)
class _Moments:
    """Count, mean and sum of squared distances, joined block by block without loss of digits."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        there = values[~np.isnan(values)]
        if len(there) == 0:
            return
        mean, count = float(there.mean()), self.count + len(there)
        apart = mean - self.mean
        self.squares += float(((there - mean) ** 2).sum()) + apart**2 * self.count * len(there) / count
        self.mean += apart * len(there) / count
        self.count = count


def is_open(number: Number) -> bool:
    """Whether something of a column's transform must still be measured."""
    given = number.transform
    return isinstance(given, Standard) and (given.mean is None or given.deviation is None)


def resolved(schema: Schema, source: Source) -> Schema:
    """The schema with every mean and deviation in it; the source is read only where one is left out."""
    open_numbers = {place: number for place, number in enumerate(schema.numbers) if is_open(number)}
    if not open_numbers:
        return schema
    moments = _measured(open_numbers, source)
    closed = [
        _closed(number, moments[place]) if place in moments else number for place, number in enumerate(schema.numbers)
    ]
    return schema.model_copy(update={"numbers": tuple(closed)})


def _measured(open_numbers: dict[int, Number], source: Source) -> dict[int, _Moments]:
    moments = {place: _Moments() for place in open_numbers}
    wanted = {place: _rows(number) for place, number in open_numbers.items()}
    seen = 0
    for batch in source.read():
        for place, number in open_numbers.items():
            if seen < wanted[place]:
                values, _ = numbers(batch[number.column], number.column)
                moments[place].add(values[: wanted[place] - seen])
        seen += batch.num_rows
        if seen >= max(wanted.values()):
            break
    return moments


def _rows(number: Number) -> int:
    assert isinstance(number.transform, Standard)
    return number.transform.rows


def _closed(number: Number, moments: _Moments) -> Number:
    given = number.transform
    assert isinstance(given, Standard)
    if moments.count == 0:
        where = f"the first {given.rows:,} rows"
        raise InputError(f"number {number.column!r}: {where} hold no value: give mean and deviation, or more rows")
    mean = moments.mean if given.mean is None else given.mean
    deviation = math.sqrt(moments.squares / moments.count)
    if deviation <= ROUNDING * abs(moments.mean):  # a constant: any deviation will do, it becomes 0
        deviation = 1.0
    transform = given.model_copy(update={"mean": mean, "deviation": given.deviation or deviation})
    return number.model_copy(update={"transform": transform})
