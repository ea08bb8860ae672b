"""Checks of arrays before native code gets them; errors are sentences. Nothing is copied.

Numpy arrays and CPU tensors are taken alike; int64 ids are read as their 64 bits. torch is not imported here: who
gives a tensor has imported it, and shards and readers of checkpoints do without.
"""

import sys
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hotrow.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

ArrayLike: TypeAlias = Union[NDArray[Any], "Tensor"]
Keys: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.uint32]
Flags: TypeAlias = NDArray[np.bool_]


def as_array(what: str, value: ArrayLike, types: DTypeLike | tuple[DTypeLike, ...], dimensions: int) -> NDArray[Any]:
    """The array itself, or the memory of a tensor, if it is just what native code takes."""
    array = _as_numpy(what, value)
    accepted = [np.dtype(each) for each in (types if isinstance(types, tuple) else (types,))]
    if array.dtype not in accepted:
        raise InputError(f"{what} has type {array.dtype}: must be {' or '.join(map(str, accepted))}")
    if array.ndim != dimensions:
        raise InputError(f"{what} has {array.ndim} dimensions, expected {dimensions}")
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise InputError(f"{what} is not contiguous: call .contiguous() or numpy.ascontiguousarray first")
    return array


def as_keys(what: str, value: ArrayLike) -> Keys:
    """One dimension of 64-bit ids."""
    return as_array(what, value, (np.uint64, np.int64), 1).view(np.uint64)


def as_matrix(what: str, value: ArrayLike, rows: int | None, columns: int) -> Floats:
    """float32 of shape (rows, columns); any number of rows where `rows` is None."""
    matrix = as_array(what, value, np.float32, 2)
    if matrix.shape != (len(matrix) if rows is None else rows, columns):
        raise InputError(f"{what} is {matrix.shape}, expected ({'any' if rows is None else rows}, {columns})")
    return matrix


def as_output(what: str, value: ArrayLike, dimensions: int, *inputs: NDArray[Any]) -> Floats:
    """A float32 buffer that may be written and lies apart from what is read."""
    buffer = as_array(what, value, np.float32, dimensions)
    if not buffer.flags.writeable:
        raise InputError(f"{what} is read-only: give a buffer that may be written")
    if any(np.may_share_memory(buffer, each) for each in inputs):
        raise InputError(f"{what} shares memory with an input: give a buffer of its own")
    return buffer


def as_weights(what: str, value: ArrayLike, count: int) -> Floats:
    """One float32 per key."""
    return _counted(what, as_array(what, value, np.float32, 1), count)


def as_integers(what: str, value: ArrayLike, count: int) -> Integers:
    """One uint32 per key; int64 is converted where it fits."""
    numbers = _counted(what, as_array(what, value, (np.uint32, np.int64), 1), count)
    if numbers.dtype == np.uint32:
        return numbers
    if numbers.size and (numbers.min() < 0 or numbers.max() >= 2**32):
        raise InputError(f"{what} holds numbers outside 0 … 4,294,967,295")
    return numbers.astype(np.uint32)


def as_flags(what: str, value: ArrayLike, count: int) -> Flags:
    """One flag per unique key."""
    flags = as_array(what, value, np.bool_, 1)
    if len(flags) != count:
        raise InputError(f"{what} holds {len(flags)} flags, expected {count}: one per unique key")
    return flags


def _as_numpy(what: str, value: ArrayLike) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        raise InputError(f"{what} is a {type(value).__name__}: give a numpy array or a CPU tensor")
    if value.device.type != "cpu":
        raise InputError(f"{what} is on {value.device}: move it to the CPU first")
    try:
        array: NDArray[Any] = value.detach().numpy()
    except (TypeError, RuntimeError):  # sparse, bfloat16, conjugated: numpy has no such thing
        raise InputError(f"{what} is a {value.layout} tensor of {value.dtype}: numpy cannot read it in place") from None
    return array


def _counted(what: str, array: NDArray[Any], count: int) -> NDArray[Any]:
    if len(array) != count:
        raise InputError(f"{what} holds {len(array)} numbers, expected {count}: one per key")
    return array
