"""The ledger: it agrees where every push is applied once or reported, and says so where it is broken on purpose."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow.chaos.counting import APART, ids_of
from hotrow.chaos.ledger import TrainedStretch, balances, cached_balance, dense_faults, role_faults

LOCAL, SAMPLES = 4, 32
SHARDS = np.tile([0, 1, 1, 0], SAMPLES // 4)  # of every batch two samples on either shard


def faults(applied: NDArray[np.float64], **counts: int) -> list[str]:
    [found] = balances([TrainedStretch("gba", 0, SAMPLES, counts)], applied, SHARDS, LOCAL)
    return list(found.faults)


def push(applied: NDArray[np.float64], batch: int, shard: int, times: float) -> NDArray[np.float64]:
    """As if one push had been applied so often."""
    changed = applied.copy()
    mine = (np.arange(SAMPLES) // LOCAL == batch) & (shard == SHARDS)
    changed[mine] = times
    return changed


ONCE = np.ones(SAMPLES)


def test_samples_that_were_applied_once_are_no_fault() -> None:
    [found] = balances([TrainedStretch("gba", 0, SAMPLES, {})], ONCE, SHARDS, LOCAL)
    assert list(found.faults) == []
    assert (found.samples, found.pushes, found.never, found.twice) == (SAMPLES, 16, 0, 0)


@pytest.mark.parametrize("times", [2, 3])
def test_a_gradient_that_is_applied_twice_has_to_be_reported(times: int) -> None:
    applied, more = push(ONCE, 2, 1, times), times - 1
    assert faults(applied) == [f"gba: {more} pushes were applied once more than they should, and the run reports 0"]
    assert faults(applied, rows_applied_twice=more) == []
    assert len(faults(applied, rows_applied_twice=more + 1)) == 1


@pytest.mark.parametrize("count", ["lost_pushes", "forgotten_pushes", "parked_pushes_lost"])
def test_a_gradient_that_is_lost_has_to_be_counted(count: str) -> None:
    applied = push(push(ONCE, 2, 1, 0), 5, 0, 0)
    assert faults(applied) == ["gba: 2 pushes were never applied, and the run reports 0"]
    assert faults(applied, **{count: 2}) == []
    assert len(faults(applied, **{count: 1})) == 1


def test_a_push_that_a_kill_interrupted_may_be_in_all_rows_in_some_or_in_none() -> None:
    assert faults(ONCE, partly_applied_pushes=1) == []
    none = push(ONCE, 2, 1, 0)
    assert faults(none, partly_applied_pushes=1) == []
    some = push(none, 5, 0, 0)
    assert len(faults(some, partly_applied_pushes=1)) == 1
    some[0] = 2.0
    assert len(faults(push(some, 5, 0, 1), partly_applied_pushes=1)) == 1  # one in part and one in none


def test_a_loss_does_not_make_up_for_a_push_that_was_applied_twice() -> None:
    assert len(faults(push(push(ONCE, 2, 1, 0), 2, 0, 2))) == 2


def test_a_count_of_what_did_not_happen_is_a_fault() -> None:
    assert len(faults(ONCE, lost_pushes=1)) == 1
    assert len(faults(ONCE, rows_applied_twice=1)) == 1


def test_a_push_that_is_applied_in_part_and_a_row_that_no_count_explains_are_faults() -> None:
    part, odd = ONCE.copy(), ONCE.copy()
    part[0], odd[0] = 2, 0.5
    assert "gba: 1 pushes were applied in part, and the run reports 0" in faults(part)
    assert faults(part, partly_applied_pushes=1) == []
    assert "gba: 1 samples have rows that no number of gradients explains" in faults(odd)


def test_stretches_of_a_mode_are_added_up_and_modes_are_not() -> None:
    stretches = [
        TrainedStretch("gba", 0, 8, {}),
        TrainedStretch("sync", 8, 16, {"lost_pushes": 1}),
        TrainedStretch("gba", 16, SAMPLES, {}),
    ]
    gba, sync = balances(stretches, push(ONCE, 0, 0, 0), SHARDS, LOCAL)
    assert (gba.mode, gba.samples, gba.never, gba.never_reported) == ("gba", 24, 1, 0)
    assert (sync.mode, sync.samples, sync.never, sync.never_reported) == ("sync", 8, 0, 1)


def test_dense_steps_are_those_reported_without_the_lost_ones() -> None:
    stretches = [
        TrainedStretch("sync", 0, 8, {"dense_steps_lost": 1}, steps=5),
        TrainedStretch("gba", 8, 16, {}, steps=3),
    ]
    assert list(dense_faults(stretches, 7.0)) == []
    [said] = dense_faults(stretches, 8.0)
    assert said == "the dense parameter was updated 8 times, and the run reports 8, 1 of them lost"
    fewer = [*stretches, TrainedStretch("gba", 16, 24, {"dense_pushes_lost": 1}, steps=2)]
    assert list(dense_faults(fewer, 8.75)) == list(dense_faults(fewer, 8.0)) == list(dense_faults(fewer, 9.0)) == []
    assert len(list(dense_faults(fewer, 7.9))) == len(list(dense_faults(fewer, 9.1))) == 1


def test_every_killed_role_is_reported_and_no_other() -> None:
    assert list(role_faults({"trainer": 2}, {"trainers_lost": 1}, {"trainer": 1})) == []
    assert len(list(role_faults({"trainer": 2}, {"trainers_lost": 1}, {}))) == 1
    assert len(list(role_faults({}, {"embedding_workers_lost": 1}, {}))) == 1


UPDATES = 8  # of a row, that a trainer may not have written back
OF_ROW = np.bincount(ids_of(np.arange(3 * 4 * APART), 4))


def cached_faults(missing: int = 0, extra: int = 0, **counts: int) -> list[str]:
    applied = OF_ROW.astype(np.float64)
    applied[:missing] -= 1
    applied[-extra or len(applied) :] += 1
    return list(cached_balance([TrainedStretch("async", 0, 1, counts)], applied, OF_ROW, LOCAL, UPDATES).faults)


def test_ids_occur_as_often_as_they_should_and_never_twice_in_a_batch() -> None:
    assert (OF_ROW == 4).all()
    ids = ids_of(np.arange(4 * APART), 4)
    assert all(len(set(ids[first : first + APART])) == APART for first in range(0, 4 * APART, APART))
    assert (ids_of(np.arange(9), 1) == np.arange(9)).all()


@pytest.mark.parametrize(
    ("counts", "explained"),
    [
        ({}, 0),
        ({"cached_rows_lost": 2}, 2 * UPDATES),
        ({"cache_dropped.counts": 1}, UPDATES),
        ({"pushes_unanswered": 3}, 3 * LOCAL),
    ],
)
def test_updates_of_cached_rows_may_be_missing_as_far_as_reports_explain_it(
    counts: dict[str, int], explained: int
) -> None:
    assert cached_faults(missing=explained, **counts) == []
    sentence = f"cached: {explained + 1} updates of rows are missing, and the reports explain {explained}"
    assert cached_faults(missing=explained + 1, **counts) == [sentence]


@pytest.mark.parametrize("name", ["lost_batches_dropped", "applied_batches_dealt_again"])
def test_updates_of_cached_rows_may_be_extra_where_batches_were_dealt_again(name: str) -> None:
    assert cached_faults(extra=2 * LOCAL, **{name: 2}) == []
    assert len(cached_faults(extra=2 * LOCAL + 1, **{name: 2})) == 1
    assert len(cached_faults(extra=1)) == 1


def test_a_cached_row_that_no_number_of_gradients_explains_is_a_fault() -> None:
    applied = OF_ROW.astype(np.float64)
    applied[3] += 0.5
    (fault,) = cached_balance([], applied, OF_ROW, LOCAL, UPDATES).faults
    assert fault == "cached: 1 rows have values that no number of gradients explains"
