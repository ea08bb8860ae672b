"""Runs whose embedding workers have caches: trained as without, flushed wherever rows are read by others, and what is
lost is counted."""

import time
from concurrent.futures import Future, wait
from pathlib import Path

import pytest
import torch

import hotrow as hr
from hotrow.client.pooled import peer_name
from hotrow.errors import InputError
from hotrow.modes import Mode
from hotrow.runtime import TrainingLoop
from hotrow.types import RoleId
from unit.runtime.cluster_threads import Cluster, batches
from unit.runtime.loader_threads import Processes
from unit.runtime.test_cached_runs import (
    COUNT,
    PLAIN,
    SWAP,
    Trained,
    cached,
    check_no_change_lost,
    killing_shards,
    losing_rows,
    run,
    unsent,
)

MODES = [hr.Hybrid(max_in_flight=1), hr.Async()]
FLYING = [hr.Hybrid(max_in_flight=3), hr.Async()]
SGD = PLAIN.model_copy(update={"optimizer": hr.SGD(lr=0.1)})


def most_trainers(mode: Mode) -> int:
    """In one process: torch has one group of ranks there."""
    return 2 if mode.dense == "server" else 1


def look_now(there: Cluster) -> None:
    """The loop looks for roles that are lost or leave, before the time for it has come. Called in its thread."""
    assert there.site._open is not None
    there.site._open.executor._next_look = 0.0
    there.site._open.executor._check_alive()


def check_clean(trained: Trained, workers: int) -> None:
    """All batches are done, and no embedding worker keeps a batch, a row in use or a change."""
    assert trained.done == list(range(COUNT))
    for number in range(workers):
        figures = trained.figures[peer_name(number)]
        assert [figures[name] for name in ("kept", "cache_changed.t", "cache_batches.t")] == [0, 0, 0]


