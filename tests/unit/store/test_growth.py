"""A table grows from empty through many splits, shrinks and grows again, and never loses a row, whatever its keys."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow import SGD, Constant, Table
from hotrow.store import RamTier

Keys = NDArray[np.uint64]
BATCH = 20_000


def grown(keys: Keys, dim: int, **options: Any) -> RamTier:
    tier = RamTier(Table(dim=dim, optimizer=SGD(), init=Constant(value=0.0)), **options)
    for start in range(0, len(keys), BATCH):
        tier.find_or_init(keys[start : start + BATCH])
    return tier


def marked(keys: Keys, dim: int) -> NDArray[np.float32]:
    """A value per key that no other key of the test has."""
    return np.repeat(np.arange(1, len(keys) + 1, dtype=np.float32)[:, None], dim, axis=1)


def holds(tier: RamTier, keys: Keys, values: NDArray[np.float32]) -> None:
    out = np.empty_like(values)
    assert tier.find(keys, out).absent == 0
    np.testing.assert_array_equal(out, values)


def random_keys(count: int, seed: int = 0) -> Keys:
    return np.unique(np.random.default_rng(seed).integers(0, 2**64, count, np.uint64))


@pytest.mark.parametrize(("dim", "count"), [(1, 300_000), (2, 60_000), (3, 60_000), (8, 60_000)])
def test_every_row_is_found_after_many_splits(dim: int, count: int) -> None:
    keys = random_keys(count, dim)
    tier = grown(keys, dim, partitions=2)
    assert len(tier) == len(keys)
    assert tier.stats().splits > 10
    values = marked(keys, dim)
    tier.put(keys, values)
    assert len(tier) == len(keys)
    holds(tier, keys, values)
    assert tier.verify() == []
    absent = random_keys(1000, 99)
    assert tier.find(absent, np.empty((len(absent), dim), np.float32)).absent == len(absent)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_index_with_room_for_all_rows_does_not_grow(threads: int) -> None:
    keys = random_keys(50_000)
    tier = RamTier(Table(dim=2, optimizer=SGD(lr=1.0)), threads=threads)
    tier.reserve(len(keys))
    splits = tier.stats().splits
    values = marked(keys, 2)
    for part in np.array_split(np.arange(len(keys)), 4):
        tier.put(keys[part], values[part])
    assert tier.stats().splits == splits
    assert tier.verify() == []
    holds(tier, keys, values)
    tier.reserve(10_000_000)  # there are rows: without effect
    assert tier.stats().splits == splits


def test_export_visits_every_row_once() -> None:
    keys = random_keys(50_000)
    chunks = list(grown(keys, 2, partitions=4).export(rows=7000))
    assert max(len(chunk.keys) for chunk in chunks) <= 7000
    exported = np.concatenate([chunk.keys for chunk in chunks])
    np.testing.assert_array_equal(np.sort(exported), keys)


def test_erased_rows_leave_room_for_the_next() -> None:
    keys = random_keys(60_000)
    tier = grown(keys, 4, partitions=2)
    values = marked(keys, 4)
    tier.put(keys, values)
    before = tier.stats()
    for round_ in range(3):
        half = keys[round_ % 2 :: 2].copy()
        assert tier.erase(half) == len(half)
        assert tier.verify() == []
        holds(tier, keys[1 - round_ % 2 :: 2].copy(), values[1 - round_ % 2 :: 2].copy())
        tier.put(half, values[round_ % 2 :: 2].copy())
    holds(tier, keys, values)
    assert tier.verify() == []
    after = tier.stats()
    assert (after.rows, after.slab_bytes) == (before.rows, before.slab_bytes)


def test_other_keys_take_the_place_of_erased_ones() -> None:
    first, second = random_keys(40_000, 1), random_keys(40_000, 2)
    tier = grown(first, 4, partitions=2)
    before = tier.stats()
    tier.erase(first)
    assert (len(tier), tier.verify()) == (0, [])
    tier.find_or_init(second)
    assert tier.verify() == []
    assert tier.stats().slab_bytes <= 1.1 * before.slab_bytes
    assert tier.stats().index_bytes <= 1.5 * before.index_bytes


def unhashed(hashes: Keys) -> Keys:
    """The keys with these hashes (hash.h's bijection backwards). Were the hash another one, they would be any keys."""
    inverse = np.uint64(pow(0xD6E8FEB86659FD93, -1, 2**64))
    for _ in range(2):
        hashes = (hashes ^ (hashes >> np.uint64(32))) * inverse
    return hashes ^ (hashes >> np.uint64(32))


@pytest.mark.parametrize("low", range(0, 64, 8))
def test_keys_that_share_bits_of_their_hash_make_room_for_others(low: int) -> None:
    crowd = unhashed(random_keys(30_000, 1) & ~np.uint64((0xFF << low) % 2**64))
    keys = np.unique(np.concatenate([crowd, random_keys(60_000, 2)]))
    tier = RamTier(Table(dim=1, optimizer=SGD()), partitions=1)
    tier.find_or_init(np.unique(crowd))  # deepens one corner of the index; the others then split far below it
    assert tier.verify() == []
    values = marked(keys, 1)
    tier.put(keys, values)
    holds(tier, keys, values)
    assert tier.verify() == []


COUNT = 30_000
ADVERSARIAL: dict[str, Keys] = {
    "sequential": np.arange(COUNT, dtype=np.uint64),
    "downwards from all ones": np.uint64(2**64 - 1) - np.arange(COUNT, dtype=np.uint64),
    "multiples of 2^16": np.arange(COUNT, dtype=np.uint64) << np.uint64(16),
    "multiples of 2^32": np.arange(COUNT, dtype=np.uint64) << np.uint64(32),
    "multiples of 2^52": np.arange(4096, dtype=np.uint64) << np.uint64(52),
    "both halves the same": np.arange(COUNT, dtype=np.uint64) * np.uint64(2**32 + 1),
    "one bit set": np.uint64(1) << np.arange(64, dtype=np.uint64),
    "one bit missing": ~(np.uint64(1) << np.arange(64, dtype=np.uint64)),
    "ends": np.array([0, 2**64 - 1, 2**63, 2**63 - 1, 1], np.uint64),
}


@pytest.mark.parametrize("name", ADVERSARIAL)
def test_no_pattern_of_keys_breaks_the_index(name: str) -> None:
    keys = ADVERSARIAL[name]
    tier = grown(keys, 1, partitions=8)
    values = marked(keys, 1)
    tier.put(keys, values)
    holds(tier, keys, values)
    assert tier.verify() == []
    assert tier.erase(keys[::2].copy()) == len(keys[::2])
    assert tier.verify() == []
    assert tier.versions(keys).tolist() == [0 if i % 2 == 0 else 2 for i in range(len(keys))]


@pytest.mark.parametrize("name", ["sequential", "multiples of 2^32", "both halves the same"])
def test_patterns_spread_as_random_keys_do(name: str) -> None:
    random = grown(random_keys(COUNT), 1, partitions=8).stats()
    assert grown(ADVERSARIAL[name], 1, partitions=8).stats().index_bytes <= 1.5 * random.index_bytes
