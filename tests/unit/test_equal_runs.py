"""The command that compares two recordings of runs finds every kind of difference, and no other."""

from typing import Any

import pytest

from equal_runs.comparing import differences

RUN: dict[str, Any] = {
    "equal": "bits",
    "losses": [0.5, 0.25],
    "samples": 16,
    "steps": 2,
    "rows": "aa",
    "dense": "bb",
    "metrics": {},
    "trace": ["ready", "pushed"],
}


def test_equal_recordings_have_no_differences() -> None:
    assert differences({"run": RUN}, {"run": RUN}) == []


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"losses": [0.5, 0.2500001]}, "loss 1 was 0.25 and is 0.2500001"),
        ({"losses": [0.5]}, "2 losses were told and 1 are"),
        ({"samples": 17}, "samples were 16 and are 17"),
        ({"steps": 3}, "steps were 2 and are 3"),
        ({"rows": "ab"}, "rows have other bits"),
        ({"dense": "ba"}, "dense have other bits"),
        ({"trace": ["ready"]}, "event 1 was 'pushed' and is None"),
    ],
)
def test_each_difference_is_named(changed: dict[str, Any], told: str) -> None:
    (found,) = differences({"run": RUN}, {"run": RUN | changed})
    assert found.startswith(f"run: {told}")


def test_losses_may_differ_by_their_tolerance_where_no_bits_are_promised() -> None:
    before = RUN | {"equal": "losses"}
    assert differences({"run": before}, {"run": before | {"losses": [0.5, 0.250009], "rows": "other"}}) == []
    assert differences({"run": before}, {"run": before | {"losses": [0.5, 0.250011]}}) != []


def test_a_run_that_is_missing_on_one_side_is_named() -> None:
    assert differences({"run": RUN}, {}) == ["run: recorded only before"]
    assert differences({}, {"run": RUN}) == ["run: recorded only after"]
