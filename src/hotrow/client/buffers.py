"""Buffers that are used again: a step writes tens of megabytes, and fresh memory has to be cleared first."""

import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = TypeVar("Array", bound=NDArray[Any])
SPARE_BYTES = 256 << 20  # kept for shapes other than the last: of other tables, evaluations, the end of an epoch


def _references(arrays: list[NDArray[Any]]) -> list[int]:
    return [sys.getrefcount(array) for array in arrays]


(UNUSED,) = _references([np.empty(0, np.float32)])  # how many the counting itself and its list make, in this Python


def _rounded(count: int) -> int:
    """In eighths of a power of two: numbers of distinct ids differ a little from batch to batch."""
    step = max(1, 1 << max(count - 1, 1).bit_length() >> 4)
    return -(-count // step) * step


class BufferPool:
    """Hands out tensors and arrays. Their memory is used again when nothing refers to it: tensor, views, graph.

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
        # By dtype and shape; used last at the end.
        self._arrays: OrderedDict[tuple[object, ...], list[NDArray[Any]]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, *shape: int) -> Tensor:
        """A float32 tensor of this shape, uninitialised."""
        return torch.from_numpy(self._array(np.dtype(np.float32), shape))

    def take_rows(self, count: int, dim: int) -> Tensor:
        """The same, for a number of rows that changes from batch to batch."""
        return self.take(_rounded(count), dim)[:count]

    def take_integers(self, count: int) -> NDArray[np.uint32]:
        """An array for a number of each id, uninitialised."""
        return self._array(np.dtype(np.uint32), (_rounded(count),))[:count]

    def join(self, arrays: Sequence[Array]) -> Array:
        """The arrays, of one dtype, one after the other."""
        if len(arrays) == 1:
            return arrays[0]
        count = sum(map(len, arrays))
        out = self._array(arrays[0].dtype, (_rounded(count), *arrays[0].shape[1:]))[:count]
        np.concatenate(arrays, out=out)
        return out  # type: ignore[return-value]

    def _array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        with self._lock:
            key = (dtype.str, *shape)
            arrays = self._arrays.setdefault(key, [])
            self._arrays.move_to_end(key)
            for number, references in enumerate(_references(arrays)):
                if references == UNUSED:
                    return arrays[number]
            self._forget_shapes()
            arrays.append(torch.empty(shape).numpy() if dtype == np.float32 else np.empty(shape, dtype))  # aligned
            return arrays[-1]

    def _forget_shapes(self) -> None:
        """Before memory is added: shapes that were not used for longest go first."""
        while len(self._arrays) > 1 and self.nbytes > SPARE_BYTES:
            self._arrays.popitem(last=False)

    @property
    def nbytes(self) -> int:
        """Of all buffers that are kept."""
        return sum(array.nbytes for arrays in self._arrays.values() for array in arrays)
