"""Caches in virtual time: equal to none with one worker, order of messages, times, flushes, studies."""

from typing import Any

import numpy as np
import pytest

import hotrow as hr
from hotrow.config import Cache
from hotrow.errors import ConfigError
from hotrow.modes import Async, Hybrid
from hotrow.optim.sparse import Adagrad
from hotrow.reproduce.days import Chain
from hotrow.reproduce.task import Model, PaperHyper, TrainingTask
from hotrow.sim import ClusterConfig, Crash, Faults, Messages, Network, SimCluster, SimLease, Speeds
from hotrow.sim.keyed import CachedKeyedWork
from hotrow.sim.study.config import SimulationConfig

TASK = TrainingTask(days=2, train_rows=512, test_rows=256, features=3, numbers=2, ids=60, dim=3,
                    model_settings={"hidden": [4]})  # fmt: skip
HYPER = PaperHyper(Adagrad(lr=0.1, initial=0.1), "SGD", {"lr": 0.1})
SLOW = Network(latency_s=0.01, bandwidth=100_000)


@pytest.mark.parametrize("staleness", [0, 2, 1000])
def test_one_worker_trains_as_without_a_cache(staleness: int) -> None:
    rows = []
    for cache in (None, Cache(capacity=20, staleness=staleness)):
        model = Model(TASK, HYPER, 1, cache=cache)
        config = ClusterConfig(workers=1, local_batch=16, speeds=Speeds(batch_s=1.0), network=SLOW)
        Chain(model).train(Async(), config, 0)
        (chunk,) = model.tables.tiers["default"].export()
        order = np.argsort(chunk.keys)
        rows.append((chunk.keys[order], chunk.values[order].copy(), chunk.state[order].copy(), model.auc(1)))
        model.close()
    plain, cached = rows
    assert np.array_equal(plain[0], cached[0])
    np.testing.assert_allclose(cached[1], plain[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(cached[2], plain[2], rtol=1e-5, atol=1e-6)
    assert cached[3] == pytest.approx(plain[3], abs=1e-5)


def keyed(staleness: int = 100, capacity: int = 64) -> CachedKeyedWork:
    def keys(lease: SimLease) -> Any:
        return np.unique(np.random.default_rng(lease.number).integers(0, 50, 8)).astype(np.uint64)

    table = hr.Table(dim=4, optimizer=hr.SGD(lr=1.0), init=hr.Constant(value=0.0),
                     cache=Cache(capacity=capacity, staleness=staleness))  # fmt: skip
    return CachedKeyedWork(keys, table, dense_bytes=100)


def total(work: CachedKeyedWork) -> float:
    """Every update takes 1 from each element: the sum of one column is the updates that the servers have."""
    return -sum(float(chunk.values[:, 0].sum()) for chunk in work.tier.export())


def updates(leases: int) -> int:
    work = keyed()
    found = sum(len(work._keys_of(SimLease(number, 8))) for number in range(1, leases + 1))
    work.close()
    return found


@pytest.mark.parametrize("mode", [Async(), Hybrid(max_in_flight=3)], ids=["async", "hybrid"])
def test_the_end_of_a_run_flushes_and_a_flush_takes_time(mode: Any) -> None:
    seconds = []
    for network in (Network(), SLOW):
        work = keyed()
        config = ClusterConfig(workers=3, local_batch=8, speeds=Speeds(batch_s=1.0, sample_s=0.0), network=network)
        result = SimCluster(mode, config, data=30 * 8, work=work, watchers=[work]).run()
        assert result.finished
        assert total(work) == updates(30)
        seconds.append(result.seconds)
        assert result.row_bytes > 0
        work.close()
    assert seconds[1] > seconds[0] + 0.02  # the last push, the flush and its answer


def test_a_worker_that_crashes_loses_what_is_not_written_back() -> None:
    work = keyed(staleness=1000)
    faults = Faults(crashes=(Crash(worker=1, at_s=5.5),), detect_s=0.5)
    config = ClusterConfig(
        workers=2, local_batch=8, speeds=Speeds(batch_s=1.0, sample_s=0.0), network=SLOW, faults=faults
    )
    result = SimCluster(Async(), config, data=20 * 8, work=work, watchers=[work]).run()
    assert result.statistics.counts["cached_rows_lost"] > 10
    assert total(work) < updates(20)
    work.close()


def test_a_request_that_comes_twice_is_added_once() -> None:
    work = keyed(staleness=0)
    faults = Faults(messages=Messages(duplicate=1.0, timeout_s=0.5))
    config = ClusterConfig(
        workers=2, local_batch=8, speeds=Speeds(batch_s=1.0, sample_s=0.0), network=SLOW, faults=faults
    )
    result = SimCluster(Async(), config, data=20 * 8, work=work, watchers=[work]).run()
    assert result.statistics.counts["cache_requests_again"] > 10
    assert total(work) == updates(20)
    work.close()


def study(**modes: Any) -> SimulationConfig:
    return SimulationConfig(
        run={"work": "train"},
        cluster={"workers": 2, "local_batch": 8},
        data={"format": "synthetic", "rows": 64, "features": 2, "ids": 20},
        model={"name": "lr"},
        tables={"default": {"dim": 1, "cache": {"capacity": 10}}},
        modes=modes,
    )


def test_a_mode_of_a_study_has_the_tables_cache_its_own_or_none() -> None:
    own = {"capacity": 5, "staleness": 0}
    config = study(hybrid={}, own={"name": "async", "cache": own}, sync={"cache": "off"})
    found = {label: config.tables_of(label)["default"].cache for label in config.modes}
    assert found == {"hybrid": Cache(capacity=10), "own": Cache(**own), "sync": None}


@pytest.mark.parametrize(
    ("modes", "sentence"),
    [
        ({"sync": {}}, "mode 'sync' applies gradients of rows together.*cache = 'off'"),
        ({"auto": {}}, "auto takes others: set cache = 'off'"),
        ({"hybrid": {"switches": [{"mode": "gba", "at_samples": 8}]}}, "mode 'gba' applies gradients"),
    ],
)
def test_modes_that_cannot_cache_are_refused(modes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        study(**modes)


def test_a_cache_needs_work_that_trains() -> None:
    with pytest.raises(ConfigError, match="work='count' has none"):
        SimulationConfig(
            cluster={"workers": 2, "local_batch": 8},
            modes={"hybrid": {"cache": {"capacity": 10}}},
            run={"samples": 80},
        )
