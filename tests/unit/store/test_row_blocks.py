"""Rows are updated in blocks: keys that take no update stand between others, and change nothing for them."""

import numpy as np
import pytest

from hotrow import SGD, Adagrad, Adam, Swap, Table
from hotrow.optim.sparse import SparseOptimizer
from hotrow.store import Applied, RamTier

DIM = 20  # whole vectors and a rest
SIZES = (1, 15, 16, 17, 32, 33, 50)  # around the 16 keys of a block
OPTIMIZERS = [
    SGD(lr=0.5, clip=0.1),
    Adagrad(lr=0.1),
    Adagrad(lr=0.1, swap=Swap(period=10, decay=0.5)),
    Adam(lr=0.1, correction="row"),
]


def make(optimizer: SparseOptimizer, row_type: str) -> RamTier:
    return RamTier(Table(dim=DIM, optimizer=optimizer, type=row_type), partitions=1)


@pytest.mark.parametrize("row_type", ["float32", "float16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=["sgd", "adagrad", "swap", "adam"])
@pytest.mark.parametrize("size", SIZES)
def test_update_of_many_keys_gives_the_bits_of_single_keys(
    optimizer: SparseOptimizer, row_type: str, size: int
) -> None:
    together, alone = make(optimizer, row_type), make(optimizer, row_type)
    keys = np.arange(size, dtype=np.uint64)
    absent, refused, weightless = keys % 5 == 1, keys % 7 == 2, keys % 11 == 3
    out = np.empty((size, DIM), np.float32)
    for tier in (together, alone):
        tier.find_or_init(keys[~absent], out[~absent])
    rng = np.random.default_rng(size)
    for step in range(3):
        gradients = rng.normal(0, 1, (size, DIM)).astype(np.float32)
        gradients[refused, 3] = np.nan
        weights = np.where(weightless, 0, 1).astype(np.float32)
        applied = together.apply(keys, gradients, step=step, samples=step * 10, weights=weights)
        singly = Applied(0, 0, 0)
        for i in range(size):
            one = slice(i, i + 1)
            singly += alone.apply(keys[one], gradients[one], step=step, samples=step * 10, weights=weights[one])
        assert applied == singly
        assert applied.refused == (refused & ~absent & ~weightless).sum()
    (mine,), (theirs,) = together.export(), alone.export()
    assert mine.values.tobytes() == theirs.values.tobytes()
    assert mine.state.tobytes() == theirs.state.tobytes()
    assert all(mine.fields[name].tobytes() == theirs.fields[name].tobytes() for name in mine.fields)
