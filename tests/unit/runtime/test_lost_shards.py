"""Shards that end while a run trains: they are started again with their rows, and what is lost is counted."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow import checkpoint
from hotrow.checkpoint.place import Place
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.client.pooled import peer_name
from hotrow.errors import FileError, InputError
from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.optim import KStepAdam
from hotrow.runtime import LeaseQueue, TrainingLoop
from hotrow.runtime.cluster import roles
from hotrow.runtime.losses import RoleLost, SavedRows
from hotrow.runtime.membership import ScaleRequest
from hotrow.runtime.state import RunState
from hotrow.store.shards import shard_of
from hotrow.transport.limits import RetryPolicy
from hotrow.transport.messages import PullDense
from hotrow.transport.tensors import joined
from hotrow.types import RoleId
from unit.runtime.cluster_threads import SAMPLES, Cluster, batches, cluster

F32 = NDArray[np.float32]
RETRYING = [Async(), BulkSync(bulk=3), BoundedStaleness(bound=1), BackupWorkers(backups=1), GBA(), Hybrid()]
CUTTING = [Sync(look_ahead=0), Sync(look_ahead=1), KStep(k=3)]
BATCHES = 24
IMPATIENT = RetryPolicy(first_s=0.1, most_s=0.2, give_up_s=0.5)  # trainers of a run that has ended


class Run:
    """A training loop on a cluster whose shards may be killed."""

    def __init__(self, there: Cluster, state: RunState, mode: Mode, trainers: int, count: int = BATCHES) -> None:
        self.there, self.state, self.done = there, state, list[int]()
        facts = RunFacts(trainers, SAMPLES, 2 * SAMPLES)
        self.loop = TrainingLoop(there.site, state, mode=mode, facts=facts)
        self._leases = LeaseQueue(batches(count), done=lambda lease: self.done.append(lease.number))

    def train(
        self, kill_at: int = -1, *, rest_at: int = -1, leave: bool = True, every: bool = False, both: bool = False
    ) -> None:
        """Kill a shard after a step, or after every one: at rest or in the middle of the next one."""
        self._leases.open_epoch()
        for number, _ in enumerate(self.loop.steps(self._leases, 0)):
            if number == rest_at:
                self.loop.rest()
            if every or number == kill_at:
                self.there.shards.kill(1, leave=leave)
                if both:
                    self.there.shards.kill(0)
        self.loop.rest()
        self.loop.close()

    def rows(self) -> dict[int, F32]:
        """Values and state by key."""
        found: dict[int, F32] = {}
        for chunk in self.there.site.tables.tiers["t"].export():
            rows = np.hstack([chunk.values, chunk.state])
            found.update(zip(chunk.keys.tolist(), rows, strict=True))
        return found

    def dense(self) -> F32:
        return np.concatenate([each.detach().numpy().ravel() for each in self.there.site._spec.model.parameters()])


def ids(mode: Mode) -> str:
    return f"{mode.name}-{getattr(mode, 'look_ahead', '')}"


@pytest.mark.parametrize(
    ("mode", "embedding_workers"),
    [*((mode, 0) for mode in (*RETRYING, *CUTTING)), (GBA(), 1), (Hybrid(), 1), (Sync(look_ahead=1), 1)],
    ids=lambda given: ids(given) if isinstance(given, Mode) else str(given),
)
def test_every_batch_is_trained_once_where_a_shard_is_killed(mode: Mode, embedding_workers: int) -> None:
    state = RunState()
    trainers = 2 if mode.dense == "server" else 1  # ranks of one process cannot meet
    with cluster(state, trainers, embedding_workers, restarts=3, dense=KStepAdam) as there:
        run = Run(there, state, mode, trainers)
        run.train(kill_at=4)
        assert sorted(run.done) == list(range(BATCHES))
        late = run.loop.statistics.samples_dropped.get("late", 0)
        assert state.samples + late == BATCHES * SAMPLES
        counted = run.loop.statistics.counts
        assert counted["shards_lost"] == 1
        assert counted.get("steps_cut", 0) == (mode in CUTTING)
        assert counted.get("lost_pushes", 0) == 0  # those of the killed shard have a name of their own
        told = [each for each in run.loop.take_remarks() if each.startswith("shard 1 is gone: it was killed: ")]
        assert len(told) == 1
        assert told[0].endswith(" s and has its rows")
        assert [core.figures()["parked"] for core in there.cores] == [0, 0]


@pytest.mark.parametrize("mode", [Async(), GBA(), Hybrid(max_in_flight=1), *CUTTING], ids=ids)
def test_a_shard_that_is_killed_at_rest_loses_nothing(mode: Mode) -> None:
    """Rows, their optimizer's state, and dense parameters with theirs have the bits of a run without a loss."""
    found = []
    for kill_at in (-1, 6):
        state = RunState()
        with cluster(state, 1, 0, restarts=3, dense=KStepAdam) as there:
            run = Run(there, state, mode, trainers=1, count=30)
            run.train(kill_at, rest_at=6)
            found.append((run.rows(), run.dense()))
            counted = run.loop.statistics.counts
            assert not any(counted.get(name, 0) for name in ("parked_pushes_lost", "dense_pushes_lost"))
    (rows, dense), (others, other_dense) = found
    assert rows.keys() == others.keys()
    assert all((row == others[key]).all() for key, row in rows.items())
    assert (dense == other_dense).all()


