"""The ids of a benchmark: batches from a bounded Zipf law, the same for everyone.

Popularity has nothing to do with where a row lies: ranks become row numbers by a fixed permutation. The peers' tables
are arrays, so they get the row numbers 0 to rows - 1; ours gets arbitrary 64-bit keys, a bijection of the row numbers,
so that it gains nothing from small integers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ODD = np.uint64(0x9E3779B97F4A7C15)  # multiplying by an odd number is a bijection on 64 bits
HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class IdBatch:
    """One batch under both names."""

    rows: NDArray[np.int64]
    keys: NDArray[np.uint64]
    unique: int  # distinct ids in it


def keys_of(rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The 64-bit key of each row number."""
    spread = (rows.astype(np.uint64) + np.uint64(1)) * ODD
    return spread ^ (spread >> HALF)


def zipf_batches(rows: int, ids: int, batches: int, *, exponent: float = 1.05, seed: int = 0) -> list[IdBatch]:
    """`batches` batches of `ids` ids; rank r of `rows` has weight 1 / r ** exponent, exactly."""
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(np.arange(1, rows + 1, dtype=np.float64) ** -exponent)
    row_of_rank = rng.permutation(rows)
    return [_batch(row_of_rank[_ranks(cumulative, rng.random(ids))]) for _ in range(batches)]


def random_order_keys(rows: int, *, seed: int = 1) -> NDArray[np.uint64]:
    """Every key once, in an order that has nothing to do with popularity."""
    return keys_of(np.random.default_rng(seed).permutation(rows))


def _ranks(cumulative: NDArray[np.float64], uniform: NDArray[np.float64]) -> NDArray[np.intp]:
    last = len(cumulative) - 1  # rounding may lift the largest draw to the very end
    ranks: NDArray[np.intp] = np.searchsorted(cumulative, uniform * cumulative[-1], side="right").clip(max=last)
    return ranks


def _batch(rows: NDArray[np.int64]) -> IdBatch:
    return IdBatch(rows, keys_of(rows), unique=len(np.unique(rows)))
