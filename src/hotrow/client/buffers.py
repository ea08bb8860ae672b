"""Buffers of vectors that are used again: a step writes tens of megabytes, and fresh memory has to be cleared first."""

import sys
import threading
from collections import OrderedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SPARE_BYTES = 256 << 20  # kept for shapes other than the last: of other tables, evaluations, the end of an epoch


def _references(arrays: list[NDArray[np.float32]]) -> list[int]:
    return [sys.getrefcount(array) for array in arrays]


(UNUSED,) = _references([np.empty(0, np.float32)])  # how many the counting itself and its list make, in this Python


class BufferPool:
    """Hands out float32 tensors. Their memory is used again when nothing refers to it: tensor, views, graph.

    Thread-safe.

    Example:
        >>> from hotrow.client.buffers import BufferPool
        >>> pool = BufferPool()
        >>> first = pool.take(2, 3)
        >>> address = first.data_ptr()
        >>> pool.take(2, 3).data_ptr() == address
        False
        >>> del first
        >>> pool.take(2, 3).data_ptr() == address
        True
    """

    def __init__(self) -> None:
        self._arrays: OrderedDict[tuple[int, ...], list[NDArray[np.float32]]] = OrderedDict()  # used last at the end
        self._lock = threading.Lock()

    def take(self, *shape: int) -> Tensor:
        """A tensor of this shape, uninitialised."""
        with self._lock:
            arrays = self._arrays.setdefault(shape, [])
            self._arrays.move_to_end(shape)
            for number, references in enumerate(_references(arrays)):
                if references == UNUSED:
                    return torch.from_numpy(arrays[number])
            self._forget_shapes()
            arrays.append(torch.empty(shape).numpy())
            return torch.from_numpy(arrays[-1])

    def _forget_shapes(self) -> None:
        """Before memory is added: shapes that were not used for longest go first."""
        while len(self._arrays) > 1 and self.nbytes > SPARE_BYTES:
            self._arrays.popitem(last=False)

    @property
    def nbytes(self) -> int:
        """Of all buffers that are kept."""
        return sum(array.nbytes for arrays in self._arrays.values() for array in arrays)
