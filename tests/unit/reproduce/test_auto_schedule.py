"""Who knows the future: against all schedules there are, one by one."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.reproduce.auto_schedule import Stretch, best_schedule, needless, samples_between, upper_bound
from hotrow.switching import ModeName

NAMES: tuple[ModeName, ...] = ("sync", "gba")
rates = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=7)


def windows(values: list[int]) -> list[tuple[float, float]]:
    return [(10.0 * place, float(value)) for place, value in enumerate(values)]


def slow_best(sync: list[int], gba: list[int], cost: float) -> float:
    return max(
        sum(10.0 * (sync, gba)[mode][place] for place, mode in enumerate(modes))
        - cost * sum(one != other for one, other in pairwise(modes))
        for modes in product((0, 1), repeat=len(sync))
    )


@given(rates, st.sampled_from([0.0, 5.0, 25.0, 1000.0]))
def test_no_schedule_beats_the_best_one(pairs: list[tuple[int, int]], cost: float) -> None:
    sync, gba = [one for one, _ in pairs], [other for _, other in pairs]
    by_name = {"sync": windows(sync), "gba": windows(gba)}
    schedule = best_schedule(by_name["sync"], by_name["gba"], cost)
    trained = sum(samples_between(by_name[each.mode], each.start_s, each.end_s) for each in schedule)
    assert trained - cost * (len(schedule) - 1) == pytest.approx(slow_best(sync, gba, cost))
    assert upper_bound(by_name["sync"], by_name["gba"]) == pytest.approx(slow_best(sync, gba, 0.0))
    assert (schedule[0].start_s, schedule[-1].end_s) == (0.0, 10.0 * len(pairs))
    for before, after in pairwise(schedule):
        assert before.end_s == after.start_s
        assert before.mode != after.mode


def test_windows_that_lie_partly_inside_count_with_that_part() -> None:
    assert samples_between(windows([2, 4, 8]), 5.0, 21.0) == 5 * 2 + 10 * 4 + 1 * 8
    assert samples_between(windows([2, 4, 8]), 40.0, 50.0) == 0


def test_a_switch_is_needless_where_the_mode_left_would_have_done_as_well() -> None:
    day = [Stretch("sync", 0.0, 10.0), Stretch("gba", 10.0, 30.0)]
    assert needless(day, windows([9, 3, 3]), windows([1, 3, 4])) == 0
    assert needless(day, windows([9, 3, 4]), windows([1, 3, 4])) == 1
    assert needless(day, windows([1, 3, 5]), windows([9, 3, 4])) == 1
    assert needless(day[:1], windows([1, 3, 5]), windows([9, 3, 4])) == 0
