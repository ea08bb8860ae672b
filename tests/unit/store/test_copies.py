"""The copy past the caches: every byte arrives, and none beside it changes."""

import numpy as np
import pytest

from hotrow import _native
from hotrow.store.copies import STREAMED_LEAST, copy_bytes


def random_bytes(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)


@pytest.mark.parametrize("size", [0, 1, 15, 63, 64, 65, 127, 4_095, 4_160, 4_161, 8_191, 8_256, 20_000])
def test_a_streamed_copy_has_all_bytes_and_changes_no_others(size: int) -> None:
    for from_offset, to_offset in ((0, 0), (1, 0), (0, 1), (7, 63), (48, 16), (63, 64)):
        source, target = random_bytes(size + 128), random_bytes(size + 256)
        expected = target.copy()
        expected[to_offset : to_offset + size] = source[from_offset : from_offset + size]
        _native.stream_copy(source[from_offset : from_offset + size], target[to_offset : to_offset + size])
        assert np.array_equal(target, expected)


@pytest.mark.parametrize("size", [STREAMED_LEAST - 1, STREAMED_LEAST, STREAMED_LEAST + 77])
def test_both_sides_of_the_streaming_bound_copy_alike(size: int) -> None:
    source = random_bytes(size)
    source.flags.writeable = False
    out = np.zeros(size, np.uint8)
    copy_bytes(source, out)
    assert np.array_equal(out, source)


def test_a_streamed_copy_refuses_another_size_and_shared_memory() -> None:
    data = random_bytes(100)
    before = data.copy()
    with pytest.raises(ValueError, match=r"^stream_copy: out is \(99,\), expected \(100,\)$"):
        _native.stream_copy(data, np.empty(99, np.uint8))
    with pytest.raises(ValueError, match=r"^stream_copy: out shares memory with data: copy between separate arrays$"):
        _native.stream_copy(data[:60], data[40:])
    assert np.array_equal(data, before)
    _native.stream_copy(data[:50], data[50:])
    assert np.array_equal(data[50:], before[:50])
