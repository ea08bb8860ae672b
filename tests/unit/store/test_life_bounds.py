"""Capacity, eviction and expiry on both sides of every bound. Each step is compared with the slow twin besides."""

from typing import Any

import numpy as np
import pytest

from hotrow import InputError
from hotrow.store import RamTier
from oracles.life_pair import DIM, Pair, as_keys, fallen, life_table, ones, order


def filled(keys: list[int], **settings: Any) -> Pair:
    """A table of just the capacity for its keys, which came in one call."""
    pair = Pair(life_table(capacity=len(keys), **settings))
    pair.find_or_init(keys)
    return pair


# Capacity


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_a_full_table_holds_all_and_one_more_costs_the_first(policy: str) -> None:
    pair = Pair(life_table(capacity=3, eviction=policy))
    batch, _ = pair.find_or_init([1, 2, 3])
    assert (fallen(batch), len(pair.tier)) == ([], 3)
    batch, _ = pair.find_or_init([4])
    assert (fallen(batch), order(pair), len(pair.tier)) == ([1], [2, 3, 4], 3)
    assert pair.tier.stats().evicted == 1


def test_a_capacity_of_one_row_works() -> None:
    pair = Pair(life_table(capacity=1))
    batch, _ = pair.find_or_init([5, 6, 5, 7])
    assert (fallen(batch), order(pair)) == ([5, 6], [7])
    pair.check([5, 6, 7])


def test_rows_of_the_batch_that_exist_are_safe_from_those_it_brings() -> None:
    pair = filled([1, 2, 3])
    batch, _ = pair.find_or_init([9, 1])  # 9 comes first, yet 1 is seen before room is made
    assert (fallen(batch), order(pair)) == ([2], [3, 1, 9])


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_a_batch_larger_than_the_capacity_gives_all_values_and_keeps_the_last(policy: str) -> None:
    pair = Pair(life_table(capacity=3, eviction=policy))
    pair.find_or_init([1, 2])
    pair.apply([1, 2], ones(2))
    batch, done = pair.find_or_init([10, 1, 11, 2, 12, 13, 14])  # the values are compared in there
    expected = [10, 11, 12, 13] if policy == "lfu" else [1, 2, 10, 11]
    assert fallen(batch) == expected
    assert not done.turned_away
    updated = pair.apply([10, 1, 11, 2, 12, 13, 14], ones(7), batch)
    assert (updated.rows, updated.absent) == (3, 4)
    pair.check([1, 2, *range(10, 15)])


def test_duplicates_take_one_row_each() -> None:
    pair = Pair(life_table(capacity=2))
    batch, _ = pair.find_or_init([1, 2, 1, 1, 2])
    assert (fallen(batch), order(pair)) == ([], [1, 2])


def test_erasing_makes_room() -> None:
    pair = filled([1, 2, 3])
    assert pair.erase([2, 2, 9]) == 1
    batch, _ = pair.find_or_init([4])
    assert (fallen(batch), order(pair)) == ([], [1, 3, 4])
    assert pair.take() == []  # an erased row was not evicted


def test_an_evicted_row_starts_anew() -> None:
    pair = filled([1, 2])
    pair.apply([1], ones(1))
    batch, _ = pair.find_or_init([3])
    assert batch.evicted is not None
    assert batch.evicted.fields["version"].tolist() == [2]
    pair.find_or_init([1])
    assert pair.tier.versions(as_keys([1])).tolist() == [1]
    pair.check([1, 2, 3])


def test_evicted_rows_carry_what_they_had_learnt_and_are_gone_with_the_next_lookup() -> None:
    pair = filled([1, 2])
    pair.apply([1, 2], ones(2))
    before = np.zeros((2, DIM), np.float32)
    pair.tier.find(as_keys([1, 2]), before)
    batch, _ = pair.find_or_init([3, 4])
    assert batch.evicted is not None
    np.testing.assert_array_equal(batch.evicted.values, before)
    pair.look_up(batch, [3, 4])
    assert fallen(batch) == []


def test_evicted_keys_are_listed_once() -> None:
    pair = filled([1, 2, 3])
    pair.find_or_init([4, 5])
    assert pair.take() == [1, 2]
    assert pair.take() == []
    pair.put([6], ones(1))
    assert pair.take() == [3]


def test_put_evicts_as_a_lookup_does() -> None:
    pair = filled([1, 2, 3])
    pair.put([4, 5], ones(2))
    assert order(pair) == [3, 4, 5]
    pair.put([3], ones(1))
    assert order(pair) == [4, 5, 3]
    pair.check([1, 2, 3, 4, 5])


def test_put_larger_than_the_capacity_keeps_the_last() -> None:
    pair = Pair(life_table(capacity=2))
    pair.put([1, 2, 3, 4], ones(4))
    assert order(pair) == [3, 4]


# Who decides, and who does not disturb


@pytest.mark.parametrize("policy", ["lru", "lfu"])
def test_looking_and_changing_leave_the_order_alone(policy: str) -> None:
    pair = filled([1, 2, 3], eviction=policy, clock=True)
    pair.find([3, 1, 9])
    pair.find_or_init([1, 1, 2], seen=False)
    pair.apply([1], ones(1))
    pair.add([2], ones(1))
    pair.tier.read(as_keys([1]), "version")
    pair.tier.first_values(as_keys([1]), np.zeros((1, DIM), np.float32))
    list(pair.tier.export())
    assert order(pair) == [1, 2, 3]
    pair.check([1, 2, 3])


