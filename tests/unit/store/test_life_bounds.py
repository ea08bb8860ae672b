"""Capacity, eviction and expiry on both sides of every bound. Each step is compared with the slow twin besides."""

from typing import Any

import numpy as np
import pytest

from hotrow import AtLeast, Chance, ConfigError, InputError
from hotrow.store import RamTier
from oracles.life import partitions_for
from oracles.life_pair import DIM, Pair, as_keys, life_table


def ones(count: int) -> Any:
    return np.ones((count, DIM), np.float32)


def order(pair: Pair) -> list[int]:
    return [int(key) for key in pair.tier.eviction_order(0)]


def fallen(batch: Any) -> list[int]:
    return [int(key) for key in batch.evicted.keys]


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


# Expiry


@pytest.mark.parametrize("expiry", [1, 10, 65_536])
def test_a_row_lives_for_just_so_many_samples(expiry: int) -> None:
    pair = Pair(life_table(expiry=expiry))
    pair.find_or_init([1], samples=5)
    pair.find_or_init([2], samples=5 + expiry)
    pair.check([1, 2])
    assert pair.twin.keys() == {1, 2}
    pair.find_or_init([2], samples=6 + expiry)
    pair.check([1, 2])
    assert pair.twin.keys() == {2}
    assert pair.settle() in (0, 1)
    assert pair.listed == [1]


@pytest.mark.parametrize(("expiry", "unit"), [(65_537, 2), (131_072, 2), (131_073, 3), (10**9, 15_259), (2**61, 2**45)])
def test_long_expiries_are_counted_in_units(expiry: int, unit: int) -> None:
    pair = Pair(life_table(expiry=expiry))
    lives = expiry // unit  # whole units a row may be behind
    pair.find_or_init([1], samples=unit - 1)  # still in unit 0
    pair.touch([], samples=(lives + 1) * unit - 1)
    pair.check([1])
    assert pair.twin.keys() == {1}
    pair.touch([], samples=(lives + 1) * unit)
    pair.check([1])
    assert pair.twin.keys() == set()


def test_expired_rows_are_absent_to_everybody_at_once() -> None:
    pair = Pair(life_table(expiry=10, clock=True))
    pair.find_or_init([1, 2], samples=0)
    pair.find_or_init([2], samples=5)
    pair.find_or_init([2], samples=11)
    assert pair.touch([1]) == 0
    assert pair.erase([1]) == 0
    assert pair.apply([1, 2], ones(2)).absent == 1
    assert pair.add([1], ones(1)).absent == 1
    assert pair.tier.clocks(as_keys([1])).tolist() == [0]
    pair.check([1, 2])
    pair.find_or_init([1])
    assert pair.tier.versions(as_keys([1])).tolist() == [1]
    pair.check([1, 2])
    pair.settle()
    assert pair.tier.stats().expired == 1


def test_expire_sweeps_everything_and_says_how_much() -> None:
    pair = Pair(life_table(expiry=10), partitions=4)
    pair.find_or_init(list(range(100)), samples=0)
    pair.touch([7, 8], samples=5)
    assert pair.tier.expire(10) == 0
    assert len(pair.tier) == 100
    assert pair.tier.expire(11) == 98
    pair.twin.expire(11)
    assert len(pair.tier) == 2
    pair.settle()
    assert sorted(pair.listed) == [key for key in range(100) if key not in (7, 8)]
    assert RamTier(life_table()).expire(10**9) == 0  # nothing expires here


def test_reading_ahead_keeps_nothing_alive() -> None:
    pair = Pair(life_table(expiry=10))
    pair.find_or_init([1, 2], samples=0)
    pair.find_or_init([1], samples=8, seen=False)
    pair.find([1])
    pair.apply([1], ones(1))
    pair.touch([2], samples=8)
    pair.touch([], samples=11)
    pair.check([1, 2])
    assert pair.twin.keys() == {2}


def test_time_never_goes_back_and_stands_still_without_samples() -> None:
    pair = Pair(life_table(expiry=10))
    pair.find_or_init([1], samples=100)
    pair.find_or_init([2], samples=3)  # late news: it is 100 all the same
    for _ in range(20):
        pair.find_or_init([3])
    pair.touch([], samples=110)
    pair.check([1, 2, 3])
    assert pair.twin.keys() == {1, 2, 3}


def test_a_put_row_starts_its_life_now() -> None:
    pair = Pair(life_table(expiry=10))
    pair.find_or_init([1, 2], samples=0)
    pair.touch([], samples=8)
    pair.put([1], ones(1))
    pair.put([3], ones(1))
    pair.touch([], samples=11)
    pair.check([1, 2, 3])
    assert pair.twin.keys() == {1, 3}


def test_memory_of_expired_rows_comes_back_with_the_lookups() -> None:
    pair = Pair(life_table(expiry=10))
    pair.find_or_init(list(range(1000)), samples=0)
    for call in range(40):
        pair.find_or_init(list(range(2000, 2100)), samples=11 + call)
    assert len(pair.tier) < 1100
    pair.settle()


