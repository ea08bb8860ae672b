"""Accumulators of cached rows: a worker expects the others to have its gradients, and writes back its own alone."""

import math
from typing import Any

import numpy as np
import pytest

from hotrow import Adagrad, Cache, RowwiseAdagrad, Swap, Table
from hotrow.cache.cache import RowCache
from hotrow.cache.local import CachedLocalTables
from hotrow.errors import ConfigError
from hotrow.optim.sparse import AnyOptimizer
from hotrow.sim.caches import SimCaches
from unit.cache.cached_workers import Server, all_rows

pytestmark = pytest.mark.usefixtures("row_memory")

DIM, KEY = 3, np.array([7], np.uint64)
OPTIMIZERS = [
    Adagrad(lr=0.1, initial=0.5),
    Adagrad(lr=0.1, eps=0.01, eps_inside=True, l2=0.02),
    RowwiseAdagrad(lr=0.1, l2=0.02),
    Adagrad(lr=0.1, swap=Swap(period=3, decay=0.5)),
]


def train(rows: RowCache, server: Server, gradient: Any, samples: int) -> None:
    batch = rows.begin(KEY, samples=samples)
    rows.receive(batch, server.answer(batch))
    given = np.asarray(gradient, np.float32)[None]
    rows.apply(batch, given, np.ones(1, np.float32), samples=samples)
    rows.finish(batch)


def expected(
    optimizer: Any, value: Any, moment: Any, gradients: Any, workers: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """In float64: the row after updates at samples 1, 2, ..., and what its worker alone has added to the moment."""
    value, own = value.astype(np.float64), np.zeros_like(moment, np.float64)
    fetched, eps = moment.astype(np.float64), optimizer.eps
    for sample, gradient in enumerate(gradients, 1):
        if optimizer.swap is not None and sample % optimizer.swap.period == 0:
            own, fetched = own * optimizer.swap.decay, fetched * optimizer.swap.decay
        g = gradient.astype(np.float64) + optimizer.l2 * value
        own = own + (g * g if optimizer.name == "adagrad" else np.mean(g * g, keepdims=True))
        v = fetched + workers * own
        value = value - optimizer.lr * g / (np.sqrt(v + eps) if optimizer.eps_inside else np.sqrt(v) + eps)
    return value, own


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_a_worker_steps_by_the_gradients_of_all_and_writes_back_its_own(optimizer: AnyOptimizer, workers: int) -> None:
    cache = Cache(capacity=8, staleness=100)
    server = Server(Table(dim=DIM, optimizer=optimizer, cache=cache))
    rows = RowCache(server.table, cache, workers=workers)
    server.tier.find_or_init(KEY, samples=0)
    value, moment, _ = all_rows(server.tier)[7]
    gradients = np.random.default_rng(workers).standard_normal((5, DIM)).astype(np.float32)
    for sample, gradient in enumerate(gradients, 1):
        train(rows, server, gradient, sample)
    server.samples = len(gradients)
    for request in rows.take_all_changes(samples=server.samples):
        assert np.allclose(request.changes.state[0], expected(optimizer, value, moment, gradients, workers)[1], 1e-4)
        server.flush_request(request)
    after, own = expected(optimizer, value, moment, gradients, workers)
    decayed = moment * (0.5 if optimizer.swap is not None else 1.0)  # type: ignore[union-attr]
    found = all_rows(server.tier)[7]
    assert np.allclose(found[0], after, atol=1e-5)
    assert np.allclose(found[1], decayed + own, 1e-4)
    rows.close()


@pytest.mark.parametrize("optimizer", [Adagrad(lr=0.1), RowwiseAdagrad(lr=0.1)], ids=str)
def test_the_first_gradients_of_all_workers_move_a_row_no_further_than_on_the_server(optimizer: AnyOptimizer) -> None:
    def moved(cache: Cache, workers: int = 4) -> float:
        server = Server(Table(dim=DIM, optimizer=optimizer, cache=cache))
        server.tier.find_or_init(KEY, samples=0)
        start = all_rows(server.tier)[7][0]
        all_of = [RowCache(server.table, cache, workers=workers) for _ in range(workers)]
        for rows in all_of:  # none has the changes of another
            train(rows, server, np.ones(DIM), 1)
        for rows in all_of:
            for request in rows.take_all_changes(samples=1):
                server.flush_request(request)
            rows.close()
        assert np.allclose(all_rows(server.tier)[7][1], workers), "every gradient is in the accumulator once"
        return float(np.abs(all_rows(server.tier)[7][0] - start).max())

    one_by_one = sum(0.1 / math.sqrt(count) for count in range(1, 5))
    assert moved(Cache(capacity=8)) == pytest.approx(0.1 * math.sqrt(4), rel=1e-5)
    assert moved(Cache(capacity=8)) < one_by_one
    assert moved(Cache(capacity=8, workers=1)) == pytest.approx(4 * 0.1, rel=1e-5)


def test_the_number_of_workers_is_that_of_the_run_unless_the_table_says_another() -> None:
    given = {"own": Cache(capacity=8, workers=1), "all": Cache(capacity=8)}
    specs = {name: Table(name=name, dim=DIM, cache=cache) for name, cache in given.items()}
    tables = CachedLocalTables(specs)
    tables.open_caches(3)
    assert [rows.cache.workers for rows in tables.caches("all")] == [3, 3, 3]
    assert [rows.cache.workers for rows in tables.caches("own")] == [1, 1, 1]
    sim = SimCaches(specs, tables.tiers)
    sim.reset(5)
    sim.request(1, 0, {"own": KEY, "all": KEY}, 0)
    assert {name: rows.cache.workers for name, rows in sim.caches[0].items()} == {"own": 1, "all": 5}
    sim.close()
    tables.close()
    with pytest.raises(ConfigError, match=r"workers=0"):
        Cache(capacity=8, workers=0)


def test_a_cache_without_room_for_a_row_is_refused_by_its_own_name() -> None:
    cache = Cache(capacity="50B")
    with pytest.raises(ConfigError, match=r"Cache\.capacity='50B': not one row"):
        RowCache(Table(dim=DIM, cache=cache), cache)
