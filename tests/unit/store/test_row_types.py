"""Rows of 16 bits: what the type can hold comes back as it was, and what it cannot is rounded right on average."""

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow import _native

Bits = NDArray[np.uint16]
Floats = NDArray[np.float32]

FLOAT16, BFLOAT16 = 1, 2
INFINITY = {FLOAT16: 0x7C00, BFLOAT16: 0x7F80}
EVERY = np.arange(2**16, dtype=np.uint16).reshape(1, -1)
MASK = 2**64 - 1
both_types = pytest.mark.parametrize("kind", [FLOAT16, BFLOAT16], ids=["float16", "bfloat16"])


def wide(bits: Bits, kind: int) -> Floats:
    """Numpy's reading of the 16 bits."""
    if kind == FLOAT16:
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


GRID = {kind: wide(np.arange(end, dtype=np.uint16), kind).astype(np.float64) for kind, end in INFINITY.items()}


def narrow(rows: Floats, kind: int, streams: NDArray[np.uint64]) -> tuple[Bits, int]:
    out = np.full(rows.shape, 0xABCD, np.uint16)
    return out, _native.narrow(rows, kind, streams, out)


def widen(bits: Bits, kind: int) -> Floats:
    out = np.full(bits.shape, 7, np.float32)
    _native.widen(bits, kind, out)
    return out


def numbers(count: int, first: int = 0) -> NDArray[np.uint64]:
    return np.arange(first, first + count, dtype=np.uint64)


def any_floats(rows: int, dim: int, seed: int) -> Floats:
    return np.random.default_rng(seed).integers(0, 2**32, (rows, dim), np.uint32).view(np.float32)


def slow_bits(stream: int, dim: int) -> list[int]:
    """The 32 random bits of each element: SplitMix64 of the stream, whose halves key a mixer of 32 bits."""
    z = (stream + 0x9E3779B97F4A7C15) & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    z ^= z >> 31
    found = []
    for element in range(dim):
        h = (z + element) & 0xFFFFFFFF
        h = (h ^ h >> 16) * 0x21F0AAAD & 0xFFFFFFFF
        h = ((h ^ h >> 15) + (z >> 32)) * 0x735A2D97 & 0xFFFFFFFF
        found.append(h ^ h >> 15)
    return found


def stream_of(start: int, middle: int) -> int:
    """The stream that SplitMix64 mixes into these halves."""
    z = middle << 32 | start
    z ^= z >> 31 ^ z >> 62
    z = z * pow(0x94D049BB133111EB, -1, 2**64) & MASK
    z ^= z >> 27 ^ z >> 54
    z = z * pow(0xBF58476D1CE4E5B9, -1, 2**64) & MASK
    z ^= z >> 30 ^ z >> 60
    return (z - 0x9E3779B97F4A7C15) & MASK


def slow_narrow(value: float, kind: int, random: int) -> int:
    """One finite number by a search among all that the type can hold: their places are their bits."""
    grid, size = GRID[kind], abs(float(value))
    lower = int(np.searchsorted(grid, size, side="right")) - 1
    sign = 0x8000 if np.signbit(value) else 0
    if lower == len(grid) - 1:
        return sign | lower
    share = (size - grid[lower]) / (grid[lower + 1] - grid[lower])
    used = 16 if kind == BFLOAT16 else 13 if size >= 2.0**-14 else 31
    return sign | (lower + int(share >= 1 - (random >> 32 - used) / 2**used))


special = [0.0, 65504.0, 65503.0, 65520.0, *(2.0**power for power in (-14, -24, -25, -32, -55, -56, -126, -149))]
special += [float(GRID[BFLOAT16][-1]), float(np.finfo(np.float32).max), float("inf"), float("nan")]
values = st.floats(width=32) | st.floats(-(2.0**-13), 2.0**-13, width=32) | st.sampled_from(special)


