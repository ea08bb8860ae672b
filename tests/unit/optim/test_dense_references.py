"""The float64 references of the modes say what the papers and the design say, on figures worked out by hand."""

from typing import Literal

import numpy as np
import pytest

from oracles.modes import F64, GBA, HetCache, HetServer, RowPart, Samples, dense_aggregate, gba_aggregate, gradients
from oracles.modes import sync_step as large_batch

DIM, KEYS = 3, 5
Average = Literal["batch", "present"]


def samples(count: int, seed: int) -> Samples:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, count).astype(np.float64)
    return Samples(generator.standard_normal((count, DIM)), generator.integers(0, KEYS, count), labels)


def first_rows() -> dict[int, F64]:
    return {key: np.linspace(-1, 1, DIM) * (key + 1) / 10 for key in range(KEYS)}


def log_loss(weight: F64, rows: dict[int, F64], batch: Samples) -> float:
    odds = np.array([x @ (weight + rows[int(key)]) for x, key in zip(batch.x, batch.ids, strict=True)])
    return float(np.mean(np.log1p(np.exp(odds)) - batch.labels * odds))


def part(token: int, samples: int, **grad: float) -> RowPart:
    """part(3, 10, k7=2.0): the gradient of key 7 is [2.0]."""
    return {
        "grad": {int(name[1:]): np.array([value]) for name, value in grad.items()},
        "samples": samples,
        "token": token,
    }


def of(found: dict[int, F64 | None], key: int) -> F64:
    gradient = found[key]
    assert gradient is not None
    return gradient


def test_gradients_are_those_of_the_mean_loss() -> None:
    batch, weight, rows = samples(12, 0), np.array([0.3, -0.2, 0.1]), first_rows()
    of_weight, of_rows = gradients(weight, rows, batch)
    change = np.array([1e-6, 0, 0])
    slope = (log_loss(weight + change, rows, batch) - log_loss(weight - change, rows, batch)) / 2e-6
    np.testing.assert_allclose(of_weight[0], slope, rtol=1e-7)
    key = int(batch.ids[0])
    up, down = ({**rows, key: rows[key] + sign * change} for sign in (1, -1))
    slope = (log_loss(weight, up, batch) - log_loss(weight, down, batch)) / 2e-6
    np.testing.assert_allclose(of_rows[key][0], slope, rtol=1e-7)
    assert of_rows.keys() == {int(found) for found in batch.ids}


def test_dense_parts_count_by_samples_and_stale_ones_stay_in_the_divisor() -> None:
    found = dense_aggregate([(np.array([1.0]), 10, 1.0), (np.array([4.0]), 30, 0.5), (np.array([9.0]), 60, 0.0)])
    np.testing.assert_allclose(found, (10 * 1 + 0.5 * 30 * 4) / 100)


@pytest.mark.parametrize(("average", "divisor"), [("batch", 60), ("present", 30)])
def test_an_id_is_divided_by_all_samples_or_by_those_of_its_parts(average: Average, divisor: int) -> None:
    parts = [part(5, 10, k7=2.0), part(5, 20, k7=8.0), part(5, 30, k1=1.0)]
    found = gba_aggregate(parts, {}, step=5, tolerance=0, average=average)
    np.testing.assert_allclose(of(found, 7), [(10 * 2 + 20 * 8) / divisor])
    np.testing.assert_allclose(of(found, 1), [1.0 * 30 / (60 if average == "batch" else 30)])


@pytest.mark.parametrize(("average", "divisor"), [("batch", 60), ("present", 30)])
def test_a_part_too_old_for_an_id_stays_in_its_divisor(average: Average, divisor: int) -> None:
    parts = [part(2, 10, k7=2.0), part(5, 20, k7=8.0), part(5, 30, k1=1.0)]
    found = gba_aggregate(parts, {7: 5}, step=9, tolerance=2, average=average)
    np.testing.assert_allclose(of(found, 7), [20 * 8 / divisor])


@pytest.mark.parametrize(("last_update", "fresh"), [(None, True), (3, True), (7, True), (8, False)])
def test_an_id_is_as_old_as_what_others_did_to_its_row(last_update: int | None, fresh: bool) -> None:
    """Token 3, tolerance 4: the last step that changed the row may be up to 4 later, however late it is now."""
    known = {} if last_update is None else {7: last_update}
    found = gba_aggregate([part(3, 10, k7=2.0)], known, step=50, tolerance=4, average="batch")
    assert (found[7] is not None) == fresh


@pytest.mark.parametrize(("step", "fresh"), [(7, True), (8, False)])
def test_to_the_letter_every_id_is_as_old_as_the_step(step: int, fresh: bool) -> None:
    found = gba_aggregate([part(3, 10, k7=2.0)], {}, step=step, tolerance=4, average="batch", literal=True)
    assert (found[7] is not None) == fresh


