"""Runs whose trainers get their vectors from embedding workers: the same numbers, and workers that come and go."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hotrow as hr
from hotrow.client.pooled import peer_name
from hotrow.errors import ConfigError, HotrowError, InputError
from hotrow.modes import Mode
from hotrow.modes.base import Grant, RunFacts
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.cluster import roles as roles_module
from hotrow.runtime.state import RunState
from hotrow.transport.limits import RetryPolicy
from hotrow.transport.messages import Meet, Query, QueryReply, Stop
from hotrow.transport.server import RpcServer
from hotrow.types import RoleId
from unit.runtime.cluster_threads import SAMPLES, Cluster, batches, cluster
from unit.runtime.loader_threads import Processes


def run(
    mode: Mode,
    *,
    trainers: int,
    embedding_workers: int,
    steps: int = 6,
    meanwhile: Callable[[Cluster, int], None] = lambda there, step: None,
) -> tuple[list[float], list[np.ndarray], int]:
    """Losses of all steps, the rows after them, and how many batches were done."""
    state = RunState()
    facts, losses, done = RunFacts(trainers, SAMPLES, 2 * SAMPLES), [], []
    with cluster(state, trainers, embedding_workers) as there:
        engine = TrainingLoop(there.site, state, mode=mode, facts=facts)
        pool = LeaseQueue(batches(2 * steps), done=lambda lease: done.append(lease.number))
        pool.open_epoch()
        for number, step in enumerate(engine.steps(pool, 0)):
            losses.append(float(sum(each.loss * SAMPLES for each in step.batches) / max(1, step.samples)))
            meanwhile(there, number)
        engine.rest()
        engine.close()
        if there.embedding_workers is not None:
            for name in there.embedding_workers.names:
                assert there.figures(name)["kept"] == 0
        rows = []
        for core in there.cores:
            out = np.full((50, 4), np.nan, np.float32)
            core.tables.tiers["t"].find(np.arange(50), out)
            rows.append(out)
    return losses, rows, len(done)


def test_sync_through_an_embedding_worker_is_sync_without_one() -> None:
    losses, rows, done = run(hr.Sync(), trainers=1, embedding_workers=1)
    wanted_losses, wanted_rows, _ = run(hr.Sync(), trainers=1, embedding_workers=0)
    assert done == 12
    np.testing.assert_allclose(losses, wanted_losses, rtol=1e-6)
    for ours, theirs in zip(rows, wanted_rows, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", [hr.GBA(), hr.Async()], ids=lambda mode: mode.name)
def test_all_batches_are_done_with_several_of_each(mode: Mode) -> None:
    shares: dict[str, float] = {}

    def look(there: Cluster, _: int) -> None:
        assert there.embedding_workers is not None
        shares.update({name: there.figures(name)["batches"] for name in there.embedding_workers.names})

    losses, _, done = run(mode, trainers=2, embedding_workers=2, meanwhile=look)
    assert done == 12
    assert all(np.isfinite(losses))
    assert shares[peer_name(0)] > 0
    assert abs(shares[peer_name(0)] - shares[peer_name(1)]) <= 1  # by turns


def test_embedding_workers_join_and_leave_while_a_run_goes_on() -> None:
    left: list[object] = []
    figures: dict[str, float] = {}

    def change(there: Cluster, step: int) -> None:
        assert there.embedding_workers is not None
        if step == 1:
            there.embedding_workers.join(peer_name(7), there.start_embedding_worker(7))
            assert there.embedding_workers.names == [peer_name(0), peer_name(7)]
        if step == 3:
            left.append(there.embedding_workers.leave(peer_name(0)))
            assert there.embedding_workers.names == [peer_name(7)]
        if step == 6:
            left[0].result(20)  # type: ignore[attr-defined]
            with pytest.raises(InputError, match="there is no such peer"):
                there.wire.request(peer_name(0), Query("status"))
        figures.update(there.figures(peer_name(7)) if step >= 1 else {})

    losses, rows, done = run(hr.GBA(), trainers=1, embedding_workers=1, steps=10, meanwhile=change)
    wanted_losses, wanted_rows, _ = run(hr.GBA(), trainers=1, embedding_workers=0, steps=10)
    assert done == 20
    assert figures["batches"] > 8
    np.testing.assert_allclose(losses, wanted_losses, rtol=1e-5)
    for ours, theirs in zip(rows, wanted_rows, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_leaving_one_is_waited_for_and_the_last_one_may_not_leave() -> None:
    with cluster(RunState(), 1, 2) as there:
        known = there.embedding_workers
        assert known is not None
        name, _ = known.assign(1)
        assert name == peer_name(0)
        left = known.leave(peer_name(0))
        assert [known.assign(grant)[0] for grant in (2, 3)] == [peer_name(1)] * 2
        assert not left.done()
        assert there.figures(peer_name(0))["number"] == 0  # still there
        known.done(1)
        left.result(20)
        with pytest.raises(InputError, match="'embedding worker 1': is the last embedding worker"):
            known.leave(peer_name(1))
        with pytest.raises(InputError, match="'embedding worker 0': there is no such embedding worker"):
            known.leave(peer_name(0))


@pytest.mark.parametrize("left_too", [True, False])
def test_who_leaves_is_done_also_where_a_trainer_goes_meanwhile(
    left_too: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster(RunState(), 2, 2) as there:
        known, ask = there.embedding_workers, there.wire.request
        assert known is not None

        def forgotten(name: RoleId, message: Any, *given: Any, **settings: Any) -> Any:
            if name == "trainer 1" and isinstance(message, Meet):
                if left_too:
                    known.forget_trainer(name)
                there.wire.forget(name)
            return ask(name, message, *given, **settings)

        monkeypatch.setattr(there.wire, "request", forgotten)
        known.assign(1)
        left = known.leave(peer_name(0))
        known.done(1)
        if left_too:
            assert left.result(20) is None
        else:
            with pytest.raises(InputError, match="'trainer 1': there is no such peer"):
                left.result(20)


def test_who_joins_needs_a_number_of_its_own_and_must_be_an_embedding_worker() -> None:
    with cluster(RunState(), 1, 1) as there:
        assert there.embedding_workers is not None
        with pytest.raises(ConfigError, match="number=0 of embedding worker 1: is taken"):
            there.embedding_workers.join(peer_name(1), there.start_embedding_worker(0))
        with RpcServer(security="off") as server:
            thread = threading.Thread(
                target=server.serve, args=(lambda r: r.reply(QueryReply("shard 0", {"ready": 1.0})),)
            )
            thread.start()
            with pytest.raises(InputError, match=r"shard 0 at .* is not an embedding worker"):
                there.embedding_workers.join(RoleId("shard", 0), server.address)
            server.stop()
            thread.join()
        assert there.embedding_workers.names == [peer_name(0)]


def test_batches_that_are_dropped_are_released_where_their_ids_are() -> None:
    with cluster(RunState(), 1, 1) as there:
        assert there.embedding_workers is not None
        facts = RunFacts(1, SAMPLES, SAMPLES)
        orders, executor = there.site.open(hr.Async(), facts, None)  # type: ignore[arg-type]
        there.wire.forget("trainer 0")  # the trainer is gone: its work cannot even be sent
        _, batch = next(batches(1))
        with pytest.raises(HotrowError, match="trainer 0"):
            executor.submit(Grant(0, 1, 0), batch)
        assert there.figures(peer_name(0))["kept"] == 1
        orders.discard(1)
        orders.settle()
        ends = time.monotonic() + 20
        while there.figures(peer_name(0))["kept"] and time.monotonic() < ends:
            time.sleep(0.01)
        assert there.figures(peer_name(0))["released"] == 1


def test_a_lost_embedding_worker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles_module, "KNOWN_LOSS_S", 0.5)  # no process ends here that could be waited for
    with cluster(RunState(), 1, 1, RetryPolicy(first_s=0.5, most_s=1, give_up_s=3)) as there:
        _, executor = there.site.open(hr.Async(), RunFacts(1, SAMPLES, SAMPLES), None)  # type: ignore[arg-type]
        there.wire.request(peer_name(0), Stop()).result(20)  # it ends, and nobody was told that it leaves
        _, batch = next(batches(1))
        executor.submit(Grant(0, 1, 0), batch)
        with pytest.raises(HotrowError, match=r"embedding worker 0 at .*: nothing was heard for"):
            executor.next_result()


def test_the_last_one_is_replaced_though_a_trainer_ends_before_it_knows_the_new_one() -> None:
    """The loss is noted while the new one starts, or its announcement would wait a minute for the trainer."""
    processes, first, gone = Processes(), RoleId("embedding worker", 0), RoleId("trainer", 1)
    attempts: list[bool] = []
    with cluster(RunState(), 2, 1, processes=processes) as there:
        known = there.embedding_workers
        assert known is not None

        def start() -> None:
            processes.killed.append(gone)
            until = time.monotonic() + 5
            while gone not in roles.lost and time.monotonic() < until:
                time.sleep(0.01)
            attempts.append(gone in roles.lost)
            if len(attempts) == 1:
                raise HotrowError("it was lost, too")
            known.join(peer_name(1), there.start_embedding_worker(1))

        roles = replace(there.site._roles, replace_embedding_worker=start)
        processes.killed.append(first)
        roles.check_alive()
        assert attempts == [True, True]
        assert known.names == ["embedding worker 1"]
        assert list(roles.lost) == [first, gone]
