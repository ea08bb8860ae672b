"""What every contestant is given, and our table as one of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from hotrow import _native
from hotrow.bench.ids import IdBatch, zipf_batches
from hotrow.bench.plan import StorePlan
from hotrow.store import RamTier


@dataclass(frozen=True, slots=True)
class Workload:
    """What everyone is given: the ids and one gradient per id."""

    ids: int
    batches: list[IdBatch]

    def batch(self, turn: int) -> IdBatch:
        return self.batches[turn % len(self.batches)]

    @property
    def mean_unique(self) -> float:
        return float(np.mean([batch.unique for batch in self.batches]))

    def gradients(self, dim: int) -> NDArray[np.float32]:
        return np.random.default_rng(2).normal(0, 0.01, (self.ids, dim)).astype(np.float32)


class HotrowStore:
    """Our table as a contestant."""

    def __init__(self, tier: RamTier, ids: int) -> None:
        self._tier = tier
        self._out = torch.zeros(ids, tier.dim)  # a tensor as in training: its memory is aligned, numpy's is not
        self._steps = 0

    def step(self, keys: NDArray[np.uint64], gradients: NDArray[np.float32]) -> None:
        batch = self._tier.find_or_init(keys, self._out)
        self._tier.apply(batch, gradients, step=self._steps)
        self._steps += 1

    def find(self, keys: NDArray[np.uint64]) -> None:
        self._tier.find(keys, self._out)


class UniquePeer:
    """Finding the duplicates of a batch alone, on one thread, into buffers that are there already."""

    def __init__(self, ids: int) -> None:
        self._keys = np.zeros(ids, np.uint64)
        self._inverse = np.zeros(ids, np.uint32)
        self._counts = np.zeros(ids, np.uint32)

    def run(self, keys: NDArray[np.uint64]) -> int:
        return _native.unique(keys, self._keys, self._inverse, self._counts, 1)


def draw(plan: StorePlan, rows: int) -> Workload:
    """Ids over a table of `rows` rows."""
    return Workload(plan.ids, zipf_batches(rows, plan.ids, plan.pool, exponent=plan.exponent))


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Peers compute with as many threads as we do."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
