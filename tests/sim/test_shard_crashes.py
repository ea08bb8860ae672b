"""Every mode while workers and shards crash and messages are lost or come twice: no row may differ from the ledger.

A failing seed is replayed by `pytest tests/sim/test_shard_crashes.py --seed=N`.
"""

from pathlib import Path

import pytest

from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.server.order_marks import OrderMarks
from hotrow.sim import Checkers, SimCluster, SimResult, Trace, drawn_faults
from sim.seeded import LOCAL_BATCH, UNTIL_S, Draw, cluster_of_seed
from sim.shard_ledger import ShardedWork

SEEDS, MORE_SEEDS = range(25), range(25, 225)
LEASES = 80


def modes_of(draw: Draw, workers: int) -> dict[str, Mode]:
    """Weights that follow from staleness are GBA's alone: the ledger knows its rule."""
    small = draw.whole(1, 0, 3)
    return {
        "sync": Sync(),
        "async": Async(),
        "bulk_sync": BulkSync(bulk=small + 1),
        "bounded_staleness": BoundedStaleness(bound=small),
        "backup_workers": BackupWorkers(backups=min(small, workers - 1)),
        "gba": GBA(tolerance=small),
        "hybrid": Hybrid(max_in_flight=small + 1, scale="global" if draw.chance(3) < 0.5 else "local"),
        "k_step": KStep(k=small + 1, warmup=draw.whole(4, 0, 100)),
    }


def run_seed(name: str, seed: int, directory: Path, trace: Trace) -> tuple[SimResult, ShardedWork]:
    draw, shards = Draw(seed), 1 + seed % 3
    config = cluster_of_seed(draw)
    faults = drawn_faults(seed, config.workers, UNTIL_S, shards)
    config = config.model_copy(update={"faults": faults, "shards": shards})
    mode, checkers = modes_of(draw, config.workers)[name], Checkers()
    work, samples = ShardedWork(directory, mode, shards), LEASES * LOCAL_BATCH - seed % LOCAL_BATCH
    try:
        cluster = SimCluster(mode, config, data=samples, work=work, seed=seed, watchers=[work, trace, checkers])
        if draw.chance(12) < 0.4:
            cluster.rest(at_s=UNTIL_S * (0.3 + draw.chance(13)))
        result = cluster.run()
        checkers.end(samples)
        work.end()
        assert result.finished, "the run stopped and data are left"
        return result, work
    finally:
        work.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        given = metafunc.config.getoption("seed", None)
        metafunc.parametrize("seed", SEEDS if given is None else [given])


def watched(name: str, seed: int, directory: Path) -> tuple[SimResult, ShardedWork]:
    trace = Trace()
    directory.mkdir(exist_ok=True)
    try:
        return run_seed(name, seed, directory, trace)
    except BaseException:
        print(trace.text)
        print(f"replay: python -m pytest tests/sim/test_shard_crashes.py --seed={seed} -k {name}")
        raise


@pytest.mark.parametrize("name", modes_of(Draw(0), 2))
def test_rows_are_those_of_the_ledger_whatever_crashes(name: str, seed: int, tmp_path: Path) -> None:
    watched(name, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", modes_of(Draw(0), 2))
def test_the_same_over_more_seeds(name: str, tmp_path: Path) -> None:
    for seed in MORE_SEEDS:
        watched(name, seed, tmp_path / str(seed))


def test_the_seeds_lose_shards_and_pushes_on_them(tmp_path: Path) -> None:
    """Or the tests above would show little."""
    restarts = lost = 0
    for seed in SEEDS:
        result, work = watched("gba", seed, tmp_path / str(seed))
        restarts, lost = restarts + work.restarts, lost + work.lost_pushes
        assert result.statistics.counts.get("shards_lost", 0) == work.restarts
    assert restarts > 40
    assert lost > 20


def test_the_ledger_notices_a_discarded_push_that_a_restarted_shard_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a discard left no mark in the segment."""
    monkeypatch.setattr(OrderMarks, "discard", lambda self, grant: None)
    with pytest.raises(AssertionError, match="in the ledger"):
        _run_all("async", tmp_path)


def _run_all(name: str, directory: Path) -> None:
    for seed in SEEDS:
        watched(name, seed, directory / str(seed))
