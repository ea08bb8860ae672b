"""Exact look-ahead: no row is read early that the open step changes, and every look-up is answered in the end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotrow.server.step_window import StepWindow, early_rows
from profiles import examples

KEYS = st.lists(st.integers(-5, 5), unique=True, max_size=8)


@given(KEYS, st.lists(KEYS, max_size=3))
def test_rows_outside_every_batch_in_hand_are_early(keys: list[int], in_hand: list[list[int]]) -> None:
    found = early_rows(np.array(keys, np.int64), [np.array(each, np.int64) for each in in_hand])
    assert found.tolist() == [not any(key in each for each in in_hand) for key in keys]


def test_a_look_up_of_the_open_step_reads_everything() -> None:
    window: StepWindow[str] = StepWindow(step=3)
    assert window.reading(3) == "whole"
    assert window.reading(2) == "whole"


def test_a_look_up_ahead_waits_until_all_keys_of_the_step_before_are_known() -> None:
    window: StepWindow[str] = StepWindow()
    assert window.reading(1) == "later"  # who trains step 0 is not known
    window.look_up(0, grant=1, keys="a")
    assert window.reading(1) == "later"
    window.expect(0, [1, 2])
    assert window.reading(1) == "later"
    window.look_up(0, grant=2, keys="b")
    assert window.reading(1) == "early"
    assert window.in_hand(0) == ["a", "b"]
    window.applied(0)
    assert window.reading(1) == "whole"
    assert window.in_hand(0) == []


def test_values_look_one_step_ahead() -> None:
    window: StepWindow[str] = StepWindow()
    for step in (0, 1):
        window.expect(step, [step + 1])
        window.look_up(step, step + 1, "keys")
    assert window.reading(1) == "early"
    assert window.reading(2) == "later"  # step 0 may change its rows as well


def test_a_lost_grant_makes_the_keys_of_its_step_unknown() -> None:
    window: StepWindow[str] = StepWindow()
    window.expect(0, [1, 2])
    window.look_up(0, 1, "a")
    window.look_up(0, 2, "b")
    assert window.drop(2) == 0
    assert window.drop(9) is None
    assert window.reading(1) == "later"
    window.expect(0, [1, 3])
    assert window.reading(1) == "later"
    window.look_up(0, 3, "c")
    assert window.reading(1) == "early"
    assert window.in_hand(0) == ["a", "c"]


@pytest.mark.parametrize("late", ["look_up", "expect"])
def test_messages_about_steps_that_are_applied_change_nothing(late: str) -> None:
    window: StepWindow[str] = StepWindow(step=2)
    if late == "look_up":
        window.look_up(1, 1, "a")
    else:
        window.expect(1, [1])
    assert window.in_hand(1) == []
    assert window.drop(1) is None


@given(st.permutations([("expect", 0), ("look", 1), ("look", 2), ("look", 3), ("apply", 0)]))
@settings(max_examples=examples(100))
def test_messages_may_arrive_in_any_order(order: list[tuple[str, int]]) -> None:
    window: StepWindow[int] = StepWindow()
    seen = set()
    for what, number in order:
        seen.add((what, number))
        match what:
            case "expect":
                window.expect(0, [1, 2, 3])
            case "look":
                window.look_up(0, number, number)
            case "apply":
                window.applied(0)
        known = {("expect", 0), ("look", 1), ("look", 2), ("look", 3)} <= seen
        assert window.reading(1) == ("whole" if ("apply", 0) in seen else "early" if known else "later")
