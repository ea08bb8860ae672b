"""Offline oracles of a cache agree with counts by hand and with each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow.bench.cache.oracles import (
    lookups,
    saved_ahead,
    saved_by_belady,
    saved_by_static,
    saved_by_unlimited,
)
from profiles import examples

TRACES = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), max_size=12)


def trace_of(batches: list[list[int]]) -> list[NDArray[np.uint64]]:
    return [np.array(batch, np.uint64) for batch in batches]


def best_saving(batches: list[list[int]], capacity: int) -> int:
    """Every choice of rows to keep after every batch, tried out; a row that is looked up gets a place."""
    reached: dict[frozenset[int], int] = {frozenset(): 0}
    for batch in batches:
        after: dict[frozenset[int], int] = {}
        for cached, saved in reached.items():
            hits = saved + len(cached & set(batch))
            kept = frozenset(cached | set(batch))
            for choice in (each for each in _choices(kept, capacity) if each >= set(batch)):
                after[choice] = max(after.get(choice, 0), hits)
        reached = after
    return max(reached.values())


def _choices(rows: frozenset[int], capacity: int) -> list[frozenset[int]]:
    if len(rows) <= capacity:
        return [rows]
    return [choice for row in rows for choice in _choices(rows - {row}, capacity)]


def test_counts_by_hand() -> None:
    trace = trace_of([[1, 2], [1, 3], [1, 3], [2]])
    assert lookups(trace) == 7
    assert saved_by_unlimited(trace) == 4
    assert [saved_by_static(trace, rows) for rows in (0, 1, 2, 3, 9)] == [0, 2, 3, 4, 4]
    assert saved_by_static([], 3) == saved_ahead([], 3, 4) == 0


def test_a_row_with_a_known_use_is_kept_and_the_furthest_of_them_goes_first() -> None:
    trace = trace_of([[1], [2], [3], [1]])
    assert saved_ahead(trace, 2, window=0) == 0  # when 3 comes, neither other has a known use, and 1 is older
    assert saved_ahead(trace, 2, window=1) == 1
    assert saved_ahead(trace_of([[1], [2], [3], [2], [1]]), 2, window=4) == 1


def test_among_rows_without_a_known_use_the_rarest_goes_first_however_long_ago() -> None:
    assert saved_ahead(trace_of([[1], [1], [2], [3], [1]]), 2, window=0) == 2
    assert saved_ahead(trace_of([[2], [1], [1], [3], [2]]), 2, window=0) == 1


@settings(deadline=None, max_examples=examples(100))
@given(batches=TRACES, capacity=st.integers(1, 6), window=st.integers(0, 12))
def test_no_oracle_saves_more_than_one_that_knows_more(batches: list[list[int]], capacity: int, window: int) -> None:
    trace = trace_of(batches)
    belady = saved_by_belady(trace, capacity)
    assert saved_ahead(trace, capacity, window) <= saved_by_unlimited(trace)
    assert belady <= saved_by_unlimited(trace)
    assert saved_by_static(trace, capacity) <= saved_by_unlimited(trace)
    assert saved_ahead(trace, 10, window) == saved_by_unlimited(trace)


@settings(deadline=None, max_examples=examples(40))
@given(batches=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=1), max_size=9), capacity=st.integers(1, 3))
def test_with_one_id_a_batch_belady_is_the_best_of_all_choices(batches: list[list[int]], capacity: int) -> None:
    if batches:
        assert saved_by_belady(trace_of(batches), capacity) == best_saving(batches, capacity)


@pytest.mark.parametrize("capacity", [1, 3])
def test_rows_of_the_batch_itself_are_not_evicted(capacity: int) -> None:
    trace = trace_of([[1, 2, 3, 4], [1, 2, 3, 4]])
    assert saved_ahead(trace, capacity, window=0) == capacity
