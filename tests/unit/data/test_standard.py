"""Means and deviations that a transform leaves open, measured on the first rows."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.data.schema import Log1p, Number, Schema, Standard
from hotrow.data.source import ArrowSource
from hotrow.data.standard import resolved
from hotrow.errors import InputError


def schema(*transforms: Any) -> Schema:
    return Schema(label="y", numbers=[Number(column=f"n{at}", transform=each) for at, each in enumerate(transforms)])


def source(schema: Schema, *columns: list[Any], size: int = 3) -> ArrowSource:
    table = pa.table({"y": [1.0] * len(columns[0]), **{f"n{at}": column for at, column in enumerate(columns)}})
    return ArrowSource(table.to_batches(size), schema)


def measured(found: Schema, place: int = 0) -> tuple[float, float]:
    transform = found.numbers[place].transform
    assert isinstance(transform, Standard)
    assert transform.mean is not None
    assert transform.deviation is not None
    return transform.mean, transform.deviation


values = st.lists(st.none() | st.floats(-1e6, 1e6), min_size=2, max_size=40).filter(
    lambda each: each != [None] * len(each)
)


@given(values, st.integers(1, 7))
def test_both_are_those_of_the_values_there_are(column: list[float | None], size: int) -> None:
    wanted = schema(Standard())
    mean, deviation = measured(resolved(wanted, source(wanted, column, size=size)))
    there = np.array([each for each in column if each is not None])
    assert mean == pytest.approx(there.mean(), rel=1e-9, abs=1e-6)
    constant = there.std() <= 1e-12 * abs(there.mean())
    assert deviation == pytest.approx(1.0 if constant else there.std(), rel=1e-6, abs=1e-6)


def test_a_large_mean_costs_no_digits() -> None:
    wanted = schema(Standard())
    _, deviation = measured(resolved(wanted, source(wanted, [1e9, 1e9 + 1, 1e9 + 2, 1e9 + 3], size=1)))
    assert deviation == pytest.approx(np.std([0, 1, 2, 3]), rel=1e-9)


def test_only_the_first_rows_count_for_each_column_its_own() -> None:
    wanted = schema(Standard(rows=2), Log1p(), Standard(rows=5))
    column = [1.0, 3.0, 100.0, 100.0, 6.0, 1e9]
    found = resolved(wanted, source(wanted, column, column, column, size=4))
    assert measured(found, 0) == (2.0, 1.0)
    assert measured(found, 2)[0] == 42.0
    assert found.numbers[1] == wanted.numbers[1]


def test_what_is_given_stays() -> None:
    wanted = schema(Standard(mean=5.0), Standard(deviation=2.0), Standard(mean=1.0, deviation=3.0))
    found = resolved(wanted, source(wanted, [0.0, 2.0], [0.0, 2.0], [0.0, 2.0]))
    assert [measured(found, place) for place in range(3)] == [(5.0, 1.0), (1.0, 2.0), (1.0, 3.0)]


def test_a_constant_column_becomes_zero_and_not_infinite() -> None:
    wanted = schema(Standard())
    assert measured(resolved(wanted, source(wanted, [7.0, 7.0, None]))) == (7.0, 1.0)


def test_nothing_is_read_where_nothing_is_open() -> None:
    wanted = schema(Standard(mean=1.0, deviation=1.0), Log1p())

    def unreadable() -> Any:
        raise AssertionError("read")

    assert resolved(wanted, ArrowSource(unreadable, wanted)) is wanted


def test_a_column_without_values_is_told() -> None:
    wanted = schema(Standard(rows=2))
    empty = source(wanted, [float("nan"), float("nan"), 1.0])
    with pytest.raises(InputError, match="number 'n0': the first 2 rows hold no value: give mean and deviation"):
        resolved(wanted, empty)
