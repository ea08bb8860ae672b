"""Figures of tables become warnings beyond their bounds, once each, and not before."""

from dataclasses import fields
from typing import Any

import pytest

from hotrow.run.checks import DISK_WAIT_MOST, TURNOVERS_MOST, RunChecks
from hotrow.run.config import RunConfig
from hotrow.store.rows import Stats

SECONDS = 40.0


def stats(**given: Any) -> Stats:
    return Stats(**({field.name: 0 for field in fields(Stats)} | given))


def checks(**table: Any) -> RunChecks:
    tables = {"default": {"dim": 4, **table}}
    given = {"data": {"format": "synthetic"}, "model": {"name": "lr"}, "tables": tables}
    return RunChecks(RunConfig.model_validate(given))


@pytest.mark.parametrize(("more", "said"), [(0, []), (1, ["28% of the time was spent waiting for the disk"])])
def test_more_than_a_quarter_of_the_time_waiting_for_the_disk_is_warned_once(more: float, said: list[str]) -> None:
    found, figures = checks(), {"user": stats(disk_wait_s=DISK_WAIT_MOST * SECONDS + more)}
    remedy = "raise tables.default.capacity, the memory, or set tables.default.path to a faster disk"
    assert list(found.tables(figures, SECONDS)) == [f"table 'user': {each}: {remedy}" for each in said]
    assert list(found.tables(figures, SECONDS)) == [], "once"


@pytest.mark.parametrize(("short", "warned"), [(1, False), (0, True)])
def test_a_table_that_is_evicted_ten_times_over_is_warned(short: int, warned: bool) -> None:
    figures = stats(capacity_rows=100, evicted=TURNOVERS_MOST * 100 - short)
    said = list(checks(capacity=100).tables({"default": figures}, SECONDS))
    assert [each.startswith("table 'default': 1,000 rows were evicted, its capacity is 100") for each in said] == (
        [True] * warned
    )