@pytest.mark.parametrize("optimizer", [PLAIN.optimizer, hr.SGD(lr=0.1), SWAP])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_one_trainer_of_one_embedding_worker_with_a_cache_trains_as_without(mode: Mode, optimizer: hr.Adagrad) -> None:
    table = PLAIN.model_copy(update={"optimizer": optimizer})
    with_cache, without = run(mode, cached(table), embedding_workers=1), run(mode, {"t": table}, embedding_workers=1)
    check_clean(with_cache, 1)
    torch.testing.assert_close(with_cache.rows, without.rows, rtol=0, atol=1e-6)
    for ours, theirs in zip(with_cache.dense, without.dense, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    figures = with_cache.figures[peer_name(0)]
    assert figures["cache_hits.t"] > 0
    for name in ("hits", "misses", "written", "bytes_saved"):
        assert with_cache.counts.get(f"cache_{name}.t", 0) == figures[f"cache_{name}.t"]
    for name in ("lost_pushes", "rows_applied_twice"):
        assert not with_cache.counts.get(name)
    assert "cache_hits.t" not in with_cache.figures["trainer 0"]


@pytest.mark.parametrize("mode", FLYING, ids=str)
def test_a_rest_leaves_no_change_on_any_embedding_worker(mode: Mode) -> None:
    rested: list[list[float]] = []

    def rest(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 3:
            engine.rest()  # as for a checkpoint
            rested.append(unsent(there, 2, "embedding worker"))

    trained = run(mode, cached(staleness=100), trainers=most_trainers(mode), embedding_workers=2, meanwhile=rest)
    check_clean(trained, 2)
    assert rested == [[0, 0]]


def test_a_prediction_reads_rows_with_all_changes() -> None:
    seen: list[float] = []

    def predict(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 4:
            seen.extend(unsent(there, 1, "embedding worker"))
            engine.predict(next(batches(1))[1])
            seen.extend(unsent(there, 1, "embedding worker"))

    trained = run(hr.Hybrid(max_in_flight=1), cached(staleness=100), embedding_workers=1, meanwhile=predict)
    check_clean(trained, 1)
    assert seen[0] > 0
    assert seen[1] == 0


def test_a_switch_empties_the_caches_and_counts_go_on() -> None:
    def switch(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 5:
            engine.switch(hr.Async())

    trained = run(hr.Hybrid(max_in_flight=2), cached(), embedding_workers=2, meanwhile=switch)
    check_clean(trained, 2)


def test_an_embedding_worker_that_leaves_writes_its_changes_back_and_stops() -> None:
    written: list[int] = []

    def leave(there: Cluster, engine: TrainingLoop, number: int) -> None:
        assert there.embedding_workers is not None
        if number == 8:
            written.append(sum(core.counts["cache_written"] for core in there.cores))
            left.append(there.embedding_workers.leave(peer_name(0)))
        if number == 14:
            deadline_s = time.monotonic() + 20
            while not left[0].done() and time.monotonic() < deadline_s:
                look_now(there)
                wait(left, 0.01)
            left[0].result(0)
            written.append(sum(core.counts["cache_written"] for core in there.cores))
            assert there.embedding_workers.present == [peer_name(1)]

    left: list[Future[None]] = []
    tables = cached(SGD, capacity=50, staleness=1_000)
    trained = run(hr.Async(), tables, trainers=2, embedding_workers=2, meanwhile=leave)
    assert trained.done == list(range(COUNT))
    assert written[0] == 0  # nothing is evicted or too far ahead: only a flush writes
    assert written[1] > 10
    assert not trained.counts.get("cached_rows_lost")


def test_one_that_leaves_at_rest_stops_at_once() -> None:
    """The mode has ended: its caches were flushed."""
    stopped: list[bool] = []

    def leave(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 5:
            engine.rest()
            engine.close()
            assert there.embedding_workers is not None
            there.embedding_workers.leave(peer_name(1)).result(20)
            stopped.append(True)

    state_ends = run(hr.Async(), cached(), trainers=1, embedding_workers=2, meanwhile=leave)
    assert stopped == [True]
    assert len(state_ends.done) >= 5


def test_one_that_leaves_stops_where_the_last_flush_of_its_mode_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise InputError("it failed here")

    def leave(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 5:
            engine.rest()
            assert there.embedding_workers is not None
            left = there.embedding_workers.leave(peer_name(1))
            assert not left.done()
            monkeypatch.setattr(there.site._caches, "flush", fail)
            with pytest.raises(InputError, match="it failed here"):
                engine.close()
            left.result(20)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(hr.Async(), cached(), trainers=1, embedding_workers=2, meanwhile=leave)


def test_one_that_joins_gets_caches_for_as_many_workers_as_the_mode_began_with() -> None:
    def join(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 5:
            assert there.embedding_workers is not None
            there.embedding_workers.join(peer_name(2), there.start_embedding_worker(2))

    trained = run(hr.Async(), cached(), trainers=2, embedding_workers=2, meanwhile=join)
    check_clean(trained, 3)
    assert [trained.figures[peer_name(number)]["cache_workers.t"] for number in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("mode", FLYING, ids=str)
def test_changes_of_a_lost_embedding_worker_are_counted_and_its_batches_dealt_again(mode: Mode) -> None:
    processes = Processes()

    def kill(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 8:
            processes.killed.append(peer_name(1))
            look_now(there)

    tables, trainers = cached(SGD, capacity=50, staleness=1_000), most_trainers(mode)
    trained = run(mode, tables, trainers=trainers, embedding_workers=2, meanwhile=kill, processes=processes)
    check_clean(trained, 1)
    assert trained.counts["embedding_workers_lost"] == 1
    assert 10 < trained.counts["cached_rows_lost"] <= 50
    assert any("cached rows since their last write-back are lost" in remark for remark in trained.remarks)


def test_a_lost_trainer_leaves_no_row_in_use() -> None:
    processes = Processes()

    def kill(there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 6:
            processes.killed.append(RoleId("trainer", 1))
            look_now(there)

    tables = cached(SGD, capacity=50, staleness=1_000)
    trained = run(hr.Async(), tables, trainers=2, embedding_workers=2, meanwhile=kill, processes=processes)
    check_clean(trained, 2)
    assert trained.counts["trainers_lost"] == 1
    assert not trained.counts.get("cached_rows_lost")


@pytest.mark.parametrize("mode", [*MODES, FLYING[0]], ids=str)
@pytest.mark.parametrize("rests", [False, True])
def test_a_shard_that_is_started_again_with_its_rows_loses_no_change(mode: Mode, rests: bool) -> None:
    with_kills = run(mode, cached(SGD), embedding_workers=1, meanwhile=killing_shards(mode, rests), restarts=3)
    without = run(mode, cached(SGD), embedding_workers=1)
    check_clean(with_kills, 1)
    check_no_change_lost(mode, with_kills, without)


@pytest.mark.parametrize("mode", FLYING, ids=str)
def test_cached_rows_of_a_shard_that_came_back_from_a_checkpoint_are_dropped_and_counted(
    mode: Mode, tmp_path: Path
) -> None:
    changed: list[float] = []
    lose = losing_rows(tmp_path, changed, "embedding worker")
    tables = cached(capacity=50, staleness=1_000)
    trained = run(mode, tables, embedding_workers=1, meanwhile=lose, restarts=3)
    check_clean(trained, 1)
    assert trained.counts["shards_lost"] == 1
    assert 0 < trained.counts["cache_dropped.t"] <= changed[0] + 2 * 50


@pytest.mark.parametrize("mode", FLYING, ids=str)
def test_a_shard_that_came_back_from_a_checkpoint_does_not_end_a_run_without_caches(mode: Mode, tmp_path: Path) -> None:
    """Trainers hear from embedding workers that a lost shard is the reason why a batch has failed."""
    trained = run(mode, {"t": PLAIN}, embedding_workers=1, meanwhile=losing_rows(tmp_path, [], None), restarts=3)
    assert trained.done == list(range(COUNT))
    assert trained.counts["shards_lost"] == 1