def test_a_full_table_of_expired_rows_takes_new_keys_even_if_it_refuses() -> None:
    tier = RamTier(life_table(capacity=4, eviction="refuse", expiry=10, default=0.25))
    tier.find_or_init(as_keys([1, 2, 3, 4]), samples=0)
    out = np.zeros((1, DIM), np.float32)
    tier.find_or_init(as_keys([5]), out, samples=11)
    assert tier.stats().turned_away == 0
    assert (out != 0.25).any()
    assert tier.verify() == []


def test_expired_rows_go_before_living_ones_however_often_they_were_seen() -> None:
    pair = Pair(life_table(capacity=3, eviction="lfu", expiry=10))
    pair.find_or_init([1] * 9, samples=0)
    pair.find_or_init([2, 3, 2], samples=5)
    batch, _ = pair.find_or_init([4], samples=11)
    assert (fallen(batch), order(pair)) == ([], [3, 4, 2])
    pair.settle()
    assert (pair.tier.stats().evicted, pair.tier.stats().expired) == (0, 1)


def test_the_stamps_of_calls_without_samples_grow() -> None:
    tier = RamTier(life_table(capacity=10))
    stamps = []
    for key in range(5):
        tier.find_or_init(as_keys([key]))
        stamps += tier.read(as_keys([key]), "last_seen").tolist()
    assert stamps == sorted(set(stamps))


# Capacity over partitions, and in bytes


@pytest.mark.parametrize("capacity", [1, 255, 256, 511, 512, 1023, 1024, 4096, 8191, 8192, 100_000])
def test_small_tables_have_fewer_partitions(capacity: int) -> None:
    tier = RamTier(life_table(capacity=capacity))
    assert tier.partitions == partitions_for(capacity)
    assert tier.stats().capacity_rows == capacity
    assert (tier.partitions == 1) == (capacity < 512)
    assert (tier.partitions == 32) == (capacity >= 8192)


@pytest.mark.parametrize("policy", ["lru", "lfu", "refuse"])
@pytest.mark.parametrize("capacity", [700, 1025])
def test_all_partitions_together_hold_the_capacity(capacity: int, policy: str) -> None:
    tier = RamTier(life_table(capacity=capacity, eviction=policy))
    for start in range(0, 8 * capacity, 500):
        tier.find_or_init(as_keys(range(start, start + 500)))
        assert len(tier) <= capacity
    assert len(tier) == capacity
    assert tier.verify() == []


BYTES: dict[str, dict[str, Any]] = {
    "lru": {"eviction": "lru"},
    "lfu": {"eviction": "lfu"},
    "refuse": {"eviction": "refuse"},
    "narrow": {"type": "float16", "dim": 1},
    "wide": {"dim": 257},
    "expiry": {"expiry": 10**6},
    "filter": {"admission": AtLeast(count=2, filter="200KB")},
    "chance": {"admission": Chance(probability=0.9)},
}


@pytest.mark.parametrize("megabytes", [1, 8])
@pytest.mark.parametrize("settings", BYTES.values(), ids=BYTES)
def test_a_capacity_in_bytes_is_never_passed_and_well_used(settings: dict[str, Any], megabytes: int) -> None:
    tier = RamTier(life_table(capacity=f"{megabytes}MB", **settings))
    limit, capacity = megabytes * 10**6, tier.stats().capacity_rows
    assert capacity > 0
    for start in range(0, 3 * capacity, 4096):
        for _ in range(2):
            tier.find_or_init(as_keys(range(start, min(start + 4096, 3 * capacity))))
        assert tier.stats().bytes <= limit
    stats = tier.stats()
    assert stats.admission_bytes <= (200_000 if "admission" in settings else 0)
    assert stats.bytes > limit // 4
    assert stats.rows > 0.9 * capacity
    assert tier.verify() == []


@pytest.mark.parametrize(("capacity", "partitions"), [(3, 4), (1, 2)])
def test_each_partition_must_hold_a_row(capacity: int, partitions: int) -> None:
    with pytest.raises(ConfigError, match=rf"capacity={capacity}"):
        RamTier(life_table(capacity=capacity), partitions=partitions)
    pair = Pair(life_table(capacity=capacity + 1), partitions=partitions)
    pair.find_or_init(list(range(50)))
    pair.check(list(range(50)))
    assert len(pair.tier) == capacity + 1


@pytest.mark.parametrize("capacity", ["1B", "100B"])
def test_bytes_that_hold_no_row_are_told(capacity: str) -> None:
    with pytest.raises(ConfigError, match="capacity"):
        RamTier(life_table(capacity=capacity))


def test_evicted_rows_are_kept_only_where_asked() -> None:
    tier = RamTier(life_table(capacity=1))
    batch = tier.find_or_init(as_keys([1, 2]))
    assert batch.evicted is None or len(batch.evicted.keys) == 0
    assert tier.take_evicted_keys().keys.tolist() == [1]
