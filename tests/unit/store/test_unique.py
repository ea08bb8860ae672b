"""unique: every key once, in the order in which it first occurs."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow import Table, _native
from hotrow.errors import InputError
from hotrow.store import RamTier, kernels
from oracles import kernels as slow

MANY = 300_000
few_keys = st.integers(0, 20)
any_key = st.integers(0, 2**64 - 1)

PATTERNS: dict[str, Callable[[NDArray[np.uint64]], NDArray[np.uint64]]] = {
    "all equal": lambda i: np.full_like(i, 7),
    "all different": lambda i: i,
    "multiples of 2^32": lambda i: i << np.uint64(32),
    "high bits only": lambda i: i << np.uint64(48),
    "multiples of the golden ratio": lambda i: i * np.uint64(0x9E3779B97F4A7C15),
    "descending from the largest": lambda i: ~i,
    "each twice": lambda i: i // np.uint64(2),
    "far apart twice": lambda i: i % np.uint64(MANY // 2),
}


@given(st.lists(few_keys | any_key, max_size=200), st.integers(1, 3))
def test_equals_the_slow_twin(keys: list[int], threads: int) -> None:
    found = kernels.unique(np.array(keys, np.uint64), threads)
    assert tuple(part.tolist() for part in found) == slow.unique(keys)


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_that_defeat_weak_hashing(name: str, threads: int) -> None:
    keys = PATTERNS[name](np.arange(MANY, dtype=np.uint64))
    found = kernels.unique(keys, threads)
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    order = np.argsort(first)
    assert np.array_equal(found.keys, keys[first[order]])
    assert np.array_equal(found.counts, counts[order])
    assert np.array_equal(found.keys[found.inverse], keys)


@pytest.mark.parametrize("size", [12_287, 12_288, 3 * 2**18 - 1, 3 * 2**18])  # both sides of where threads are worth it
def test_result_does_not_depend_on_the_number_of_threads(size: int) -> None:
    keys = (np.random.default_rng(5).zipf(1.05, size) % 10_000_000).astype(np.uint64)
    alone = kernels.unique(keys)
    for threads in (2, 3, 4, 7, 16, 100):
        many = kernels.unique(keys, threads)
        assert np.array_equal(alone.keys, many.keys)
        assert np.array_equal(alone.inverse, many.inverse)
        assert np.array_equal(alone.counts, many.counts)


@pytest.mark.parametrize("partitions", [1, 8, 16, 32, 256, 512])  # plans of 16 to 256 are folded by partition
@pytest.mark.parametrize("key_range", [1, 3, 20_000, 2**63])
def test_the_plan_of_a_batch_does_not_depend_on_the_number_of_threads(partitions: int, key_range: int) -> None:
    keys = np.random.default_rng(7).integers(0, key_range, 20_000).astype(np.uint64)
    tier = RamTier(Table(dim=1), threads=1, partitions=partitions)
    alone = tier.batch(keys)
    assert np.array_equal(alone.keys[alone.inverse], keys)
    assert alone.unique == len(np.unique(keys))
    for threads in (3, 4, 16):
        tier.threads = threads
        many = tier.batch(keys)
        assert np.array_equal(alone.keys, many.keys)
        assert np.array_equal(alone.inverse, many.inverse)


def test_int64_ids_and_tensors_are_read_as_their_bits() -> None:
    keys = torch.tensor([-1, 5, -1, 2**62])
    assert kernels.unique(keys).keys.tolist() == [2**64 - 1, 5, 2**62]
    assert kernels.unique(keys.numpy().view(np.uint64)).inverse.tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ([1, 2], "keys is a list: give a numpy array or a CPU tensor"),
        (np.zeros(3, np.float64), "keys has type float64: must be uint64 or int64"),
        (np.zeros(3, ">u8"), "keys has type >u8"),
        (np.zeros((2, 2), np.uint64), "keys has 2 dimensions, expected 1"),
        (np.zeros(6, np.uint64)[::2], "keys is not contiguous"),
        (np.zeros(17, np.uint8)[1:].view(np.uint64), "keys is not contiguous"),
        (torch.zeros(3, dtype=torch.bfloat16), "numpy cannot read it in place"),
        (torch.zeros(3, device="meta"), "keys is on meta: move it to the CPU first"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(keys: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence.replace("(", r"\(")):
        kernels.unique(keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(("threads", "sentence"), [(0, "from 1 to 1024"), (-1, "0 or more"), (1.5, "whole number")])
def test_threads_are_counted_from_one(threads: int, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        kernels.unique(np.zeros(1, np.uint64), threads)


def test_buffers_that_do_not_fit_are_left_alone() -> None:
    keys, unique_keys = np.arange(4, dtype=np.uint64), np.full(3, 9, np.uint64)
    inverse, counts = np.full(4, 9, np.uint32), np.full(4, 9, np.uint32)
    with pytest.raises(ValueError, match=r"unique: unique_keys is \(3,\), expected \(4,\)"):
        _native.unique(keys, unique_keys, inverse, counts, 1)
    assert (unique_keys == 9).all()
    assert (inverse == 9).all()
    assert (counts == 9).all()
