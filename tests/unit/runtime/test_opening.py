"""What cannot be opened leaves nothing open; what is attached goes on from its count of samples."""

from pathlib import Path

import pytest

import hotrow as hr
from hotrow.errors import InputError
from hotrow.modes import GBA, Sync
from hotrow.modes.base import Discipline, RunFacts
from hotrow.runtime import LocalBackend
from hotrow.runtime.lease_queue import LeaseQueue
from hotrow.runtime.loop import TrainingLoop
from hotrow.runtime.state import RunState
from hotrow.trainer import opening
from hotrow.transport.messages import Query, QueryReply
from hotrow.types import RoleId
from unit.runtime.cluster_threads import SAMPLES, batches, cluster
from unit.runtime.small_training import threads_of_workers, trainer_of
from unit.trainer.conftest import Made, make_trainer


class Refusing(Sync):
    def start(self, facts: RunFacts) -> Discipline:
        raise InputError("not today")


def test_a_mode_that_refuses_to_start_leaves_no_threads() -> None:
    trainer = trainer_of(Sync(), 2)
    trainer.switch(Refusing())
    with pytest.raises(InputError, match="not today"):
        list(trainer.fit(Made(1000)))
    assert threads_of_workers() == []
    trainer.switch(Sync())
    list(trainer.fit(Made(1000)))
    assert trainer.samples == 1000
    trainer.close()


def test_a_trainer_that_cannot_be_made_closes_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise InputError("shard 0 does not answer")

    closed = []
    close = LocalBackend.close
    monkeypatch.setattr(LocalBackend, "close", lambda backend: closed.append(backend) or close(backend))  # type: ignore[func-returns-value]
    monkeypatch.setattr(opening, "_rows_in_segments", fail)
    with pytest.raises(InputError, match="shard 0 does not answer"):
        make_trainer()
    assert len(closed) == 1


def test_a_cluster_counts_on_from_the_samples_of_its_segments(tmp_path: Path) -> None:
    segment = hr.Segment(run="run", directory=tmp_path, keep=True)
    tables = {"t": hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.05), segment=segment, expiry=100_000)}
    state = RunState(samples=50_000)
    with cluster(state, 1, 0, tables=tables) as there:
        assert there.site.attached_samples() == 0
        engine = TrainingLoop(there.site, state, mode=GBA(), facts=RunFacts(1, SAMPLES, SAMPLES))
        leases = LeaseQueue(batches(4))
        leases.open_epoch()
        assert len(list(engine.steps(leases, 0))) == 4
        engine.rest()
        engine.close()
    with cluster(RunState(), 1, 0, tables=tables) as there:
        assert 49_000 < there.site.attached_samples() <= state.samples


def test_a_role_names_itself_by_kind_and_number() -> None:
    with cluster(RunState(), 2, 1) as there:
        for role in (RoleId("shard", 1), RoleId("trainer", 1), RoleId("embedding worker", 0)):
            assert there.wire.request(role, Query("status")).result(20).of(QueryReply, role).role == role


def test_workers_of_one_process_neither_join_nor_leave() -> None:
    trainer = trainer_of(Sync(), 2)
    with pytest.raises(InputError, match="the workers of one process neither join nor leave"):
        trainer._loop.check_join()
    trainer.close()
