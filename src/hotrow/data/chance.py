"""Chance by counting: a drawn number is a function of (stream, counter) alone, so any row can be decided at any time.

The bits are those of the generator splitmix64.
"""

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
F64 = NDArray[np.float64]

STEP = 0x9E3779B97F4A7C15  # odd, so that counters times it are all different
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
MASK = 2**64 - 1


def stream(*names: int) -> int:
    """The start of the stream that belongs to these numbers."""
    state = 0
    for name in names:
        state = _mixed_number((state ^ name) + STEP & MASK)
    return state


def bits(start: int, counters: U64) -> U64:
    """64 drawn bits for each counter."""
    return mixed(counters * np.uint64(STEP) + np.uint64(start))


def mixed(values: U64) -> U64:
    """A bijection of 64 bits that leaves no trace of order; `values` is overwritten."""
    for shift, factor in ((30, FIRST), (27, SECOND)):
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    values ^= values >> np.uint64(31)
    return values


def uniform(drawn: U64) -> F64:
    """From 0 to 1, 1 left out, in steps of 2^-53."""
    top: NDArray[np.int64] = (drawn >> np.uint64(11)).view(np.int64)  # numpy turns signed integers into floats faster
    return np.multiply(top, 2.0**-53, dtype=np.float64)


def _mixed_number(value: int) -> int:
    for shift, factor in ((30, FIRST), (27, SECOND)):
        value = (value ^ value >> shift) * factor & MASK
    return value ^ value >> 31