@both_types
@given(row=st.lists(values | values.map(lambda value: -value), min_size=1, max_size=40), stream=st.integers(0, MASK))
def test_equals_the_slow_twin_bit_by_bit(kind: int, row: list[float], stream: int) -> None:
    rows = np.array([row], np.float32)
    (found,), saturated = narrow(rows, kind, np.array([stream], np.uint64))
    for value, bits, random in zip(rows[0], found, slow_bits(stream, len(row)), strict=True):
        if np.isnan(value):
            assert bits & 0x7FFF > INFINITY[kind]
        elif np.isinf(value):
            assert bits == (INFINITY[kind] | 0x8000 * int(value < 0))
        else:
            assert bits == slow_narrow(value, kind, random)
    assert saturated == np.sum(np.isfinite(rows) & (np.abs(rows) > GRID[kind][-1]))


@both_types
def test_everything_the_type_can_hold_is_read_exactly_and_stays_as_it_is(kind: int) -> None:
    read, expected = widen(EVERY, kind), wide(EVERY, kind)
    nan = np.isnan(expected)
    assert np.array_equal(read[~nan].view(np.uint32), expected[~nan].view(np.uint32))  # signs of zero included
    assert np.isnan(read[nan]).all()
    for stream in (0, 1, MASK, 1 << 63):
        written, saturated = narrow(read, kind, np.array([stream], np.uint64))
        assert saturated == 0
        assert np.array_equal(written[~nan], EVERY[~nan])
        quiet = 0x0200 if kind == FLOAT16 else 0x0040
        assert np.array_equal(written[nan], EVERY[nan] | quiet)  # sign and payload are kept


@both_types
def test_only_the_two_neighbours_are_ever_written(kind: int) -> None:
    rows = any_floats(500, 100, seed=kind)
    small = np.random.default_rng(2).uniform(-1e-4, 1e-4, (200, 100)).astype(np.float32)  # around 2^-14
    for source in (rows, small):
        written = wide(narrow(source, kind, numbers(len(source)))[0], kind).astype(np.float64)
        finite = np.isfinite(source)
        assert np.array_equal(written[~finite], source[~finite], equal_nan=True)
        size, grid = np.abs(source[finite].astype(np.float64)), GRID[kind]
        lower = np.searchsorted(grid, size, side="right") - 1
        upper = np.minimum(lower + (grid[lower] < size), len(grid) - 1)
        found = np.abs(written[finite])
        assert ((found == grid[lower]) | (found == grid[upper])).all()
        assert np.array_equal(np.signbit(written[finite]), np.signbit(source[finite]))


@both_types
def test_numbers_too_large_become_the_largest_and_are_counted(kind: int) -> None:
    largest = np.float32(GRID[kind][-1])
    above, below = np.nextafter(largest, np.float32(np.inf)), np.nextafter(largest, np.float32(0))
    row = np.array([largest, above, below, np.finfo(np.float32).max, np.inf, np.nan], np.float32)
    rows = np.tile(np.concatenate([row, -row]), (2000, 3))
    written, saturated = narrow(rows, kind, numbers(2000))
    assert saturated == 2000 * 3 * 4
    finite = wide(written, kind)[np.isfinite(rows)]
    assert set(np.abs(finite).tolist()) <= set(GRID[kind][-2:].tolist())  # never infinity
    assert np.array_equal(wide(written, kind)[np.isinf(rows)], rows[np.isinf(rows)])


SHARES = [2.0**-13, 0.01, 0.3, 0.5, 0.77, 1 - 2.0**-13]
STARTS = [1.0, -3.25, 1000.0, 2.0**-13, 2.0**-15, -(2.0**-20), 0.0]  # float16: from 2^-15 down subnormal


@both_types
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("share", SHARES)
def test_rounding_keeps_the_mean_within_five_sigma(kind: int, start: float, share: float) -> None:
    at = int(np.searchsorted(GRID[kind], abs(start)))
    step = GRID[kind][at + 1] - GRID[kind][at]
    value = np.float32(np.copysign(abs(start) + share * step, start))
    exact = (abs(float(value)) - abs(start)) / step  # of float32, which may have rounded the share
    for streams, dim in ((2**16, 1), (2**8, 2**8)):  # one element of many rows, many elements of some
        written = wide(narrow(np.full((streams, dim), value), kind, numbers(streams, 17))[0], kind)
        share_up = np.abs(np.abs(written.astype(np.float64)) - abs(start)).mean() / step
        assert abs(share_up - exact) <= 5 * np.sqrt(exact * (1 - exact) / written.size)


