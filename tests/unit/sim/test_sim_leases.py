"""Leases: in order, each sample once, and what comes back goes out first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import InputError
from hotrow.sim.leases import Batches, Counted, SimLease, SimLeasePool


def test_counted_samples_come_in_local_batches_and_what_is_left() -> None:
    source = Counted(20)
    assert [source.take(8), source.take(8), source.take(8), source.take(8)] == [
        SimLease(1, 8),
        SimLease(2, 8),
        SimLease(3, 4),
        None,
    ]
    with pytest.raises(InputError, match="samples=0: a run needs 1 or more"):
        Counted(0)


def test_the_first_lease_that_is_reserved_goes_with_the_next_grant() -> None:
    pool = SimLeasePool(Counted(24), 8)
    assert [pool.reserve(), pool.reserve(), pool.reserve(), pool.reserve()] == [True, True, True, False]
    assert [pool.attach(), pool.attach()] == [SimLease(1, 8), SimLease(2, 8)]
    pool.give_back(SimLease(1, 8))
    assert not pool.exhausted
    assert pool.reserve()
    assert [pool.attach(), pool.attach(), pool.attach()] == [SimLease(1, 8), SimLease(3, 8), None]
    assert pool.exhausted


def test_who_gives_up_gives_the_last_reservations_back() -> None:
    pool = SimLeasePool(Counted(32), 8)
    for _ in range(3):
        pool.reserve()
    pool.release(2)
    assert pool.attach() == SimLease(1, 8)
    assert pool.has_returned
    assert [pool.take(), pool.take(), pool.take(), pool.take()] == [
        SimLease(2, 8),
        SimLease(3, 8),
        SimLease(4, 8),
        None,
    ]


def test_after_a_resize_all_samples_come_in_leases_of_the_new_size() -> None:
    pool = SimLeasePool(Counted(32), 8)
    first, _ = pool.take(), pool.take()
    assert first is not None
    pool.give_back(first)
    pool.resize(12)
    assert [pool.take(), pool.take(), pool.take()] == [SimLease(3, 12), SimLease(4, 12), None]


def test_a_pool_that_was_empty_is_not_after_something_came_back_and_was_cut_anew() -> None:
    pool = SimLeasePool(Counted(8), 8)
    lease = pool.take()
    assert pool.take() is None
    assert lease is not None
    pool.give_back(lease)
    pool.resize(4)
    assert not pool.exhausted
    assert [pool.reserve(), pool.reserve(), pool.reserve()] == [True, True, False]


@given(st.lists(st.sampled_from(["reserve", "attach", "return", "release", "resize"]), max_size=60), st.integers(1, 90))
def test_whatever_happens_every_sample_is_handed_out_and_none_twice(actions: list[str], samples: int) -> None:
    pool, out, size = SimLeasePool(Counted(samples), 8), list[SimLease](), 8
    for action in actions:
        if action == "reserve":
            pool.reserve()
        elif action == "attach" and (lease := pool.attach()) is not None:
            out.append(lease)
        elif action == "return" and out:
            pool.give_back(out.pop(0))
        elif action == "release":
            pool.release(pool.reserved // 2)
        elif action == "resize":
            pool.release(pool.reserved)
            size = 13 - size
            pool.resize(size)
    while pool.reserve():
        pass
    while (lease := pool.attach()) is not None:
        out.append(lease)
    assert sum(lease.samples for lease in out) == samples
    assert len({lease.number for lease in out}) == len(out)
    assert pool.exhausted


def made(first: int, count: int) -> Batch:
    rows = np.arange(first, first + count)
    bounds = np.arange(count + 1) * 2
    parts = (FeatureBlock("t", "one", ("a",), rows), FeatureBlock("t", "bags", ("b",), np.repeat(rows, 2), bounds))
    return Batch(parts, rows[:, None].astype(np.float32), rows[:, None].astype(np.float32))


def test_real_batches_are_cut_to_what_is_asked_for_and_lose_no_row() -> None:
    sizes = [5, 0, 7, 1, 10]
    starts = np.cumsum([0, *sizes])
    source = Batches((None, made(int(start), size)) for start, size in zip(starts, sizes, strict=False))
    leases = [source.take(6), source.take(2), source.take(6)]
    source.put_back([lease for lease in leases[1:] if lease is not None])
    leases = [leases[0], source.take(9), source.take(9)]
    assert source.take(9) is None
    assert [lease and (lease.number, lease.samples) for lease in leases] == [(1, 6), (4, 9), (5, 8)]
    batches = [lease.batch for lease in leases if lease is not None and lease.batch is not None]
    assert np.concatenate([batch.numbers[:, 0] for batch in batches]).tolist() == list(range(23))
    assert np.concatenate([batch.parts[1].keys for batch in batches]).tolist() == sorted([*range(23), *range(23)])
