"""Who is let in: by exact counts, by counts in a Bloom filter, by chance. Both sides of each count."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow import AtLeast, Chance
from hotrow.store import RamTier
from oracles.life_pair import DIM, Pair, as_keys, life_table, ones

DEFAULT = -7.5


def counted(count: int, **settings: Any) -> Pair:
    return Pair(life_table(admission=AtLeast(count=count), default=DEFAULT, **settings))


@pytest.mark.parametrize("count", [2, 3, 300])
def test_a_key_is_let_in_at_its_count_and_not_before(count: int) -> None:
    pair = counted(count)
    for _ in range(count - 1):
        _, done = pair.find_or_init([1])
        assert done.turned_away == {1}
    assert len(pair.tier) == 0
    _, done = pair.find_or_init([1])
    assert (done.turned_away, len(pair.tier)) == (set(), 1)
    pair.check([1])
    assert pair.tier.stats().turned_away == count - 1


def test_occurrences_within_a_batch_count() -> None:
    pair = counted(3)
    assert pair.find_or_init([1, 2, 2, 2, 3, 3])[1].turned_away == {1, 3}
    assert pair.find_or_init([3, 1])[1].turned_away == {1}
    assert pair.find_or_init([1])[1].turned_away == set()
    pair.check([1, 2, 3])


def test_a_key_not_let_in_gives_the_default_row_and_its_gradient_is_counted() -> None:
    pair = counted(3)
    batch, done = pair.find_or_init([1, 2, 1, 2, 2])  # the values are compared in there
    assert done.turned_away == {1}
    updated = pair.apply([1, 2, 1, 2, 2], ones(5), batch, {1})
    assert (updated.rows, updated.absent, updated.unadmitted) == (1, 0, 1)
    updated = pair.add([1, 2, 1, 2, 2], ones(5), batch, {1})
    assert (updated.rows, updated.absent, updated.unadmitted) == (1, 0, 1)
    assert pair.apply([1, 9], ones(2)).absent == 2  # nobody asked for these
    stats = pair.tier.stats()
    assert (stats.unadmitted, stats.absent) == (2, 2)


@pytest.mark.parametrize("per", ["key", "unique"])
def test_the_default_row_is_given_in_both_shapes(per: Any) -> None:
    tier = RamTier(life_table(admission=AtLeast(count=2), default=DEFAULT))
    batch = tier.batch(as_keys([5, 5, 6]))
    out = np.zeros((3 if per == "key" else 2, DIM), np.float32)
    tier.find_or_init(batch, out, per=per)
    given = out if per == "key" else out[batch.inverse]
    assert (given[2] == DEFAULT).all()
    assert (given[:2] != DEFAULT).any()


def test_find_counts_nothing_and_says_nan() -> None:
    pair = counted(2)
    for _ in range(5):
        pair.find([1])
    assert pair.find_or_init([1])[1].turned_away == {1}
    pair.find([1])


def test_reading_ahead_counts_nothing_and_lets_nobody_in() -> None:
    pair = counted(2)
    for _ in range(5):
        assert pair.find_or_init([1, 1, 1], seen=False)[1].turned_away == {1}
    assert pair.find_or_init([1])[1].turned_away == {1}
    assert pair.find_or_init([1], seen=False)[1].turned_away == {1}
    assert pair.find_or_init([1])[1].turned_away == set()
    assert pair.find_or_init([1], seen=False)[1].turned_away == set()
    pair.check([1])


def test_put_and_touch_and_gradients_pass_admission_by() -> None:
    pair = counted(3, capacity=5)
    pair.put([1], ones(1))
    assert pair.find_or_init([1])[1].turned_away == set()
    assert pair.touch([2, 2, 2]) == 0
    pair.apply([2, 2, 2], ones(3))
    assert pair.find_or_init([2])[1].turned_away == {2}
    pair.check([1, 2])


def test_an_evicted_key_must_be_admitted_anew() -> None:
    pair = counted(2, capacity=1)
    pair.find_or_init([1, 1])
    pair.find_or_init([2, 2])
    assert pair.twin.keys() == {2}
    assert pair.find_or_init([1])[1].turned_away == {1}
    assert pair.find_or_init([1])[1].turned_away == set()
    pair.check([1, 2])


def test_an_expired_key_must_be_admitted_anew() -> None:
    pair = counted(2, expiry=10)
    pair.find_or_init([1, 1], samples=0)
    assert pair.find_or_init([1], samples=11)[1].turned_away == {1}
    assert pair.find_or_init([1])[1].turned_away == set()
    pair.check([1])
    pair.settle()


def test_an_erased_key_must_be_admitted_anew() -> None:
    pair = counted(2)
    pair.find_or_init([1, 1])
    pair.erase([1])
    assert pair.find_or_init([1])[1].turned_away == {1}


def test_a_key_turned_away_evicts_nobody() -> None:
    pair = counted(2, capacity=2)
    pair.find_or_init([1, 1, 2, 2])
    batch, _ = pair.find_or_init([3, 4, 5])
    assert batch.evicted is not None
    assert len(batch.evicted.keys) == 0
    assert pair.twin.keys() == {1, 2}
    pair.check([1, 2, 3])


def test_the_frequency_of_a_new_row_is_what_its_batch_holds() -> None:
    pair = counted(5, capacity=3, eviction="lfu")
    pair.find_or_init([1] * 4)
    pair.find_or_init([1] * 2)
    assert pair.tier.read(as_keys([1]), "frequency").tolist() == [2]
    pair.check([1])


def test_many_waiting_keys_are_counted_exactly() -> None:
    """Enough of them that the counts' memory grows many times, with keys leaving it in between."""
    tier = RamTier(life_table(admission=AtLeast(count=3)))
    generator = np.random.default_rng(3)
    counts: Counter[int] = Counter()
    for _ in range(30):
        keys = generator.integers(0, 20_000, 3000).astype(np.uint64)
        tier.find_or_init(keys)
        counts.update(keys.tolist())
        inside = {key for key, count in counts.items() if count >= 3}
        assert len(tier) == len(inside)
    found = tier.versions(as_keys(range(20_000))) > 0
    assert set(np.flatnonzero(found).tolist()) == inside
    assert tier.stats().admission_bytes > 0


