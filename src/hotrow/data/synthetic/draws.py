"""The distributions of a synthetic stream: Zipf's law over any number of ids without a table, and normal numbers."""

import math

import numpy as np
from numpy.typing import NDArray

from hotrow.data.chance import F64, U64

F32 = NDArray[np.float32]
I16 = NDArray[np.int16]
I64 = NDArray[np.int64]

CLOSE_TO_ONE = 1e-6  # of an exponent: there the general form of the integral loses its digits


def normal(drawn: U64) -> F32:
    """About normal with mean 0 and deviation 1: the sum of four uniform numbers, so never beyond 3.47."""
    quarters: I16 = drawn.view(np.int16).reshape(-1, 4)
    total = quarters[:, 0].astype(np.float32)
    for place in (1, 2, 3):
        total += quarters[:, place]
    total += np.float32(2.0)  # each int16 is -0.5 on average
    total *= np.float32(math.sqrt(3.0) / 2**16)
    return total


class Zipf:
    """Ranks from 1 to size: density goes as x ** -exponent from 1 to size + 1, and x is rounded down."""

    def __init__(self, size: int, exponent: float) -> None:
        top = float(size)
        self._top = top if top <= size < 2**63 else math.nextafter(top, 0)
        self._power = 1 - exponent
        log_size = math.log(size + 1.0)
        self._is_log = abs(self._power) <= CLOSE_TO_ONE
        self._span = log_size if self._is_log else math.expm1(log_size * self._power)

    def ranks(self, chance: F64) -> I64:
        """For uniform numbers, which are overwritten."""
        chance *= self._span
        if self._is_log:
            np.exp(chance, out=chance)
        else:
            chance += 1
            np.power(chance, 1 / self._power, out=chance)
        return np.minimum(chance, self._top, out=chance).astype(np.int64)  # rounding may lift the last above `size`