def test_a_shard_that_is_lost_too_often_ends_the_run() -> None:
    state = RunState()
    with cluster(state, 1, 0, IMPATIENT, restarts=2) as there:
        run = Run(there, state, GBA(), trainers=1, count=200)
        often = "it was lost 3 times with fewer than 100 steps between them"
        with pytest.raises(RoleLost, match=rf"shard 1 .* killed; .* again: {often} \(engine.replace_lost=2\)$"):
            run.train(every=True)
        run.loop.take_remarks()
        assert run.loop.statistics.counts["shards_lost"] == 2


def test_without_shared_memory_and_checkpoint_the_run_ends_and_says_why() -> None:
    state = RunState()
    with cluster(state, 1, 0, IMPATIENT, restarts=3) as there:
        run = Run(there, state, GBA(), trainers=1)
        with pytest.raises(
            RoleLost, match=r"shard 1 is gone: it was killed; .* no checkpoint .* set run.checkpoint_every"
        ):
            run.train(kill_at=4, leave=False)


@pytest.mark.parametrize("mode", [GBA(), Sync(look_ahead=0)], ids=ids)
def test_a_restart_may_take_longer_than_requests_wait(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    state = RunState()
    with cluster(state, 1, 0, IMPATIENT, restarts=3) as there:
        run, restarts = Run(there, state, mode, trainers=1), there.roles.shard_restarts
        assert restarts is not None
        start = restarts._start

        def slow_start(*given: Any, **more: Any) -> str:
            time.sleep(2 * IMPATIENT.give_up_s)
            return start(*given, **more)

        monkeypatch.setattr(restarts, "_start", slow_start)
        monkeypatch.setattr(roles, "KNOWN_LOSS_S", 3.0)
        run.train(kill_at=4)
        run.loop.take_remarks()
        assert sorted(run.done) == list(range(BATCHES))
        assert run.loop.statistics.counts["shards_lost"] == 1


def test_a_trainer_that_waits_is_told_of_a_shard_that_was_started_again_meanwhile() -> None:
    state, name = RunState(), RoleId("trainer", 1)
    with cluster(state, 1, 0, IMPATIENT, restarts=3) as there:
        run, joins = Run(there, state, GBA(), trainers=1), ScaleRequest(name, joins=True)
        run._leases.open_epoch()
        for number, _ in enumerate(run.loop.steps(run._leases, 0)):
            if number == 2:
                there.start_trainer(name)
                there.shards.kill(1)
                there.roles.check_alive()
                run.loop.scale(joins)
        run.loop.rest()
        run.loop.close()
        joins.done.result(0)
        assert sorted(run.done) == list(range(BATCHES))
        assert there.figures(name)["batches"] > 0


def test_an_embedding_worker_that_starts_is_told_of_a_shard_that_was_started_again_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(roles, "KNOWN_LOSS_S", 1.0)
    state = RunState()
    with cluster(state, 1, 1, IMPATIENT, restarts=3) as there:
        restarts, workers = there.roles.shard_restarts, there.embedding_workers
        assert restarts is not None
        assert workers is not None
        address = there.start_embedding_worker(1)
        there.shards.kill(1)
        there.roles.check_alive()
        workers.join(peer_name(1), address, partial(restarts.tell_all_to, there.wire))
        run = Run(there, state, Hybrid(), trainers=1)
        run.train()
        assert sorted(run.done) == list(range(BATCHES))


def test_a_restart_that_failed_ends_the_run_also_where_its_error_was_suppressed() -> None:
    state = RunState()
    with cluster(state, 1, 0, IMPATIENT, restarts=3) as there:
        there.shards.kill(1, leave=False)
        for _ in range(2):
            with pytest.raises(RoleLost, match=r"shard 1 is gone: it was killed; it cannot be started again: .*"):
                there.roles.check_alive()
        assert not there.shards.lost()


@pytest.mark.parametrize("mode", [Async(), GBA(), Hybrid(), Sync(look_ahead=1)], ids=ids)
def test_rows_that_are_gone_come_from_the_last_checkpoint(mode: Mode, tmp_path: Path) -> None:
    state = RunState()
    with cluster(state, 1, 0, restarts=3) as there:
        run = Run(there, state, mode, trainers=1)
        restarts = there.roles.shard_restarts
        assert restarts is not None
        run._leases.open_epoch()
        saved: dict[int, F32] = {}
        for number, _ in enumerate(run.loop.steps(run._leases, 0)):
            if number == 4:
                run.loop.rest()
                site = there.site
                content = checkpoint.Saved({"step": state.step, "samples": state.samples}, None, {})
                checkpoint.save(tmp_path, site._spec.model, site.optimizer, site.tables.tiers, content)
                saved, point = run.rows(), SavedRows(str(tmp_path), state.step)
                restarts.last_checkpoint = partial(SavedRows, point.where, point.step)
            if number == 8:
                run.loop.rest()
                there.shards.kill(1, leave=False)
                asked = there.wire.request("shard 1", PullDense(0))  # the new process gets it before it resumes
                there.roles.check_alive()
                if mode.dense == "server":
                    pulled = np.frombuffer(joined(asked.result(20).frames), np.float32)
                    assert (pulled == run.dense()[-pulled.size :]).all()
                rows = run.rows()
                mine = [key for key in saved if shard_of(np.array([key], np.uint64), 2)[0] == 1]
                assert mine
                assert all((rows[key] == saved[key]).all() for key in mine)
        run.loop.rest()
        run.loop.close()
        assert sorted(run.done) == list(range(BATCHES))
        counted = run.loop.statistics.counts
        assert counted["shards_lost"] == 1
        assert counted["shard_steps_lost"] > 0
        (told,) = [each for each in run.loop.take_remarks() if "shard 1" in each]
        assert "has its rows of the last checkpoint, without the updates of" in told
        assert ("its dense parameters are those of the last rest" in told) == (mode.dense == "server")
        assert [core.incarnation for core in there.cores] == [1, 2]


def test_a_checkpoint_that_a_lost_shard_was_writing_fails_and_the_next_one_is_whole(tmp_path: Path) -> None:
    state = RunState()
    with cluster(state, 1, 0, restarts=3) as there:
        run, site = Run(there, state, GBA(), trainers=1), there.site
        run.train()
        content = checkpoint.Saved({"step": state.step, "samples": state.samples}, None, {})
        place = Place.of(tmp_path)
        cut = site.begin_cut(place, delta=False)
        there.shards.kill(1)
        with pytest.raises(FileError, match="shard 1 does not hold the rows of that moment: it was started again"):
            checkpoint.write_checkpoint(place, None, cut, content)
        site.track_changes()
        checkpoint.write_checkpoint(place, None, site.begin_cut(place, delta=False), content)
        there.shards.kill(1)
        with pytest.raises(InputError, match="shard 1"):  # it does not know what changed: a full one follows
            site.begin_cut(place, delta=True)
        checkpoint.write_checkpoint(place, None, site.begin_cut(place, delta=False), content)
        saved = SavedCheckpoint.open(tmp_path)
        assert saved.manifest.tables["t"].rows == len(run.rows())


@pytest.mark.parametrize("mode", [GBA(), Sync(look_ahead=1)], ids=ids)
def test_all_shards_may_be_killed_at_once(mode: Mode) -> None:
    state = RunState()
    with cluster(state, 1, 0, restarts=3) as there:
        run = Run(there, state, mode, trainers=1)
        run.train(kill_at=4, both=True)
        run.loop.take_remarks()
        assert sorted(run.done) == list(range(BATCHES))
        assert run.loop.statistics.counts["shards_lost"] == 2


@pytest.mark.parametrize("mode", [GBA(), Sync(look_ahead=0)], ids=ids)
def test_a_shard_that_is_lost_while_a_mode_ends_performs_the_orders_that_were_under_way(mode: Mode) -> None:
    state = RunState()
    with cluster(state, 1, 0, restarts=3) as there:
        run = Run(there, state, mode, trainers=1)
        run._leases.open_epoch()
        next(iter(run.loop.steps(run._leases, 0)))
        run.loop.rest()
        parameters = there.site._parameters
        assert parameters is not None
        there.shards.kill(1)
        grant = there.cores[0].pushes.newest + 100
        parameters.discard(grant)
        parameters.settle()  # the order is under way to the process that has ended
        run.loop.close()
        run.loop.take_remarks()
        assert [grant in core.pushes.seen for core in there.cores] == [True, True]
        assert len({core.performed for core in there.cores}) == 1


def test_a_shard_that_lost_its_rows_knows_the_discards_of_orders_that_it_refuses(tmp_path: Path) -> None:
    """A push that is sent to it later would be parked without end."""
    state = RunState()
    with cluster(state, 1, 0, restarts=3) as there:
        run, site, restarts = Run(there, state, GBA(), trainers=1), there.site, there.roles.shard_restarts
        assert restarts is not None
        run._leases.open_epoch()
        steps = iter(run.loop.steps(run._leases, 0))
        next(steps)
        run.loop.rest()
        content = checkpoint.Saved({"step": state.step, "samples": state.samples}, None, {})
        checkpoint.save(tmp_path, site._spec.model, site.optimizer, site.tables.tiers, content)
        restarts.last_checkpoint = partial(SavedRows, str(tmp_path), state.step)
        parameters, grant = site._parameters, there.cores[0].pushes.newest + 100
        assert parameters is not None
        there.shards.kill(1, leave=False)
        parameters.discard(grant)
        parameters.settle()  # the order is under way to the process that has ended
        for _ in steps:
            pass
        run.loop.rest()
        run.loop.close()
        assert sorted(run.done) == list(range(BATCHES))
        assert [grant in core.pushes.seen for core in there.cores] == [True, True]
