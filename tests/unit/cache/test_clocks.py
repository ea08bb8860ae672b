"""The rules of clocks, at both sides of each bound, for numbers and for arrays."""

import numpy as np
import pytest

from hotrow.cache.clocks import after_write_back, is_valid, may_ask, must_write_back
from hotrow.errors import ConfigError


@pytest.mark.parametrize(
    ("current", "ahead"), [(7, False), (9, False), (10, True)], ids=["level", "at the bound", "past the bound"]
)
def test_a_worker_may_be_staleness_updates_ahead_of_its_start(current: int, ahead: bool) -> None:
    assert must_write_back(True, 7, current, 2) is ahead
    assert may_ask(True, 7, current, 2) is not ahead


def test_an_absent_row_is_neither_written_back_nor_checked() -> None:
    assert not must_write_back(False, 0, 100, 2)
    assert not may_ask(False, 0, 0, 2)


@pytest.mark.parametrize(("server", "valid"), [(4, False), (5, True), (7, True), (9, True), (10, False)])
def test_the_server_accepts_clocks_within_the_bound_on_both_sides(server: int, valid: bool) -> None:
    assert is_valid(server, 7, 2) is valid


def test_staleness_zero_accepts_only_equal_clocks() -> None:
    assert [is_valid(server, 7, 0) for server in (6, 7, 8)] == [False, True, False]


@pytest.mark.parametrize(
    ("rule", "server", "after"), [("max", 5, 7), ("max", 9, 9), ("additive", 5, 8), ("additive", 9, 12)]
)
def test_a_write_back_never_lowers_the_clock(rule: str, server: int, after: int) -> None:
    assert after_write_back(rule, server, 7, 3) == after  # type: ignore[arg-type]
    arrays = [np.array([number]) for number in (server, 7, 3)]
    assert after_write_back(rule, *arrays).tolist() == [after]  # type: ignore[arg-type]


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ConfigError, match="clock='sum': must be 'max' or 'additive'"):
        after_write_back("sum", 1, 2, 3)  # type: ignore[arg-type]


def test_arrays_give_what_single_numbers_give() -> None:
    present = np.array([True, True, False, True])
    start, current = np.array([3, 3, 0, 9]), np.array([4, 6, 0, 9])
    single = [
        (must_write_back(bool(p), int(s), int(c), 2), may_ask(bool(p), int(s), int(c), 2))
        for p, s, c in zip(present, start, current, strict=True)
    ]
    both = must_write_back(present, start, current, 2).tolist(), may_ask(present, start, current, 2).tolist()
    assert list(zip(*both, strict=True)) == single
