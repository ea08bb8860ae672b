"""How results read."""

import pytest

from hotrow.reproduce.results import promise, promise_lines, silent, table


def test_the_first_column_stands_left_and_the_others_right() -> None:
    assert table(["mode", "qps"], [["Sync", "7"], ["Asynchronous", "1,000"]]) == [
        "mode            qps",
        "------------  -----",
        "Sync              7",
        "Asynchronous  1,000",
    ]


def test_rows_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        table(["mode", "qps"], [["Sync"]])


def test_a_broken_promise_is_shouted_and_a_kept_one_is_not() -> None:
    result = {"promises": [promise("fast", True, "2.1"), promise("small", False, "9 GB")]}
    assert promise_lines(result) == ["holds  fast: 2.1", "FAILS  small: 9 GB"]


def test_promises_of_a_quick_run_are_not_judged() -> None:
    result = {"quick": True, "promises": [promise("fast", True, "2.1"), promise("small", False, "9 GB")]}
    assert promise_lines(result) == ["small sizes: promises are not judged"]
    assert len(promise_lines({**result, "quick": False})) == 2


def test_nobody_has_to_listen() -> None:
    silent("anything")
