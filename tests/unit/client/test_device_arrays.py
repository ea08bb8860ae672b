"""Arrays that go to a device in one block come out as they went in, each where kernels want it."""

import numpy as np
import torch

from hotrow.client.device_arrays import ALIGNMENT, PackedArrays


def test_arrays_of_a_group_follow_one_another_and_each_group_begins_at_a_multiple_of_16_bytes() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    bits = np.array([1, 2**32 - 1], np.uint32)
    groups = [[np.arange(3), np.empty(0, np.int64), np.array([7])], [bits], [np.empty(0, np.int64)], [rows, rows + 6]]
    packed = PackedArrays.of(groups, pinned=False)
    keys, numbers, none, values = packed.views(packed.block.clone())
    assert keys.tolist() == [0, 1, 2, 7]
    assert numbers.dtype == torch.int32
    assert numbers.tolist() == [1, -1]
    assert none.shape == (0,)
    assert none.dtype == torch.int64
    assert values.tolist() == np.arange(12).reshape(4, 3).tolist()
    assert len(packed.block) == 32 + 16 + 0 + 48
    assert all(each.storage_offset() * each.element_size() % ALIGNMENT == 0 for each in (keys, numbers, values))


def test_arrays_that_are_not_contiguous_are_packed_as_they_read() -> None:
    packed = PackedArrays.of([[np.arange(6, dtype=np.float32).reshape(2, 3).T]], pinned=False)
    (moved,) = packed.views(packed.block)
    assert moved.tolist() == [[0, 3], [1, 4], [2, 5]]
