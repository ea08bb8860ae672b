"""Runs with caches behind real sockets: trained as without a cache, flushed wherever rows are read by others."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow import checkpoint
from hotrow.cache import shard_requests
from hotrow.config import Table
from hotrow.errors import ConfigError
from hotrow.modes import Mode
from hotrow.modes.base import RunFacts
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.cluster import caches
from hotrow.runtime.cluster.executor import WAKE_S
from hotrow.runtime.cluster.roles import RoleProcesses
from hotrow.runtime.losses import SavedRows
from hotrow.runtime.membership import ScaleRequest
from hotrow.runtime.state import RunState
from hotrow.types import RoleId
from unit.row_memory import row_memory as row_memory
from unit.runtime.cluster_threads import SAMPLES, Cluster, batches, cluster
from unit.runtime.loader_threads import Processes

pytestmark = pytest.mark.usefixtures("row_memory")

Meanwhile = Callable[[Cluster, TrainingLoop, int], None]
PLAIN = hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.05))
COUNT = 24


def cached(table: Table = PLAIN, capacity: int = 20, staleness: int = 4) -> Mapping[str, Table]:
    return {"t": table.model_copy(update={"cache": hr.Cache(capacity=capacity, staleness=staleness)})}


@dataclass
class Trained:
    rows: torch.Tensor
    dense: list[torch.Tensor]
    done: list[int]
    figures: dict[str, dict[str, float]]
    counts: Mapping[str, int]
    remarks: list[str] = field(default_factory=list)


def unsent(there: Cluster, count: int, kind: str = "trainer") -> list[float]:
    return [there.figures(f"{kind} {number}")["cache_changed.t"] for number in range(count)]


def rows_of(there: Cluster) -> torch.Tensor:
    """Value and state of all ids, with SWAP at its tenth period; those without a row are 0."""
    found = [core.tables.tiers["t"].whole_rows(np.arange(50, dtype=np.uint64)) for core in there.cores]
    for each in found:
        if "period" in each.fields:  # rows decay when they are next updated
            each.state[:] *= np.power(0.5, 10.0 - each.fields["period"])[:, None]
    return torch.from_numpy(sum(np.hstack([each.values, each.state]) for each in found))


def run(
    mode: Mode,
    tables: Mapping[str, Table],
    *,
    trainers: int = 1,
    embedding_workers: int = 0,
    meanwhile: Meanwhile = lambda there, engine, number: None,
    processes: RoleProcesses | None = None,
    restarts: int = 0,
) -> Trained:
    state = RunState()
    done: list[int] = []
    with cluster(state, trainers, embedding_workers, tables=tables, processes=processes, restarts=restarts) as there:
        engine = TrainingLoop(there.site, state, mode=mode, facts=RunFacts(trainers, SAMPLES, trainers * SAMPLES))
        pool = LeaseQueue(batches(COUNT), done=lambda lease: done.append(lease.number))
        pool.open_epoch()
        for number, _ in enumerate(engine.steps(pool, 0)):
            meanwhile(there, engine, number)
        engine.rest()
        engine.close()
        pooling = [] if there.embedding_workers is None else there.embedding_workers.names
        figures = {str(name): there.figures(name) for name in (*there.site.worker_pool.names, *pooling)}
        rows = rows_of(there)
        dense = [parameter.detach().clone() for parameter in there.site._spec.model.parameters()]
    return Trained(rows, dense, sorted(done), figures, engine.statistics.counts, engine.take_remarks())


SWAP = hr.Adagrad(lr=0.05, swap=hr.Swap(period=5 * SAMPLES, decay=0.5))


@pytest.mark.parametrize("optimizer", [PLAIN.optimizer, hr.SGD(lr=0.1), hr.RowwiseAdagrad(lr=0.05), SWAP])
@pytest.mark.parametrize("mode", [hr.Hybrid(max_in_flight=1), hr.Async()], ids=lambda mode: str(mode.name))
def test_one_trainer_with_a_cache_trains_as_without(mode: Mode, optimizer: hr.Adagrad) -> None:
    table = PLAIN.model_copy(update={"optimizer": optimizer})
    with_cache, without = run(mode, cached(table)), run(mode, {"t": table})
    assert with_cache.done == without.done == list(range(COUNT))
    torch.testing.assert_close(with_cache.rows, without.rows, rtol=0, atol=1e-6)
    for ours, theirs in zip(with_cache.dense, without.dense, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    figures = with_cache.figures["trainer 0"]
    assert figures["cache_hits.t"] > 0
    assert figures["cache_changed.t"] == 0
    for name in ("hits", "misses", "written", "bytes_saved"):
        assert with_cache.counts.get(f"cache_{name}.t", 0) == figures[f"cache_{name}.t"]
    assert "lost_pushes" not in with_cache.counts  # no gradient of a cached table is sent


@pytest.mark.parametrize("small", [False, True], ids=["", "in many small requests"])
def test_several_trainers_leave_no_change_behind(small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rested: list[bool] = []
    if small:  # the driver hands out numbers several times
        monkeypatch.setattr(shard_requests, "FLUSH_BYTES", 1)
        monkeypatch.setattr(caches, "FLUSH_REQUESTS", 2)

    def rest(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 3:
            engine.rest()  # as for a checkpoint
            rested.append(unsent(there, 3) == [0, 0, 0])

    trained = run(hr.Async(), cached(), trainers=3, meanwhile=rest)
    assert rested == [True]
    assert trained.done == list(range(COUNT))
    assert all(each["cache_changed.t"] == 0 for each in trained.figures.values())


def test_a_prediction_reads_rows_with_all_changes() -> None:
    seen: list[float] = []

    def predict(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 4:
            engine.predict(next(batches(1))[1])
            seen.append(unsent(there, 1)[0])

    run(hr.Hybrid(max_in_flight=1), cached(staleness=100), meanwhile=predict)
    assert seen == [0]


def test_a_trainer_that_leaves_writes_its_changes_back() -> None:
    left = ScaleRequest(RoleId("trainer", 0), joins=False)
    flushed: list[float] = []

    def leave(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 8:
            flushed.append(sum(core.counts["cache_written"] for core in there.cores))
            engine.scale(left)
        if number == 14:
            left.done.result(20)
            flushed.append(sum(core.counts["cache_written"] for core in there.cores))

    trained = run(hr.Async(), cached(capacity=50, staleness=1_000), trainers=2, meanwhile=leave)
    assert trained.done == list(range(COUNT))
    assert flushed[0] == 0  # nothing is evicted or too far ahead: only a flush writes
    assert flushed[1] > 10


def test_a_switch_to_a_mode_without_a_cache_is_refused_and_changes_nothing() -> None:
    refused: list[str] = []

    def switch(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 2:
            with pytest.raises(ConfigError, match=r"tables.t.cache: mode 'sync'") as told:
                engine.switch(hr.Sync())
            refused.append(str(told.value))
        if number == 5:
            engine.switch(hr.Async())

    trained = run(hr.Hybrid(max_in_flight=2), cached(), meanwhile=switch)
    assert len(refused) == 1
    assert trained.done == list(range(COUNT))
    assert np.isfinite(trained.figures["trainer 0"]["cache_hits.t"])


def test_the_changes_that_a_lost_trainer_had_not_written_back_are_counted() -> None:
    processes = Processes()

    def kill(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 12:
            processes.killed.append(RoleId("trainer", 1))
            time.sleep(2 * WAKE_S)  # the loop looks for lost roles that often

    tables = cached(capacity=50, staleness=1_000)
    trained = run(hr.Async(), tables, trainers=2, meanwhile=kill, processes=processes)
    assert trained.done == list(range(COUNT))
    assert 10 < trained.counts["cached_rows_lost"] <= 50
    assert any("cached rows since their last write-back are lost" in remark for remark in trained.remarks)


def killing_shards(mode: Mode, rests: bool) -> Meanwhile:
    """Both shards end in turn and are started again; `rests`: a flush waits for them."""

    def kill(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number in (6, 14):
            if mode.dense == "server":
                engine.rest()  # or the shard takes parked dense gradients with it, and later ones differ
            there.shards.kill(number % 4 // 2)
            if rests:
                engine.rest()

    return kill


def check_no_change_lost(mode: Mode, with_kills: Trained, without: Trained) -> None:
    assert with_kills.counts["shards_lost"] == 2
    for name in ("cached_rows_lost", "cache_dropped.t", "lost_pushes", "partly_applied_pushes"):
        assert not with_kills.counts.get(name)
    if mode.most_in_flight == 1:  # else the dense parameters of a step depend on timing
        torch.testing.assert_close(with_kills.rows, without.rows, rtol=0, atol=1e-6)


@pytest.mark.parametrize("mode", [hr.Hybrid(max_in_flight=1), hr.Hybrid(max_in_flight=3), hr.Async()], ids=str)
@pytest.mark.parametrize("rests", [False, True])
def test_a_shard_that_is_started_again_with_its_rows_loses_no_change(mode: Mode, rests: bool) -> None:
    table = PLAIN.model_copy(update={"optimizer": hr.SGD(lr=0.1)})
    with_kills = run(mode, cached(table), meanwhile=killing_shards(mode, rests), restarts=3)
    without = run(mode, cached(table))
    assert with_kills.done == without.done == list(range(COUNT))
    check_no_change_lost(mode, with_kills, without)


def losing_rows(folder: Path, changed: list[float], kind: str | None) -> Meanwhile:
    """A shard comes back with the rows of a checkpoint; `changed` gets the rows that a role cached with changes."""

    def lose(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 4:
            engine.rest()
            site, restarts = there.site, there.roles.shard_restarts
            assert restarts is not None
            content = checkpoint.Saved({"step": engine.state.step, "samples": engine.state.samples}, None, {})
            checkpoint.save(folder, site._spec.model, site.optimizer, site.tables.tiers, content)
            restarts.last_checkpoint = partial(SavedRows, str(folder), engine.state.step)
        if number == 12:
            changed.extend([] if kind is None else unsent(there, 1, kind))
            there.shards.kill(1, leave=False)

    return lose


@pytest.mark.parametrize("mode", [hr.Hybrid(max_in_flight=3), hr.Async()], ids=str)
def test_cached_rows_of_a_shard_that_came_back_from_a_checkpoint_are_dropped_and_counted(
    mode: Mode, tmp_path: Path
) -> None:
    changed: list[float] = []
    lose = losing_rows(tmp_path, changed, "trainer")
    trained = run(mode, cached(capacity=50, staleness=1_000), meanwhile=lose, restarts=3)
    assert trained.done == list(range(COUNT))
    assert trained.counts["shards_lost"] == 1
    assert 0 < trained.counts["cache_dropped.t"] <= changed[0] + 2 * 50
    assert trained.figures["trainer 0"]["cache_changed.t"] == 0
