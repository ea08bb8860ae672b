"""A row's first value depends only on (seed, table, key), and follows the distribution that was asked for."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow import FTRL, Adam, Constant, Normal, Table, Uniform
from hotrow.store import RamTier

F32 = NDArray[np.float32]
KEYS = np.random.default_rng(0).integers(0, 2**64, 3000, np.uint64)
INITS = [Uniform(bound=0.5), Normal(std=2.0), Constant(value=3.0)]


def first(table: Table, keys: NDArray[np.uint64] = KEYS, **options: Any) -> F32:
    """What find_or_init creates."""
    out = np.empty((len(keys), table.dim), np.float32)
    RamTier(table, **options).find_or_init(keys, out)
    return out


@pytest.mark.parametrize("init", INITS, ids=lambda init: init.name)
@pytest.mark.parametrize("dim", [1, 5, 16, 17])
def test_same_row_starts_the_same_however_the_table_is_cut(init: Any, dim: int) -> None:
    table = Table(dim=dim, init=init)
    expected = first(table)
    for threads, partitions in [(1, 1), (1, 128), (2, 32), (3, 8)]:
        np.testing.assert_array_equal(first(table, threads=threads, partitions=partitions), expected)


def test_same_row_starts_the_same_in_any_order_and_company() -> None:
    table = Table(dim=5, init=Normal())
    expected = first(table)
    np.testing.assert_array_equal(first(table, KEYS[::-1].copy())[::-1], expected)
    np.testing.assert_array_equal(first(table, KEYS[::7].copy()), expected[::7])
    np.testing.assert_array_equal(np.vstack([first(table, KEYS[i : i + 1]) for i in range(20)]), expected[:20])


def test_first_values_tells_what_find_or_init_creates() -> None:
    table = Table(dim=5, init=Uniform())
    tier = RamTier(table)
    told = np.empty((len(KEYS), 5), np.float32)
    tier.first_values(KEYS, told)
    assert len(tier) == 0
    np.testing.assert_array_equal(told, first(table))


def test_first_values_do_not_depend_on_the_optimizer() -> None:
    tables = [Table(dim=5, optimizer=spec) for spec in (Adam(), FTRL(l1=0.5, l2=2.0))]
    for table in tables:
        np.testing.assert_array_equal(first(table), first(Table(dim=5)))


@pytest.mark.parametrize("init", INITS[:2], ids=lambda init: init.name)
@pytest.mark.parametrize("change", [{"seed": 1}, {"seed": 2**63}, {"name": "items"}, {"name": "defaulu"}])
def test_other_seeds_and_tables_start_elsewhere(init: Any, change: dict[str, Any]) -> None:
    one, other = first(Table(dim=4, init=init)), first(Table(dim=4, init=init, **change))
    assert (one == other).mean() < 0.001
    assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 0.05


@pytest.mark.parametrize("init", INITS[:2], ids=lambda init: init.name)
def test_neighbouring_keys_and_columns_are_not_alike(init: Any) -> None:
    values = first(Table(dim=8, init=init), np.arange(20_000, dtype=np.uint64))
    assert len(np.unique(values)) > 0.95 * values.size
    assert abs(np.corrcoef(values[:-1].ravel(), values[1:].ravel())[0, 1]) < 0.01
    assert np.abs(np.corrcoef(values.T) - np.eye(8)).max() < 0.04


@pytest.mark.parametrize("shift", [0, 16, 32, 48, 54])
@pytest.mark.parametrize("init", INITS[:2], ids=lambda init: init.name)
def test_every_bit_of_a_key_counts(init: Any, shift: int) -> None:
    values = first(Table(dim=4, init=init), np.arange(1000, dtype=np.uint64) << np.uint64(shift))
    assert len(np.unique(values, axis=0)) == 1000


@pytest.mark.parametrize("bound", [0.01, 0.5])
def test_uniform_fills_its_bounds_evenly(bound: float) -> None:
    values = (
        first(Table(dim=16, init=Uniform(bound=bound)), np.arange(6000, dtype=np.uint64)).astype(np.float64).ravel()
    )
    assert values.min() >= -bound
    assert values.max() <= bound
    assert kolmogorov_smirnov(values, np.clip((np.sort(values) + bound) / (2 * bound), 0, 1)) < 1.95
    assert abs(values.mean()) < 5 * bound / math.sqrt(3 * values.size)


def test_normal_has_the_moments_and_shape_of_a_normal() -> None:
    values = (
        first(Table(dim=16, init=Normal(std=2.0)), np.arange(6000, dtype=np.uint64)).astype(np.float64).ravel() / 2.0
    )
    count = values.size
    assert np.isfinite(values).all()
    assert abs(values.mean()) < 5 / math.sqrt(count)
    assert abs(values.var() - 1) < 5 * math.sqrt(2 / count)
    assert abs((values**3).mean()) < 5 * math.sqrt(15 / count)
    assert abs((values**4).mean() - 3) < 5 * math.sqrt(96 / count)
    assert kolmogorov_smirnov(values, np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in np.sort(values)])) < 1.95
    assert np.abs(values).max() > 3.5  # tails are there


def test_odd_dims_of_normal_are_normal_in_every_column() -> None:
    values = first(Table(dim=3, init=Normal(std=1.0)), np.arange(20_000, dtype=np.uint64))
    np.testing.assert_allclose(values.var(axis=0), np.ones(3), atol=5 * math.sqrt(2 / 20_000))


@pytest.mark.parametrize("value", [0.0, 0.25, -3.0])
def test_constant_is_the_same_everywhere(value: float) -> None:
    np.testing.assert_array_equal(first(Table(dim=3, init=Constant(value=value))), np.float32(value))


@pytest.mark.parametrize("dim", [1, 4, 17, 64])
@pytest.mark.parametrize(
    ("plain", "scaled"),
    [
        (Uniform(bound=0.5), Uniform(bound=0.5, scaled=True)),
        (Normal(std=0.5), Normal(std=0.5, scaled=True)),
        (Constant(value=0.5), Constant(value=0.5, scaled=True)),
    ],
    ids=["uniform", "normal", "constant"],
)
def test_scaled_divides_by_the_root_of_the_dimension(plain: Any, scaled: Any, dim: int) -> None:
    expected = first(Table(dim=dim, init=plain)) / math.sqrt(dim)
    np.testing.assert_allclose(first(Table(dim=dim, init=scaled)), expected, rtol=1e-6)


def kolmogorov_smirnov(values: NDArray[np.float64], distribution: NDArray[np.float64]) -> float:
    """sqrt(n) times the largest gap to the distribution at the sorted values; above 1.95 once in a thousand."""
    count = len(values)
    above = np.arange(1, count + 1) / count - distribution
    below = distribution - np.arange(count) / count
    return math.sqrt(count) * float(max(above.max(), below.max()))