@both_types
def test_many_updates_smaller_than_a_step_add_up(kind: int) -> None:
    updates, change = 400, 0.1 * 2.0**-10 if kind == FLOAT16 else 0.1 * 2.0**-7
    rows = np.ones((4000, 4), np.float32)
    for update in range(updates):
        rows = widen(narrow(rows + np.float32(change), kind, numbers(4000, 4000 * update))[0], kind)
    spread = np.sqrt(updates * 0.1 * 0.9) * 10 * change
    assert abs(rows.mean() - 1 - updates * change) < 5 * spread / np.sqrt(rows.size)
    assert 0.8 * spread < rows.std() < 1.2 * spread  # so rows do not move together


def seen_bits(streams: NDArray[np.uint64], dim: int) -> Bits:
    """The upper 16 random bits, found from what bfloat16 does with numbers ever closer to the turning point."""
    found = np.zeros((len(streams), dim), np.uint32)
    for bit in range(15, -1, -1):
        attempt = found | np.uint32(1 << bit)  # 65536 - attempt is rounded up if the bits are `attempt` or more
        written, _ = narrow((np.uint32(0x3F810000) - attempt).view(np.float32), BFLOAT16, streams)
        found = np.where(written == 0x3F81, attempt, found)
    return found.astype(np.uint16)


def flip_share(left: Bits, right: Bits) -> NDArray[np.float64]:
    differ = (left ^ right).reshape(-1, 1) >> np.arange(16, dtype=np.uint16) & 1
    return np.asarray(differ.mean(axis=0))


def test_every_bit_of_stream_and_element_flips_half_of_the_random_bits() -> None:
    streams, dim = numbers(2000), 16
    bits = seen_bits(streams, dim)
    assert bits[:20, :].tolist() == [[random >> 16 for random in slow_bits(stream, dim)] for stream in range(20)]
    bound = 5 * 0.5 / np.sqrt(bits.size)
    for flipped in range(64):
        other = seen_bits(streams ^ np.uint64(1 << flipped), dim)
        assert np.abs(flip_share(bits, other) - 0.5).max() < bound, flipped
    row = seen_bits(numbers(64, 5), 512)
    for flipped in range(9):
        other = row[:, np.arange(512) ^ 1 << flipped]
        assert np.abs(flip_share(row, other) - 0.5).max() < 5 * 0.5 / np.sqrt(row.size / 2), flipped  # pairs twice


def test_random_bits_are_uniform_and_neighbours_have_nothing_in_common() -> None:
    bits = seen_bits(numbers(4096), 64)
    for part in (bits >> 8, bits & 0xFF):
        expected = part.size / 256
        chi_square = float(((np.bincount(part.reshape(-1), minlength=256) - expected) ** 2 / expected).sum())
        assert abs(chi_square - 255) < 5 * np.sqrt(2 * 255)
    centred = bits / 65535 - 0.5
    for left, right in ((centred[:, 1:], centred[:, :-1]), (centred[1:], centred[:-1])):
        assert abs((left * right).mean()) < 5 / 12 / np.sqrt(left.size)
    starts = numbers(500, 2**31).tolist()  # rows that enter the mixer at neighbouring places
    close = seen_bits(np.array([stream_of(start, 77 * start % 2**32) for start in starts], np.uint64), 64)
    assert (close[1:, :-1] == close[:-1, 1:]).mean() < 0.001


