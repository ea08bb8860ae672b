"""Arrays of the host as one block of bytes, which goes to a device in one copy."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT = 16  # bytes; kernels are compiled once for all arrays that begin at a multiple of it
TYPES = {
    np.dtype(np.int64): torch.int64,
    np.dtype(np.uint32): torch.int32,  # the same bits
    np.dtype(np.float32): torch.float32,
}
Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class PackedArrays:
    """Arrays of int64, uint32 or float32, each at a multiple of 16 bytes."""

    block: Tensor  # uint8, on the host
    _places: tuple[tuple[slice, torch.dtype, tuple[int, ...]], ...]

    @classmethod
    def of(cls, groups: Sequence[Sequence[Array]], *, pinned: bool) -> "PackedArrays":
        """One array for each group: its arrays, one after the other. A copy from pinned memory waits for nothing."""
        sizes = [sum(each.nbytes for each in group) for group in groups]
        starts = list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))
        block = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=pinned)
        flat, places = block.numpy(), []
        for start, size, group in zip(starts, sizes, groups, strict=False):
            where, dtype = slice(start, start + size), group[0].dtype
            shape = (sum(map(len, group)), *group[0].shape[1:])
            np.concatenate(group, out=flat[where].view(dtype).reshape(shape))
            places.append((where, TYPES[dtype], shape))
        return cls(block, tuple(places))

    def views(self, moved: Tensor) -> list[Tensor]:
        """The arrays in a copy of the block; uint32 as int32 of the same bits."""
        return [moved[where].view(dtype).view(shape) for where, dtype, shape in self._places]
