"""The growth law finds the numbers of ids that follow it, and refuses a sample that is too small."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow.errors import InputError
from hotrow.plan.growth import ROWS_LEAST, FeatureGrowth, check_rows, fit_growth


def first_rows(distinct_at: NDArray[np.floating[Any]]) -> list[int]:
    """The rows in which new ids come, where `distinct_at[n]` ids are in the first n rows."""
    steps: NDArray[np.int64] = np.diff(np.floor(distinct_at).astype(np.int64), prepend=0)
    found: list[int] = np.repeat(np.arange(len(distinct_at)), steps).tolist()
    return found


@pytest.mark.parametrize("exponent", [0.3, 0.6, 0.9])
def test_heaps_law_is_continued_with_its_exponent(exponent: float) -> None:
    rows = np.arange(1, 20_001)
    law = fit_growth(first_rows(5 * rows**exponent), 20_000)
    assert law.exponent == pytest.approx(exponent, abs=0.02)
    assert law.at(80_000) == pytest.approx(5 * 80_000**exponent, rel=0.04)


def test_a_feature_that_runs_out_of_ids_stops_growing() -> None:
    there, rows = 1000, np.arange(1, 8001)
    law = fit_growth(first_rows(there * (1 - np.exp(-rows / there))), 8000)  # equally frequent ids
    assert law.at(10**9) == pytest.approx(there, rel=0.02)
    early = fit_growth(first_rows(there * (1 - np.exp(-rows[:2000] / there))), 2000)
    assert early.quickening == pytest.approx(2, rel=0.2)
    assert early.at(8000) == pytest.approx(there, rel=0.05)
    assert early.at_most(8000) > 1.5 * there, "Heaps' law alone"


def test_the_law_holds_what_was_counted_and_never_falls() -> None:
    law = FeatureGrowth(1000, 70, exponent=0.5, fall=0.8)
    assert law.at(1000) == 70
    assert law.at(10) == 70, "fewer rows than were read are not asked for"
    assert 70 < law.at(2000) < law.at(4000) < law.at_most(4000)
    assert law.at_most(4000) == pytest.approx(140)


def test_a_feature_with_one_id_keeps_one() -> None:
    assert fit_growth([0], 100_000).at(10**9) == 1


def test_a_sample_that_is_too_small_is_refused_with_the_rows_it_needs() -> None:
    check_rows(ROWS_LEAST)
    with pytest.raises(InputError, match=r"the sample has 1,999 rows: 2,000 or more are needed"):
        check_rows(ROWS_LEAST - 1)


def test_a_doubling_without_a_new_id_among_others_is_no_fall_to_nothing() -> None:
    law = fit_growth([*range(20), 900, 901, 902], 1000)  # 20 ids at first, then three late ones
    assert law.exponent == pytest.approx(0.2016, abs=1e-4)
    assert law.fall == 1
