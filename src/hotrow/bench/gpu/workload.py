"""Ids and rows to measure with."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from hotrow.bench.gpu.plan import GpuPlan

_GOLDEN = -7046029254386353131  # 2^64 over the golden ratio, as int64
_AT_ONCE = 2**22


def zipf_ranks(device: torch.device, plan: GpuPlan) -> Tensor:
    """int64 [batches, ids]: rank r with a probability in proportion to (r + 1) ** -skew, by the inverse of its sums."""
    sums = torch.arange(1, plan.distinct + 1, dtype=torch.float64, device=device).pow_(-plan.skew).cumsum_(0)
    random = torch.Generator(device).manual_seed(plan.seed)
    total = plan.batches * plan.ids
    drawn = [
        torch.rand(min(_AT_ONCE, total - begin), dtype=torch.float64, device=device, generator=random) * sums[-1]
        for begin in range(0, total, _AT_ONCE)
    ]
    ranks = torch.cat([torch.searchsorted(sums, part) for part in drawn])
    return ranks.clamp_(max=plan.distinct - 1).reshape(plan.batches, plan.ids)


def exact_gradients(rows: int, dim: int, random: torch.Generator) -> Tensor:
    """float32 [rows, dim], multiples of 1/16: sums of them have the same bits in any order."""
    return torch.randint(-8, 9, (rows, dim), device=random.device, generator=random) / 16


def keys_of(ranks: Tensor) -> Tensor:
    """64-bit ids that share no bits with the order of frequency: a product with an odd number is one to one."""
    return (ranks + 1) * _GOLDEN


@contextmanager
def matrix_precision(precision: str) -> Iterator[None]:
    """Matrices of float32 in float32 ("highest") or TF32 ("high")."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