def test_reading_ahead_brings_absent_rows() -> None:
    pair = filled([1, 2, 3])
    batch, _ = pair.find_or_init([4, 1], seen=False)
    assert (fallen(batch), order(pair)) == ([1], [2, 3, 4])  # 1 was read, not seen: it goes all the same


def test_lookups_and_touches_are_seeing() -> None:
    pair = filled([1, 2, 3, 4])
    pair.find_or_init([2, 1, 2])
    assert order(pair) == [3, 4, 2, 1]
    assert pair.touch([4, 9, 3, 4]) == 2
    assert order(pair) == [2, 1, 4, 3]


def test_lfu_evicts_the_rarest_and_among_equals_the_oldest() -> None:
    pair = filled([1, 2, 3], eviction="lfu")
    pair.find_or_init([1, 1, 3])  # 1: three times, 3: twice, 2: once
    assert order(pair) == [2, 3, 1]
    pair.touch([2])  # as often as 3, and seen later
    assert order(pair) == [3, 2, 1]
    batch, _ = pair.find_or_init([4])
    assert (fallen(batch), order(pair)) == ([3], [4, 2, 1])
    batch, _ = pair.find_or_init([5, 5])  # the newcomer before it was seen once only
    assert (fallen(batch), order(pair)) == ([4], [2, 5, 1])


def test_a_row_that_comes_back_counts_from_the_start() -> None:
    pair = Pair(life_table(capacity=2, eviction="lfu"))
    pair.find_or_init([1] * 5 + [2] * 9)
    pair.find_or_init([3] * 20)
    assert order(pair) == [2, 3]
    pair.find_or_init([1])
    assert order(pair) == [1, 3]


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        (4094, 4093, [2, 1]),
        (4094, 4094, [1, 2]),
        (4095, 4094, [2, 1]),
        (4096, 4095, [1, 2]),  # from 4095 on all count alike, and the older goes
        (9000, 4095, [1, 2]),
        (4095, 4096, [1, 2]),
    ],
)
def test_lfu_tells_frequencies_apart_up_to_4095(older: int, newer: int, expected: list[int]) -> None:
    pair = Pair(life_table(capacity=2, eviction="lfu"))
    pair.find_or_init([1] * older)
    pair.find_or_init([2] * newer)
    assert order(pair) == expected
    batch, _ = pair.find_or_init([3])
    assert fallen(batch) == expected[:1]
    pair.check([1, 2, 3])


def test_lfu_counts_over_calls_as_within_one() -> None:
    pair = Pair(life_table(capacity=2, eviction="lfu"))
    pair.find_or_init([1] * 4094 + [2] * 4095)
    assert order(pair) == [1, 2]
    pair.touch([1])  # 4095 now: both count alike, and 2 was placed before
    assert order(pair) == [2, 1]
    assert pair.tier.read(as_keys([1, 2]), "frequency").tolist() == [4095, 4095]


def test_rows_can_be_put_back_with_their_frequency() -> None:
    pair = filled([1, 2, 3], eviction="lfu")
    rows = next(pair.tier.export())
    pair.tier.put(as_keys([2]), ones(1), fields={"frequency": np.array([7], np.uint32)})
    assert order(pair) == [1, 3, 2]
    pair.tier.put(as_keys([1, 2, 3]), ones(3), fields={"frequency": np.array([3, 1, 2], np.uint32)})
    assert order(pair) == [2, 3, 1]
    assert {"frequency", "last_seen"} <= set(rows.fields)
    assert pair.tier.verify() == []


# Refusing


def test_a_full_table_that_refuses_gives_the_default_row_and_counts() -> None:
    pair = Pair(life_table(capacity=2, eviction="refuse", default=0.25))
    batch, done = pair.find_or_init([1, 2])
    assert not done.turned_away
    batch, done = pair.find_or_init([3, 1, 3])
    assert done.turned_away == {3}
    updated = pair.apply([3, 1, 3], ones(3), batch, {3})
    assert (updated.rows, updated.absent, updated.unadmitted) == (1, 0, 1)
    stats = pair.tier.stats()
    assert (stats.turned_away, stats.unadmitted, stats.absent, stats.evicted) == (1, 1, 0, 0)
    pair.find([3])  # a plain lookup says absent, as ever
    assert pair.apply([3], ones(1)).absent == 1
    pair.erase([1])
    pair.find_or_init([3])
    pair.check([1, 2, 3])
    assert pair.twin.keys() == {2, 3}


def test_putting_into_a_full_table_that_refuses_is_told() -> None:
    pair = filled([1, 2], eviction="refuse")
    batch, done = pair.put([3, 1], ones(2))
    assert (batch.turned_away, done.turned_away) == (1, {3})
    pair.check([1, 2, 3])
    assert pair.tier.stats().turned_away == 1


def test_a_table_without_an_order_has_none_to_show() -> None:
    for table in (life_table(), life_table(capacity=3, eviction="refuse"), life_table(expiry=5)):
        with pytest.raises(InputError, match="eviction"):
            RamTier(table).eviction_order()
    with pytest.raises(InputError, match="partition"):
        RamTier(life_table(capacity=3)).eviction_order(1)


def test_evicted_rows_are_kept_only_where_asked() -> None:
    tier = RamTier(life_table(capacity=1))
    batch = tier.find_or_init(as_keys([1, 2]))
    assert batch.evicted is None or len(batch.evicted.keys) == 0
    assert tier.take_evicted_keys().keys.tolist() == [1]
