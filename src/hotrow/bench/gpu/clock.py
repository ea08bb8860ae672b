"""Times on a GPU by its events, and the ceiling that they are held against."""

from collections.abc import Callable
from itertools import pairwise
from statistics import median

import torch

from hotrow.bench.gpu.plan import GpuPlan
from hotrow.bench.gpu.workload import matrix_precision

_WARM_UP = 5


class EventClock:
    """The median time of calls on one device."""

    def __init__(self, device: torch.device, plan: GpuPlan) -> None:
        self.device, self._rounds = device, plan.rounds

    def seconds(self, call: Callable[[int], object], rounds: int | None = None) -> float:
        """The median of `call(round)`. Its rounds are queued together, so that the GPU does not wait for Python."""
        for turn in range(_WARM_UP):
            call(turn)
        torch.cuda.synchronize(self.device)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range((rounds or self._rounds) + 1)]  # type: ignore[no-untyped-call]
        marks[0].record()
        for turn, mark in enumerate(marks[1:]):
            call(turn)
            mark.record()
        torch.cuda.synchronize(self.device)
        times_ms: list[float] = [a.elapsed_time(b) for a, b in pairwise(marks)]
        return median(times_ms) / 1_000

    def copy_bytes_per_s(self, size: int) -> float:
        """Bytes read and written per second by torch's copy of `size` bytes: the ceiling of what moves rows."""
        source = torch.empty(size // 4, device=self.device)
        target = torch.empty_like(source)
        return 2 * size / self.seconds(lambda _: target.copy_(source))

    def matrix_flops_per_s(self, size: int, dtype: torch.dtype) -> float:
        """Operations per second of a product of two square matrices, float32 in TF32: the ceiling of networks."""
        left, right = torch.randn(2, size, size, device=self.device).to(dtype)
        with matrix_precision("high"):
            return float(2 * size**3 / self.seconds(lambda _: left @ right))