# The filter


def present(tier: RamTier, keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    return tier.versions(keys) > 0


@pytest.mark.parametrize("size", [64, 2048, "64KiB"])
@pytest.mark.parametrize("count", [2, 7, 255])
def test_a_filter_is_never_later_than_exact_counts(size: Any, count: int) -> None:
    tier = RamTier(life_table(admission=AtLeast(count=count, filter=size)), partitions=2)
    exact = RamTier(life_table(admission=AtLeast(count=count)), partitions=2)
    generator = np.random.default_rng(count)
    every = as_keys(range(300))
    for _ in range(40):
        keys = (generator.zipf(1.3, 400) % 300).astype(np.uint64)
        tier.find_or_init(keys)
        exact.find_or_init(keys)
        assert (present(tier, every) >= present(exact, every)).all()
    assert present(exact, every).any()


def test_a_filter_with_room_counts_exactly() -> None:
    tier = RamTier(life_table(admission=AtLeast(count=3, filter="4MiB")))
    exact = RamTier(life_table(admission=AtLeast(count=3)))
    generator = np.random.default_rng(8)
    every = as_keys(range(2000))
    for _ in range(20):
        keys = generator.integers(0, 2000, 300).astype(np.uint64)
        tier.find_or_init(keys)
        exact.find_or_init(keys)
        np.testing.assert_array_equal(present(tier, every), present(exact, every))
    assert 0 < len(exact) < 2000
    assert abs(tier.stats().admission_bytes - 4 * 2**20) <= 64 * 32


@pytest.mark.parametrize("partitions", [1, 32])
def test_a_filter_takes_no_more_than_was_given(partitions: int) -> None:
    for size in (64, 4096, 100_000):
        tier = RamTier(life_table(admission=AtLeast(count=3, filter=size)), partitions=partitions)
        tier.find_or_init(as_keys(range(5000)))
        assert tier.stats().admission_bytes <= max(size, 64 * partitions)


def test_a_filter_counts_its_last_step_and_sticks_there() -> None:
    tier = RamTier(life_table(admission=AtLeast(count=255, filter=64)))
    tier.find_or_init(as_keys([1] * 254))
    assert len(tier) == 0
    tier.find_or_init(as_keys([1]))
    assert len(tier) == 1
    tier.find_or_init(as_keys([2] * 100_000))
    assert len(tier) == 2


# Chance


def admitted_by(tier: RamTier, calls: int, keys: int) -> list[list[int]]:
    """For each call, which keys are in after it."""
    ids = as_keys(range(keys))
    history = []
    for _ in range(calls):
        tier.find_or_init(ids)
        history.append(np.flatnonzero(present(tier, ids)).tolist())
    return history


@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5, 0.97])
def test_the_share_let_in_is_the_probability(probability: float) -> None:
    keys = 40_000
    tier = RamTier(life_table(admission=Chance(probability=probability)))
    out = 1.0
    for history in admitted_by(tier, 3, keys):
        out *= 1 - probability  # share that is still outside
        sigma = (keys * out * (1 - out)) ** 0.5
        assert abs(len(history) - keys * (1 - out)) < 5 * sigma + 1


def test_occurrences_in_a_batch_are_one_chance() -> None:
    tier = RamTier(life_table(admission=Chance(probability=0.1)))
    tier.find_or_init(np.repeat(np.arange(10_000, dtype=np.uint64), 5))
    assert abs(len(tier) - 1000) < 5 * (10_000 * 0.1 * 0.9) ** 0.5


def test_the_same_calls_let_in_the_same_keys() -> None:
    made = [
        RamTier(life_table(admission=Chance(probability=0.3)), threads=threads, partitions=partitions)
        for threads, partitions in ((1, 1), (1, 32), (2, 32))
    ]
    first, *others = [admitted_by(tier, 4, 3000) for tier in made]
    assert all(other == first for other in others)


def test_another_seed_or_call_draws_again() -> None:
    one, other = (admitted_by(RamTier(life_table(seed=s, admission=Chance(probability=0.5))), 2, 1000) for s in (0, 1))
    assert one[0] != other[0]
    assert set(one[0]) < set(one[1])


def test_chance_turns_away_with_the_default_row_and_counts() -> None:
    tier = RamTier(life_table(admission=Chance(probability=0.5), default=DEFAULT))
    out = np.zeros((1000, DIM), np.float32)
    batch = tier.find_or_init(as_keys(range(1000)), out)
    turned = int((out == DEFAULT).all(axis=1).sum())
    assert turned == 1000 - len(tier)
    applied = tier.apply(batch, ones(1000))
    assert (applied.rows, applied.unadmitted, applied.absent) == (len(tier), turned, 0)
    assert (tier.stats().turned_away, tier.stats().unadmitted) == (turned, turned)


def test_reading_ahead_takes_no_chances() -> None:
    tier = RamTier(life_table(admission=Chance(probability=0.9), default=DEFAULT))
    out = np.zeros((50, DIM), np.float32)
    tier.find_or_init(as_keys(range(50)), out, seen=False)
    assert len(tier) == 0
    assert (out == DEFAULT).all()