def test_a_row_in_every_aggregate_has_the_dense_staleness() -> None:
    """Both decays fall in the same step, and rows that nobody else touched have none."""
    server = GBA(np.zeros(1), {0: np.zeros(1), 1: np.zeros(1)}, parts_per_step=1, tolerance=2, lr=1.0)
    old, _, _ = server.pull()
    one = np.ones(1)
    for _ in range(3):
        token, _, _ = server.pull()
        server.push(token, one, {0: one}, 1)
    assert server.step - old == 3
    server.push(old, one, {0: one, 1: one}, 1)
    np.testing.assert_array_equal(server.weight, [-3.0])
    np.testing.assert_array_equal(server.rows[0], [-3.0])
    np.testing.assert_array_equal(server.rows[1], [-1.0])
    assert server.last_update == {0: 3, 1: 4}


@pytest.mark.parametrize("sizes", [(4, 4, 4), (6, 2, 4)])
def test_gba_whose_pushes_precede_the_next_pulls_is_one_large_batch(sizes: tuple[int, ...]) -> None:
    weight, rows = np.zeros(DIM), first_rows()
    server = GBA(weight, dict(rows), parts_per_step=3, tolerance=0, lr=0.5)
    ends = np.cumsum(sizes)
    for step in range(5):
        batch = samples(12, seed=step)
        pulls = [server.pull() for _ in sizes]
        for (token, pulled_weight, pulled_rows), end, size in zip(pulls, ends, sizes, strict=True):
            share = batch[end - size : end]
            server.push(token, *gradients(pulled_weight, pulled_rows, share), len(share))
        weight, rows = large_batch(weight, rows, batch, lr=0.5)
    np.testing.assert_allclose(server.weight, weight, rtol=1e-12)
    for key, row in rows.items():
        np.testing.assert_allclose(server.rows[key], row, rtol=1e-12)


def cached(staleness: int, clock: Literal["max", "additive"] = "max") -> tuple[HetServer, HetCache, HetCache]:
    server = HetServer({0: np.zeros(1)}, clock)
    return server, HetCache(server, staleness), HetCache(server, staleness)


def test_a_cache_may_write_as_often_as_its_bound_allows_and_once_more() -> None:
    server, cache, _ = cached(staleness=2)
    for _ in range(3):
        cache.read(0)
        cache.update(0, np.ones(1))
    assert (cache.fetches, server.clocks) == (1, {})
    np.testing.assert_array_equal(cache.read(0), [3.0])  # c_c = 3 > c_s + 2: written back and fetched
    assert (cache.fetches, server.clocks) == (2, {0: 3})


@pytest.mark.parametrize(("clock", "ends_at"), [("max", 3), ("additive", 4)])
def test_a_cache_may_read_what_is_no_more_than_its_bound_behind(
    clock: Literal["max", "additive"], ends_at: int
) -> None:
    server, one, other = cached(staleness=2, clock=clock)
    one.read(0)
    other.read(0)
    for cache, updates in ((one, 1), (other, 3)):
        for _ in range(updates):
            cache.update(0, np.ones(1))
    one.evict(0)
    one.read(0)
    assert one.is_valid(0)
    other.evict(0)
    assert server.clocks[0] == ends_at
    assert one.is_valid(0) == (server.clocks[0] <= 1 + 2)
    np.testing.assert_array_equal(one.read(0), [1.0] if clock == "max" else [4.0])


@pytest.mark.parametrize("staleness", [0, 1, 5, 100])
def test_one_worker_sees_its_own_writes_and_a_flush_brings_all_of_them(staleness: int) -> None:
    server, cache, _ = cached(staleness)
    for written in range(10):
        np.testing.assert_array_equal(cache.read(0), [float(written)])
        cache.update(0, np.ones(1))
    cache.flush()
    np.testing.assert_array_equal(server.values[0], [10.0])
    assert server.clocks[0] == 10


@pytest.mark.parametrize("seed", range(5))
def test_clocks_stay_within_the_bound_at_each_validation_that_passes(seed: int) -> None:
    """The checkable form of HET's Lemma 1."""
    server, *caches = cached(staleness=3)
    generator = np.random.default_rng(seed)
    for _ in range(300):
        cache = caches[generator.integers(2)]
        cache.read(0)
        assert abs(server.clocks.get(0, 0) - cache.entries[0].current) <= 3
        if generator.random() < 0.7:
            cache.update(0, np.ones(1))
        if generator.random() < 0.1:
            cache.evict(0)
    for cache in caches:
        cache.flush()
