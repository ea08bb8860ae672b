"""Compression: scaled fp16 rows that keep what float32 rows may hold, and ids that come back bag by bag."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow.errors import InputError
from hotrow.store import kernels
from oracles import kernels as slow

LARGEST = float(np.finfo(np.float32).max)
SMALLEST = float(np.finfo(np.float32).smallest_subnormal)
INF, NAN = float("inf"), float("nan")

values = st.floats(width=32) | st.sampled_from([0.0, -0.0, INF, -INF, NAN, LARGEST, -LARGEST, SMALLEST, -SMALLEST])
some_rows = st.integers(1, 20).flatmap(lambda dim: st.lists(st.lists(values, min_size=dim, max_size=dim), max_size=5))
BAGS = st.lists(st.lists(st.integers(0, 5) | st.integers(0, 2**64 - 1), max_size=8), max_size=8)


def matrix(rows: Sequence[Sequence[float]]) -> NDArray[np.float32]:
    return np.array(rows, np.float32).reshape(len(rows), len(rows[0]) if rows else 1)


def round_trip(row: Sequence[float]) -> list[float]:
    return [float(value) for value in kernels.decode_rows(*kernels.encode_rows(matrix([row])))[0]]


@given(some_rows)
def test_equals_the_slow_twin_bit_by_bit(rows: list[list[float]]) -> None:
    half, scale = kernels.encode_rows(matrix(rows))
    decoded = kernels.decode_rows(half, scale)
    for at, row in enumerate(rows):
        bits, factor = slow.encode_row(row)
        nan = np.isnan(row)
        assert scale[at] == factor
        assert np.array_equal(half[at][~nan], np.array(bits)[~nan])
        assert np.isnan(half[at][nan].view(np.float16)).all()
        assert np.array_equal(decoded[at], np.array(slow.decode_row(bits, factor), np.float32), equal_nan=True)


@given(some_rows)
def test_round_trip_keeps_eleven_bits_and_everything_special(rows: list[list[float]]) -> None:
    before = matrix(rows)
    after = kernels.decode_rows(*kernels.encode_rows(before))
    finite = np.isfinite(before)
    assert np.array_equal(after[~finite], before[~finite], equal_nan=True)
    assert np.array_equal(np.signbit(after[before == 0]), np.signbit(before[before == 0]))
    assert np.isfinite(after[finite]).all()
    largest = np.abs(np.where(finite, before, 0)).max(axis=1, keepdims=True, initial=0).astype(np.float64)
    error = np.abs(np.where(finite, after, 0).astype(np.float64) - np.where(finite, before, 0))
    bound = 2.0**-11 * 1.001 * np.where(finite, np.abs(before), 0) + 2.0**-38 * largest + SMALLEST
    assert (error <= bound).all()


def test_every_half_decodes_as_numpy_reads_it() -> None:
    half = np.arange(2**16, dtype=np.uint16).reshape(1, -1)
    decoded = kernels.decode_rows(half, np.ones(1, np.float32))
    assert np.array_equal(decoded, half.view(np.float16).astype(np.float32), equal_nan=True)
    assert np.array_equal(np.signbit(decoded), np.signbit(half.view(np.float16)))


def test_rounding_is_to_nearest_even_on_every_halfway_point() -> None:
    grid = np.arange(2**14 + 1, dtype=np.uint16).view(np.float16).astype(np.float32)  # 0 to 2, denormals included
    between = (grid[:-1] + grid[1:]) / 2
    row = np.concatenate([grid, between, np.nextafter(between, np.float32(0)), matrix([[2.0**14]])[0]])
    half, scale = kernels.encode_rows(row.reshape(1, -1))
    assert scale.tolist() == [1.0]
    assert np.array_equal(half.view(np.float16)[0], row.astype(np.float16))


def test_scale_puts_the_largest_finite_element_on_kappa() -> None:
    rows = [[3.0, -0.5], [INF, 2.0**-20], [NAN, -INF], [0.0, -0.0], [SMALLEST, 0.0], [LARGEST, 1.0]]
    _, scale = kernels.encode_rows(matrix(rows))
    expected = [2.0**14 / 3, 2.0**34, 1, 1, LARGEST, 2.0**14 / LARGEST]
    assert scale.tolist() == np.array(expected, np.float32).tolist()


@pytest.mark.parametrize("factor", [1, 3, 1000, 2**22 + 1])
def test_denormal_rows_survive_even_when_the_program_flushes_denormals(factor: int) -> None:
    row = [SMALLEST * factor, -SMALLEST * factor, 0.0, -0.0]
    assert round_trip(row) == pytest.approx(row, rel=2.0**-10, abs=0)
    rows = matrix([row])  # made before, or numpy would flush them here
    plain = kernels.encode_rows(rows)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        flushed = kernels.encode_rows(rows)
        decoded = kernels.decode_rows(*flushed)
    finally:
        torch.set_flush_denormal(False)
    assert np.array_equal(plain[0], flushed[0])
    assert np.array_equal(plain[1], flushed[1])
    assert np.array_equal(decoded, kernels.decode_rows(*plain))


def test_rows_do_not_depend_on_the_number_of_threads() -> None:
    rows = np.random.default_rng(0).standard_normal((9000, 20), np.float32)
    half, scale = kernels.encode_rows(rows)
    for threads in (2, 5):
        again = kernels.encode_rows(rows, threads)
        assert np.array_equal(half, again[0])
        assert np.array_equal(scale, again[1])
        assert np.array_equal(kernels.decode_rows(half, scale), kernels.decode_rows(half, scale, None, threads))


def test_bad_rows_are_refused_and_nothing_is_written() -> None:
    half, scale, out = np.zeros((2, 3), np.uint16), np.ones(2, np.float32), np.full((2, 4), 9, np.float32)
    faults: list[tuple[tuple[Any, ...], str]] = [
        ((half, scale, out), r"rows is \(2, 4\), expected \(2, 3\)"),
        ((half, scale[:1], out), r"scale is \(1,\), expected \(2,\)"),
        ((half.view(np.float16), scale, out), "half has type float16: must be uint16"),
        ((half[:, ::2], scale, out), "half is not contiguous"),
        ((half[:, :0].copy(), scale, None), "half has no columns"),
    ]
    for arguments, sentence in faults:
        with pytest.raises(InputError, match=f"decode_rows: {sentence}"):
            kernels.decode_rows(*arguments)
    assert (out == 9).all()
    with pytest.raises(InputError, match="encode_rows: rows has type float64"):
        kernels.encode_rows(np.zeros((2, 3)))
    with pytest.raises(InputError, match="encode_rows: rows have no columns"):
        kernels.encode_rows(np.zeros((2, 0), np.float32))


def flat(bags: Sequence[Sequence[int]]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    return np.fromiter(chain(*bags), np.uint64), np.cumsum([0, *map(len, bags)], dtype=np.int64)


@given(BAGS)
def test_ids_equal_the_slow_twin_and_every_bag_comes_back(bags: list[list[int]]) -> None:
    packed = kernels.compress_ids(*flat(bags))
    assert tuple(part.tolist() for part in packed) == slow.compress_ids(bags)
    keys, offsets = kernels.expand_ids(*packed, len(bags))
    assert offsets.tolist() == flat(bags)[1].tolist()
    first_seen = packed.keys.tolist()
    for bag, back in zip(bags, np.split(keys, offsets[1:-1]) if bags else [], strict=True):
        assert Counter(bag) == Counter(back.tolist())
        assert back.tolist() == sorted(back.tolist(), key=first_seen.index)


@pytest.mark.parametrize(("bags", "dtype"), [(65_535, np.uint16), (65_536, np.uint32)])
def test_samples_take_two_bytes_up_to_65_535_bags(bags: int, dtype: Any) -> None:
    offsets = np.concatenate([np.zeros(bags, np.int64), [3]])  # three ids, all in the last bag
    packed = kernels.compress_ids(np.array([8, 9, 8], np.uint64), offsets)
    assert packed.samples.dtype == dtype
    keys, back = kernels.expand_ids(*packed, bags)
    assert keys.tolist() == [8, 8, 9]
    assert np.array_equal(back, offsets)


def test_bad_ids_are_refused() -> None:
    keys, counts = np.array([8, 9], np.uint64), np.array([2, 1], np.uint32)
    samples = np.array([0, 4, 4], np.uint16)
    faults: list[tuple[tuple[Any, ...], str]] = [
        ((keys, counts, samples, 4), "samples hold 4: must be below bags, 4"),
        ((keys, counts + np.uint32(1), samples, 5), "counts add up to 5: must be the number of samples, 3"),
        ((keys, counts[:1], samples, 5), r"counts is \(1,\), expected \(2,\)"),
        ((keys, counts, samples.astype(np.int16), 5), "samples has type int16: must be uint16 or uint32"),
        ((keys, counts, samples, -1), "bags=-1: must be 0 or more"),
    ]
    for arguments, sentence in faults:
        with pytest.raises(InputError, match=f"expand_ids: {sentence}"):
            kernels.expand_ids(*arguments)
    with pytest.raises(InputError, match="compress_ids: offsets end at 2: must end at the number of ids, 3"):
        kernels.compress_ids(np.zeros(3, np.uint64), np.array([0, 2]))
    with pytest.raises(InputError, match="compress_ids: offsets is empty"):
        kernels.compress_ids(np.zeros(0, np.uint64), np.zeros(0, np.int64))
