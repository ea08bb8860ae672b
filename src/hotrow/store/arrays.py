"""The border's checks: what an array must be, told in a sentence before native code sees it. Nothing is copied.

Numpy arrays and CPU tensors are taken alike; int64 ids are read as their 64 bits.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from hotrow.errors import InputError

ArrayLike: TypeAlias = Any  # a numpy array or a CPU torch tensor
Keys: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.uint32]


def as_keys(what: str, array: ArrayLike) -> Keys:
    """One dimension of 64-bit ids."""
    keys = _as_numpy(what, array)
    if keys.dtype not in (np.uint64, np.int64):
        raise InputError(f"{what} has type {keys.dtype}: ids are uint64 or int64, convert them first")
    _demand_layout(what, keys, dimensions=1)
    return keys.view(np.uint64)


def as_matrix(what: str, array: ArrayLike, rows: int | None, columns: int) -> Floats:
    """float32 of shape (rows, columns); any number of rows where `rows` is None."""
    matrix = _as_numpy(what, array)
    if matrix.dtype != np.float32:
        raise InputError(f"{what} has type {matrix.dtype}: it must be float32")
    _demand_layout(what, matrix, dimensions=2)
    if matrix.shape != (matrix.shape[0] if rows is None else rows, columns):
        expected = f"({'any' if rows is None else rows}, {columns})"
        raise InputError(f"{what} is {matrix.shape}, expected {expected}")
    return matrix


def as_output(what: str, array: ArrayLike, rows: int, columns: int) -> Floats:
    """A float32 buffer that may be written."""
    matrix = as_matrix(what, array, rows, columns)
    if not matrix.flags.writeable:
        raise InputError(f"{what} is read-only: give a buffer that may be written")
    return matrix


def as_weights(what: str, array: ArrayLike, count: int) -> Floats:
    """One float32 per key."""
    weights = _as_numpy(what, array)
    if weights.dtype != np.float32:
        raise InputError(f"{what} has type {weights.dtype}: it must be float32")
    _demand_vector(what, weights, count)
    return weights


def as_integers(what: str, array: ArrayLike, count: int) -> Integers:
    """One uint32 per key; int64 is converted where it fits."""
    numbers = _as_numpy(what, array)
    if numbers.dtype not in (np.uint32, np.int64):
        raise InputError(f"{what} has type {numbers.dtype}: it must be uint32 or int64")
    _demand_vector(what, numbers, count)
    if numbers.dtype == np.int64:
        if numbers.size and (numbers.min() < 0 or numbers.max() >= 2**32):
            raise InputError(f"{what} holds numbers outside 0 … 4,294,967,295")
        return numbers.astype(np.uint32)
    return numbers


def _as_numpy(what: str, array: ArrayLike) -> npt.NDArray[Any]:
    if isinstance(array, np.ndarray):
        return array
    if not hasattr(array, "detach"):
        raise InputError(f"{what} is a {type(array).__name__}: give a numpy array or a CPU tensor")
    if array.device.type != "cpu":
        raise InputError(f"{what} is on {array.device}: move it to the CPU first")
    viewed: npt.NDArray[Any] = array.detach().numpy()
    return viewed


def _demand_vector(what: str, array: npt.NDArray[Any], count: int) -> None:
    _demand_layout(what, array, dimensions=1)
    if array.shape[0] != count:
        raise InputError(f"{what} holds {array.shape[0]} numbers, expected {count}: one per key")


def _demand_layout(what: str, array: npt.NDArray[Any], dimensions: int) -> None:
    if array.ndim != dimensions:
        raise InputError(f"{what} has {array.ndim} dimensions, expected {dimensions}")
    if not array.flags.c_contiguous:
        raise InputError(f"{what} is not contiguous: call .contiguous() or numpy.ascontiguousarray first")
