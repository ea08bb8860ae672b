"""Expiry on both sides of every bound. Each step is compared with the slow twin besides."""

import numpy as np
import pytest

from hotrow.store import RamTier
from oracles.life_pair import DIM, Pair, as_keys, fallen, life_table, ones, order


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


@pytest.mark.parametrize("settings", [{"expiry": 100}, {"capacity": 10}])
def test_rows_put_back_in_several_calls_were_last_seen_when_they_were(settings: dict[str, int]) -> None:
    tiers = [RamTier(life_table(**settings)) for _ in range(2)]
    for key in range(6):
        tiers[0].find_or_init(as_keys([key]), samples=2000 * key if "capacity" in settings else 10 * key)
    tiers[1].put(as_keys([9]), ones(1))
    tiers[1].touch(as_keys([]), samples=50_000)  # where rows expire, this one has: it must not hold the clock
    tiers[1].clear()
    assert len(tiers[1]) == 0
    for chunk in tiers[0].export(rows=2):
        tiers[1].put(chunk.keys, chunk.values, None, chunk.fields)
    keys = as_keys(list(range(6)))
    assert tiers[1].read(keys, "last_seen").tolist() == tiers[0].read(keys, "last_seen").tolist()
    assert tiers[1].samples == tiers[0].samples
    tiers[1].touch(as_keys([]), samples=60)
    samples = tiers[1].samples
    tiers[1].put(as_keys([7]), ones(1), None, {"last_seen": np.array([2**20], np.uint32)})
    assert tiers[1].samples == samples  # it has a clock of its own now
