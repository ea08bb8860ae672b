"""Whether this processor multiplies faster in bfloat16."""

import time
from functools import cache
from typing import Literal

import torch

Autocast = Literal["off", "on", "auto"]
GAIN = 1.2  # less is lost again in the conversions around a product


@cache
def gains_from_bfloat16(size: int = 512, rounds: int = 5) -> bool:
    """Measured, because the flag that a processor has such instructions does not say that torch uses them well."""
    exact = torch.full((size, size), 0.5)  # no random numbers: the run's own must not depend on who asked first
    short = exact.to(torch.bfloat16)
    return _seconds(exact, rounds) > GAIN * _seconds(short, rounds)


def _seconds(matrix: torch.Tensor, rounds: int) -> float:
    taken = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        matrix @ matrix
        taken.append(time.perf_counter() - start)
    return min(taken[1:])  # the first one prepares the kernels
