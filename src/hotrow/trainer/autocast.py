"""Whether this processor multiplies faster in bfloat16."""

import time
from functools import cache
from typing import Literal

import torch

from hotrow.runtime.device import device_of
from hotrow.runtime.settings import Local, Ray

Autocast = Literal["off", "on", "auto"]
GAIN = 1.2  # less is lost again in the conversions around a product


def takes_bfloat16(choice: Autocast, engine: Local | Ray) -> bool:
    """Whether the network computes in bfloat16; "auto": where its processor gains from it."""
    if choice != "auto":
        return choice == "on"
    if isinstance(engine, Local) and (gpu := device_of(engine.device).rows) is not None:
        with torch.cuda.device(gpu):  # torch tells it of the current one
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return gains_from_bfloat16()


@cache
def gains_from_bfloat16(size: int = 512, rounds: int = 5) -> bool:
    """Measured, because the CPU flag for such instructions does not show whether torch uses them well."""
    exact = torch.full((size, size), 0.5)  # no random numbers: those of the run must not depend on this call
    short = exact.to(torch.bfloat16)
    return _seconds(exact, rounds) > GAIN * _seconds(short, rounds)


def _seconds(matrix: torch.Tensor, rounds: int) -> float:
    taken = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        matrix @ matrix
        taken.append(time.perf_counter() - start)
    return min(taken[1:])  # the first one prepares the kernels
