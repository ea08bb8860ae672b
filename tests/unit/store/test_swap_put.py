"""A row that was put stands at the period that was given with it, or at the one that the table has reached."""

import numpy as np
import pytest

from hotrow import Adagrad, Swap, Table
from hotrow.store import RamTier

KEYS = np.array([1, 2], np.uint64)
ZEROS = np.zeros((2, 1), np.float32)


def table() -> RamTier:
    return RamTier(Table(dim=1, optimizer=Adagrad(swap=Swap(period=10, decay=0.5))))


def moments(tier: RamTier) -> list[float]:
    (rows,) = tier.export()
    return [float(moment) for _, moment in sorted(zip(rows.keys.tolist(), rows.state.ravel(), strict=True))]


@pytest.mark.parametrize(("samples", "expected"), [(39, 16.0), (40, 8.0), (50, 4.0)])
def test_state_that_is_put_is_of_the_present_period(samples: int, expected: float) -> None:
    tier = table()
    tier.find_or_init(KEYS[:1])  # put over a row of period 0, and where there is none
    tier.find_or_init(np.empty(0, np.uint64), samples=30)
    tier.put(KEYS, ZEROS, np.full((2, 1), 16, np.float32))
    tier.apply(KEYS, ZEROS, samples=samples)
    assert moments(tier) == [expected, expected]


def test_a_value_that_is_put_without_state_leaves_the_state_at_its_period() -> None:
    tier = table()
    tier.put(KEYS, ZEROS, np.full((2, 1), 16, np.float32))
    tier.find_or_init(np.empty(0, np.uint64), samples=30)
    tier.put(KEYS, ZEROS + 1)
    tier.apply(KEYS, ZEROS, samples=30)
    assert moments(tier) == [2.0, 2.0]


def test_rows_that_come_back_into_an_empty_table_bring_its_period() -> None:
    tier = RamTier(Table(dim=1, optimizer=Adagrad(initial=16.0, swap=Swap(period=10, decay=0.5))))
    saved = {"period": np.array([3], np.uint32)}
    tier.put(KEYS[:1], ZEROS[:1], np.full((1, 1), 16, np.float32), saved)
    tier.find_or_init(KEYS[1:])
    tier.apply(KEYS, ZEROS, samples=40)
    assert moments(tier) == [8.0, 8.0]
