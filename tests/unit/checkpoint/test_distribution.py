"""Quantiles and shares of a histogram are near those of the numbers themselves, whatever their number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.checkpoint.distribution import Distribution

NUMBERS = st.lists(st.floats(0, 1e30, allow_subnormal=False), min_size=1, max_size=200)


def of(*parts: list[float]) -> Distribution:
    found = Distribution()
    for part in parts:
        found.add(np.array(part, np.float64))
    return found


@given(NUMBERS, NUMBERS, st.floats(0.001, 1))
def test_a_quantile_is_wrong_by_less_than_one_part_in_128(left: list[float], right: list[float], part: float) -> None:
    exact = np.quantile(np.array(left + right), part, method="inverted_cdf")
    found = of(left, right).quantile(part)
    assert found == pytest.approx(exact, rel=1 / 128, abs=1e-37)


@given(st.lists(st.integers(0, 256), min_size=1, max_size=300))
def test_small_whole_numbers_are_exact(numbers: list[int]) -> None:
    found = of([float(each) for each in numbers])
    for part in (0.0, 0.01, 0.1, 0.5, 0.9, 1.0):
        assert found.quantile(part) == np.quantile(np.array(numbers), part, method="inverted_cdf")


@given(st.lists(st.integers(0, 256), min_size=1, max_size=300), st.integers(0, 300))
def test_the_share_of_the_largest_is_exact_where_bins_hold_one_number(numbers: list[int], most: int) -> None:
    most = min(most, len(numbers))
    found = of([float(each) for each in numbers]).share_of_top(most / len(numbers))
    if sum(numbers) == 0:
        assert found is None
    else:
        assert found == pytest.approx(sum(sorted(numbers)[len(numbers) - most :]) / sum(numbers), abs=1e-9)


def test_numbers_that_are_not_finite_are_counted_apart() -> None:
    found = of([1.0, np.nan, np.inf, 1e300])
    assert (len(found), found.not_finite, found.quantile(1.0)) == (1, 3, 1.0)


def test_without_numbers_there_are_no_figures() -> None:
    assert of([]).quantile(0.5) is None
    assert of([]).share_of_top(0.5) is None
