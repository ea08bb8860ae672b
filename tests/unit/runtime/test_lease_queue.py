"""Leases are dealt in order, one epoch at a time, and what is reserved is neither lost nor dealt twice."""

from collections.abc import Iterator

import numpy as np
import pytest

from hotrow.data.batch import Batch
from hotrow.data.loader import Lease
from hotrow.runtime import LeaseQueue


def leases(*epochs: int) -> Iterator[tuple[Lease, Batch]]:
    """So many batches in each epoch."""
    number = 0
    for epoch, batches in enumerate(epochs):
        for index in range(batches):
            yield Lease(number, epoch, index, 1), Batch((), np.zeros((1, 0), np.float32))
            number += 1


def numbers(pool: LeaseQueue, count: int) -> list[int]:
    attached = [pool.attach() for _ in range(count)]
    return [lease[0].number for lease in attached if lease is not None]


def test_leases_come_in_order_until_the_epoch_is_over() -> None:
    pool = LeaseQueue(leases(3, 2))
    assert pool.open_epoch() == 0
    assert [pool.reserve() for _ in range(5)] == [True, True, True, False, False]
    assert numbers(pool, 3) == [0, 1, 2]
    assert pool.open_epoch() == 1
    assert [pool.reserve() for _ in range(3)] == [True, True, False]
    assert numbers(pool, 2) == [3, 4]
    assert pool.open_epoch() is None
    assert not pool.reserve()


def test_epochs_without_batches_are_passed_over_and_none_is_the_end() -> None:
    pool = LeaseQueue(leases(0, 1))
    assert pool.open_epoch() == 1
    assert LeaseQueue(leases()).open_epoch() is None


def test_the_first_that_is_reserved_is_attached_first() -> None:
    pool = LeaseQueue(leases(4))
    pool.open_epoch()
    pool.reserve()
    pool.reserve()
    assert numbers(pool, 1) == [0]
    pool.reserve()
    assert numbers(pool, 2) == [1, 2]


def test_what_is_released_comes_again_first_and_in_order() -> None:
    pool = LeaseQueue(leases(5, 1))
    pool.open_epoch()
    for _ in range(3):
        pool.reserve()
    assert numbers(pool, 1) == [0]
    assert pool.reserved == 2
    pool.release(2)
    pool.release(0)
    assert pool.reserved == 0
    assert [pool.reserve() for _ in range(5)] == [True, True, True, True, False]
    assert numbers(pool, 4) == [1, 2, 3, 4]
    assert pool.open_epoch() == 1


def test_an_epoch_with_something_reserved_does_not_end() -> None:
    pool = LeaseQueue(leases(2))
    pool.open_epoch()
    pool.reserve()
    with pytest.raises(AssertionError, match="reserved"):
        pool.open_epoch()


def test_opening_an_epoch_again_goes_on_with_it() -> None:
    pool = LeaseQueue(leases(2))
    pool.open_epoch()
    pool.reserve()
    assert numbers(pool, 1) == [0]
    assert pool.open_epoch() == 0
    pool.reserve()
    assert numbers(pool, 1) == [1]


def test_time_spent_on_reading_is_told_once() -> None:
    pool = LeaseQueue(leases(1))
    pool.open_epoch()
    assert pool.take_waited() > 0
    assert pool.take_waited() == 0


def test_closing_ends_the_reading() -> None:
    reading = leases(3)
    pool = LeaseQueue(reading)
    pool.open_epoch()
    pool.close()
    assert next(reading, None) is None
    LeaseQueue(iter([])).close()  # nothing there to end


def test_a_lease_that_is_given_back_is_handed_out_before_later_ones() -> None:
    pool = LeaseQueue(leases(5, 1))
    pool.open_epoch()
    for _ in range(4):
        pool.reserve()
    taken = [lease for _ in range(3) if (lease := pool.attach()) is not None]
    for place in (2, 0, 1):
        pool.give_back(taken[place])
    assert [pool.reserve() for _ in range(5)] == [True, True, True, True, False]
    assert numbers(pool, 5) == [3, 0, 1, 2, 4]
    pool.give_back(taken[1])
    assert pool.reserve(), "also at the end of the epoch"
    assert numbers(pool, 1) == [1]