@both_types
def test_odd_dims_write_their_own_elements_and_no_others(kind: int) -> None:
    rows = any_floats(3, 80, seed=9)
    streams = numbers(3, 100)
    whole, _ = narrow(rows, kind, streams)
    for dim in range(1, 80):
        memory, back = np.full(3 * dim + 32, 0x1234, np.uint16), np.full(3 * dim + 32, 7, np.float32)
        out = memory[: 3 * dim].reshape(3, dim)
        _native.narrow(np.ascontiguousarray(rows[:, :dim]), kind, streams, out)
        assert np.array_equal(out, whole[:, :dim])
        _native.widen(out, kind, back[: 3 * dim].reshape(3, dim))
        assert np.array_equal(back[: 3 * dim].reshape(3, dim), wide(out, kind), equal_nan=True)
        assert (memory[3 * dim :] == 0x1234).all()
        assert (back[3 * dim :] == 7).all()


@both_types
def test_a_program_that_flushes_denormals_gets_the_same_bits(kind: int) -> None:
    rows = any_floats(200, 50, seed=4)
    rows.view(np.uint32)[:, ::3] &= 0x80FFFFFF  # denormals of float32, and a little more
    plain = narrow(rows, kind, numbers(200))[0]
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    try:
        flushed = narrow(rows, kind, numbers(200))[0]
        read = widen(EVERY, kind)
    finally:
        torch.set_flush_denormal(False)
    assert np.array_equal(plain, flushed)
    assert np.array_equal(read.view(np.uint32), widen(EVERY, kind).view(np.uint32))


# Loads the module by its file, as test_kernel_paths.py does.
SCRIPT = """
import importlib.util, sys
from hashlib import sha256
import numpy as np

spec = importlib.util.spec_from_file_location("_native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
print(native.isa())
rng = np.random.default_rng(3)
for dim in [*range(1, 40), 63, 64, 65, 100]:
    anything = rng.integers(0, 2**32, (200, dim), np.uint32).view(np.float32)
    usual = np.ldexp(rng.standard_normal((200, dim), np.float32), rng.integers(-40, 20, (200, dim)))
    for kind in (1, 2):
        for source in (anything, usual):
            bits, back = np.empty((200, dim), np.uint16), np.empty((200, dim), np.float32)
            saturated = native.narrow(source, kind, rng.integers(0, 2**64, 200, np.uint64), bits)
            native.widen(bits, kind, back)
            print(dim, kind, saturated, *(sha256(array.tobytes()).hexdigest() for array in (bits, back)))
every, back = np.arange(2**16, dtype=np.uint16).reshape(16, -1), np.empty((16, 4096), np.float32)
for kind in (1, 2):
    native.widen(every, kind, back)
    print(kind, sha256(back.tobytes()).hexdigest())
"""


def run(path: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, _native.__file__]
    done = subprocess.run(command, env=os.environ | {"HOTROW_ISA": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("path", ["avx2", "avx512"])
def test_all_paths_of_this_processor_give_the_same_bits(path: str) -> None:
    expected, (name, *lines) = run("plain"), run(path)
    assert expected[0] == "plain"
    if name != path:
        pytest.skip(f"this processor has no {path}")
    assert lines == expected[1:]


def test_bad_arrays_are_refused_and_nothing_is_written() -> None:
    rows, out, streams = np.ones((2, 3), np.float32), np.full((2, 3), 9, np.uint16), numbers(2)
    faults: list[tuple[Callable[[], object], str]] = [
        (lambda: _native.narrow(rows, 0, streams, out), r"narrow: type=0: must be 1 \(float16\) or 2 \(bfloat16\)"),
        (lambda: _native.widen(out, 3, rows), "widen: type=3: must be"),
        (lambda: _native.narrow(rows, 1, numbers(3), out), r"narrow: streams is \(3,\), expected \(2,\)"),
        (lambda: _native.narrow(rows, 1, streams, out[:1]), r"narrow: out is \(1, 3\), expected \(2, 3\)"),
        (lambda: _native.widen(out[:1], 2, rows), r"widen: out is \(2, 3\), expected \(1, 3\)"),
        (lambda: _native.narrow(rows[:, :0].copy(), 1, streams, out[:, :0].copy()), "narrow: rows have no columns"),
    ]
    for call, sentence in faults:
        with pytest.raises(ValueError, match=sentence):
            call()
    assert (out == 9).all()
    assert (rows == 1).all()
