"""Keys go to the shard that their hash names, for ever; a batch goes to each shard once; shards split a table."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import hotrow as hr
from hotrow import _native
from hotrow.config import AtLeast, Segment
from hotrow.errors import ConfigError, InputError
from hotrow.store import RamTier
from hotrow.store.shards import export_from, shard_of, sharded, share_of

MANY = 300_000  # enough that eight threads are put to work
U64 = NDArray[np.uint64]
PINNED_KEYS = [0, 1, 2, 3, 8, 9, 12, 42, 1_000_000, 2**63, 2**64 - 1]
PINNED = {
    2: [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0],
    3: [0, 0, 0, 1, 2, 2, 2, 1, 0, 1, 0],
    1024: [0, 261, 114, 451, 783, 961, 986, 399, 154, 457, 274],
}
any_keys = st.lists(st.integers(0, 20) | st.integers(0, 2**64 - 1), max_size=200)


def slow_hash(key: int) -> int:
    for _ in range(2):
        key ^= key >> 32
        key = key * 0xD6E8FEB86659FD93 % 2**64
    return key ^ key >> 32


def slow_shard(key: int, shards: int) -> int:
    return (slow_hash(key) >> 54) * shards >> 10


def twin(keys: U64, shards: int) -> tuple[U64, list[int], NDArray[np.int64]]:
    """In numpy: unique keys by shard and then by first occurrence, bounds, and the place of each key."""
    unique, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    shard = np.array([slow_shard(int(key), shards) for key in unique], np.int64)
    order = np.lexsort((first, shard))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return unique[order], [0, *np.cumsum(np.bincount(shard, minlength=shards)).tolist()], places[inverse]


@given(any_keys, st.integers(1, 1024))
def test_a_keys_shard_is_that_of_the_slow_twin(keys: list[int], shards: int) -> None:
    assert shard_of(np.array(keys, np.uint64), shards).tolist() == [slow_shard(key, shards) for key in keys]


def test_shards_never_move() -> None:
    keys = np.array(PINNED_KEYS, np.uint64)
    for shards, pinned in PINNED.items():
        assert shard_of(keys, shards).tolist() == pinned


def test_the_hash_is_the_one_by_which_the_store_places_rows() -> None:
    keys = np.random.default_rng(1).integers(0, 2**63, 500).astype(np.uint64)
    placed = RamTier(hr.Table(dim=1), partitions=1024).batch(keys).keys  # by partition, then by first occurrence
    partitions = [slow_hash(int(key)) >> 44 & 1023 for key in placed]
    assert partitions == sorted(partitions)
    assert len(set(partitions)) > 300


@given(any_keys, st.integers(1, 5) | st.integers(6, 1024), st.integers(1, 3))
def test_a_batch_is_grouped_as_by_the_twin(keys: list[int], shards: int, threads: int) -> None:
    batch = np.array(keys, np.uint64)
    found = sharded(batch, shards, threads)
    unique, bounds, inverse = twin(batch, shards)
    assert found.keys.tolist() == unique.tolist()
    assert found.bounds.tolist() == bounds
    assert found.inverse.tolist() == inverse.tolist()


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_many_threads_give_what_one_gives(shards: int) -> None:
    keys = (np.random.default_rng(5).zipf(1.05, MANY) % 10_000_000).astype(np.uint64)
    alone = sharded(keys, shards)
    assert np.array_equal(alone.keys[alone.inverse], keys)
    shard = shard_of(alone.keys, shards)
    assert np.array_equal(np.searchsorted(shard, np.arange(shards + 1)), alone.bounds)
    assert (np.diff(shard.astype(np.int64)) >= 0).all()
    assert len(np.unique(alone.keys)) == len(alone.keys)
    for threads in (4, 100):
        many = sharded(keys, shards, threads)
        assert np.array_equal(alone.keys, many.keys)
        assert np.array_equal(alone.bounds, many.bounds)
        assert np.array_equal(alone.inverse, many.inverse)
        assert np.array_equal(shard_of(keys, shards, threads), shard_of(keys, shards))


@pytest.mark.parametrize("shards", [2, 3, 10])
@pytest.mark.parametrize("stride", [1, 2**32, 2**54])
def test_shards_get_equal_shares(shards: int, stride: int) -> None:
    keys = np.arange(50_000 if stride < 2**54 else 1024, dtype=np.uint64) * np.uint64(stride)
    counts = np.bincount(shard_of(keys, shards), minlength=shards)
    mean = len(keys) / shards
    assert abs(counts - mean).max() < 5 * mean**0.5 + mean * shards / 1024


def test_int64_ids_and_tensors_are_read_as_their_bits() -> None:
    keys = torch.tensor([-1, 5, -1])
    assert shard_of(keys, 1024).tolist() == [slow_shard(key, 1024) for key in (2**64 - 1, 5, 2**64 - 1)]
    assert sharded(keys, 1).keys.tolist() == [2**64 - 1, 5]


@pytest.mark.parametrize("shards", [0, 1025, True, 1.5])
def test_a_number_of_shards_that_cannot_be_is_refused(shards: int) -> None:
    for function in (shard_of, sharded):
        with pytest.raises(InputError, match="shards="):
            function(np.zeros(2, np.uint64), shards)
    assert shard_of(np.zeros(2, np.uint64), 1024).shape == (2,)


def test_arrays_that_do_not_fit_are_refused_before_anything_is_written() -> None:
    keys, unique_keys = np.arange(4, dtype=np.uint64), np.full(4, 9, np.uint64)
    bounds, inverse = np.full(3, 9, np.int64), np.full(4, 9, np.uint32)
    for wrong in (
        (keys, 2, unique_keys[:3], bounds, inverse, 1),
        (keys, 2, unique_keys, bounds[:2], inverse, 1),
        (keys, 3, unique_keys, bounds, inverse, 1),
        (keys, 2, unique_keys, bounds, inverse[:3], 1),
        (keys, 2, unique_keys, bounds, inverse, 0),
        (keys, 0, unique_keys, bounds[:1], inverse, 1),
        (keys, 1025, unique_keys, np.full(1026, 9, np.int64), inverse, 1),
    ):
        with pytest.raises(ValueError, match=r"expected|must be"):
            _native.sharded(*wrong)
    with pytest.raises(ValueError, match=r"out is \(3,\), expected \(4,\)"):
        _native.shard_of(keys, 2, inverse[:3], 1)
    assert all((array == 9).all() for array in (unique_keys, bounds, inverse))


def test_a_shard_takes_its_part_of_the_capacity_and_a_segment_of_its_own(tmp_path: Path) -> None:
    whole = hr.Table(dim=4, name="t", capacity=1_001, segment=Segment(run="day", directory=tmp_path, keep=True))
    part = share_of(whole, 1, 2)
    assert part.capacity == 501
    assert part.segment == Segment(run="day-1-of-2", directory=tmp_path, keep=True)
    changed = {"capacity", "segment"}
    assert part.model_dump(exclude=changed) == whole.model_dump(exclude=changed)
    filtered = hr.Table(dim=4, capacity="10MB", admission=AtLeast(count=3, filter="1MB"))
    part = share_of(filtered, 0, 4)
    assert part.capacity_bytes == 2_500_000
    assert isinstance(part.admission, AtLeast)
    assert part.admission.filter_bytes == 250_000
    assert share_of(hr.Table(dim=4), 2, 3) == hr.Table(dim=4)


def test_a_run_whose_name_gets_too_long_with_the_shard_is_refused() -> None:
    with pytest.raises(ConfigError, match="64"):
        share_of(hr.Table(dim=4, segment=Segment(run="r" * 60)), 10, 20)


@pytest.mark.parametrize("most", [1, 7, 99, 100, 101, 1_000])
def test_an_export_goes_on_from_its_cursor_to_the_last_row(most: int) -> None:
    tier = RamTier(hr.Table(dim=2))
    tier.find_or_init(np.arange(100))
    seen: list[int] = []
    cursor, calls = 0, 0
    while True:
        rows, cursor = export_from(tier, cursor, most)
        seen += rows.keys.tolist()
        assert len(rows.values) == len(rows.state) == len(rows.fields["version"]) == len(rows.keys) <= most
        calls += 1
        if cursor == 0:
            break
    assert sorted(seen) == list(range(100))
    assert calls == 100 // most + 1
    assert len(export_from(tier, 2**62, most)[0].keys) == 0
    with pytest.raises(InputError, match="most=0"):
        export_from(tier, 0, 0)
