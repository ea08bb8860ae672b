"""A row that was put, fresh or over another, has no past for SWAP to let it forget."""

import numpy as np

from hotrow import Adagrad, Swap, Table
from hotrow.store import RamTier

KEYS = np.array([1, 2], np.uint64)


def test_put_over_a_fresh_row_starts_undecayed_like_a_new_one() -> None:
    tier = RamTier(Table(dim=1, optimizer=Adagrad(swap=Swap(period=10, decay=0.5))))
    tier.find_or_init(KEYS[:1])
    tier.put(KEYS, np.zeros((2, 1), np.float32), np.full((2, 1), 16, np.float32))
    tier.apply(KEYS, np.zeros((2, 1), np.float32), samples=40)
    (rows,) = tier.export()
    assert rows.state.ravel().tolist() == [16.0, 16.0]
