"""Trainers behind real sockets join and leave a run: all batches are trained, by whoever is there, and none twice."""

from collections.abc import Callable

import numpy as np
import pytest

from hotrow.client.pooled import peer_name
from hotrow.errors import InputError
from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.runtime import LeaseQueue, StepResult, TrainingLoop
from hotrow.runtime.membership import ScaleRequest
from hotrow.runtime.state import RunState
from hotrow.transport.messages import Query
from hotrow.types import RoleId
from unit.runtime.cluster_threads import SAMPLES, Cluster, batches, cluster

TOKEN = [Async(), BulkSync(bulk=3), BoundedStaleness(bound=1), BackupWorkers(backups=1), GBA()]
Meanwhile = Callable[[Cluster, TrainingLoop, int], None]


def run(
    mode: Mode, meanwhile: Meanwhile, *, count: int, trainers: int = 2, embedding_workers: int = 0
) -> tuple[list[StepResult], list[int], TrainingLoop]:
    """All steps, and the leases that were done."""
    state = RunState()
    steps, done = [], []
    with cluster(state, trainers, embedding_workers) as there:
        engine = TrainingLoop(there.site, state, mode=mode, facts=RunFacts(trainers, SAMPLES, 2 * SAMPLES))
        pool = LeaseQueue(batches(count), done=lambda lease: done.append(lease.number))
        pool.open_epoch()
        for number, step in enumerate(engine.steps(pool, 0)):
            steps.append(step)
            meanwhile(there, engine, number)
        engine.rest()
        engine.close()
        for name in there.embedding_workers.names if there.embedding_workers is not None else ():
            assert there.figures(name)["kept"] == 0
        parked = [core.figures()["parked"] for core in there.cores]
    assert parked == [0, 0]
    return steps, done, engine


class OneComesTwoGo:
    """A third trainer joins, the first two leave, and the one that is left goes on in Sync."""

    def __init__(self) -> None:
        self.came, self.gone = (
            ScaleRequest(RoleId("trainer", 2), joins=True),
            [ScaleRequest(RoleId("trainer", worker), joins=False) for worker in (0, 1)],
        )
        self.instead = BulkSync(bulk=2)  # where a mode cannot bear it
        self.batches: dict[str, float] = {}

    def __call__(self, there: Cluster, engine: TrainingLoop, number: int) -> None:
        if number == 2:
            there.start_trainer(self.came.name)
            engine.scale(self.came)
        if number == 6:
            assert self.came.done.done()
            assert engine.facts.workers == 3
            engine.scale(self.gone[0])
        if number == 12:
            self.gone[0].done.result(20)
            with pytest.raises(InputError, match="there is no such peer"):
                there.wire.request("trainer 0", Query("status"))
            self.batches = {name: there.figures(name)["batches"] for name in ("trainer 1", "trainer 2")}
            if engine.mode.name == "backup_workers":  # of one nobody may be late
                engine.switch(self.instead)
            engine.scale(self.gone[1])
        if number == 18:
            self.gone[1].done.result(20)
            assert engine.workers == [1 if engine.mode == self.instead else 2]
            engine.switch(Sync())
            assert engine.workers == [0]
        if number == 20:
            assert there.figures("trainer 2")["batches"] > self.batches["trainer 2"]


@pytest.mark.parametrize("mode", TOKEN, ids=lambda mode: str(mode.name))
def test_one_joins_two_leave_and_the_last_goes_on_in_sync(mode: Mode) -> None:
    change = OneComesTwoGo()
    count = 24 * mode.samples_per_step(RunFacts(2, SAMPLES, 2 * SAMPLES)) // SAMPLES + 60
    steps, done, engine = run(mode, change, count=count)
    assert sorted(done) == list(range(count))
    counted = engine.statistics
    assert counted.granted == count == counted.applied_rows + sum(counted.dropped.values())
    assert set(counted.dropped) <= {"late"}
    assert sum(step.samples for step in steps) + counted.samples_dropped.get("late", 0) == count * SAMPLES
    assert min(change.batches.values()) > 0
    assert all(np.isfinite(float(each.loss)) for step in steps for each in step.batches)


def test_a_newcomer_finds_the_embedding_workers_that_are_there_and_those_that_come() -> None:
    change = OneComesTwoGo()

    def meanwhile(there: Cluster, engine: TrainingLoop, number: int) -> None:
        assert there.embedding_workers is not None
        change(there, engine, number)
        if number == 4:
            there.embedding_workers.join(peer_name(5), there.start_embedding_worker(5))
        if number == 8:
            there.embedding_workers.leave(peer_name(0))

    steps, done, _ = run(GBA(), meanwhile, count=60, embedding_workers=1)
    assert sorted(done) == list(range(60))
    assert len(steps) >= 30
    assert all(np.isfinite(float(each.loss)) for step in steps for each in step.batches)


def test_another_trainer_goes_on_exactly_where_the_first_has_left() -> None:
    """With one at a time nothing is left to chance: all read dense parameters and rows from the shards."""
    found = []
    for changes in (True, False):

        def meanwhile(there: Cluster, engine: TrainingLoop, number: int, changes: bool = changes) -> None:
            if changes and number == 7:
                there.start_trainer(RoleId("trainer", 1))
                engine.scale(ScaleRequest(RoleId("trainer", 1), joins=True))
                engine.scale(ScaleRequest(RoleId("trainer", 0), joins=False))
            if changes and number == 9:
                assert engine.workers == [1]

        steps, done, _ = run(GBA(), meanwhile, count=40, trainers=1)
        found.append([float(each.loss) for step in steps for each in step.batches])
        assert done == list(range(40))
    assert found[0] == found[1]
