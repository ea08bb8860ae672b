"""Trainers join where the cluster has places, leave drained nodes, and are not started without end."""

import logging
from concurrent.futures import Future

import pytest

import hotrow as hr
from hotrow.errors import ConfigError, InputError
from hotrow.modes import GBA, BackupWorkers, Mode, Sync
from hotrow.modes.base import RunFacts
from hotrow.runtime.losses import QUIET_STEPS
from hotrow.runtime.membership import ScaleRequest
from hotrow.runtime.settings import Ray
from hotrow.trainer.batches import checked_facts, facts_of
from hotrow.trainer.elastic import ElasticTrainers
from hotrow.types import RoleId


class Cluster:
    """Has room for some trainers; a join and a leave take effect when the next step begins."""

    def __init__(self, room: int, *, fewest: int = 1, most: int = 3, losses_most: int = 1) -> None:
        self.room, self.step, self.started, self.joins_most = room, 0, 1, 100
        self.trainers = [RoleId("trainer", 0)]
        self.requested, self.requests = False, 0
        self.drained: set[RoleId] = set()
        self.ended: set[RoleId] = set()
        self.told: list[str] = []
        self.open: list[ScaleRequest] = []
        bounds = {"fewest": fewest, "most": most, "losses_most": losses_most}
        self.elastic = ElasticTrainers(self, self, self, self.told.append, lambda: self.step, **bounds)

    def request(self) -> None:
        self.requested, self.requests = True, self.requests + 1

    def wait(self, timeout_s: float) -> bool:
        found = self.requested and len(self.trainers) < self.room
        self.requested = self.requested and not found
        return found

    def withdraw(self) -> None:
        self.requested = False

    def draining(self) -> set[RoleId]:
        return self.drained

    def ended_with_node(self, name: RoleId) -> bool:
        return name in self.ended

    def check_join(self) -> None:
        if len(self.trainers) >= self.joins_most:
            raise ConfigError("the mode has enough")

    def join_trainer(self) -> ScaleRequest:
        if self.room > 10:
            raise InputError("no such model")
        self.open.append(ScaleRequest(RoleId("trainer", self.started), joins=True))
        self.started += 1
        return self.open[-1]

    def leave(self, name: str) -> "Future[None]":
        if len(self.trainers) == 1:
            raise InputError(f"{name!r}: is the last trainer")
        self.open.append(ScaleRequest(RoleId.parse(name), joins=False))
        return self.open[-1].done

    def next_step(self) -> None:
        self.step += 1
        for request in self.open:
            self.trainers = [name for name in self.trainers if name != request.name]
            self.trainers += [request.name] * request.joins
            request.done.set_result(None)
        self.open = []

    def run(self, ticks: int) -> int:
        for _ in range(ticks):
            self.elastic.tick()
            self.next_step()
        return len(self.trainers)

    def lose(self, *, with_node: bool) -> None:
        name = self.trainers.pop()
        self.ended |= {name} if with_node else set()
        self.elastic.replace(name)


def test_trainers_join_as_there_is_room_up_to_the_most() -> None:
    cluster = Cluster(room=2)
    assert cluster.run(5) == 2
    assert (cluster.requested, cluster.requests) == (True, 2), "one place is looked for: an autoscaler sees it"
    cluster.room = 8
    assert cluster.run(5) == 3
    assert not cluster.requested


def test_no_place_is_requested_while_a_trainer_waits_for_its_step() -> None:
    cluster = Cluster(room=8)
    for _ in range(4):
        cluster.elastic.tick()
    assert (len(cluster.open), cluster.requests) == (1, 1)


def test_a_mode_that_has_enough_is_not_asked_to_take_more() -> None:
    cluster = Cluster(room=8)
    cluster.joins_most = 2
    assert cluster.run(5) == 2
    assert not cluster.requested


def test_trainers_leave_a_drained_node_and_the_last_one_waits_for_another(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(room=2, fewest=2)
    cluster.run(3)
    cluster.room, cluster.drained = 0, set(cluster.trainers)
    with caplog.at_level(logging.WARNING):
        assert cluster.run(3) == 1
    assert cluster.told == ["the node of trainer 0 is being drained: it leaves"]
    assert "trainers: 1, fewer than engine.trainers asks for (2): training goes on" in caplog.text
    cluster.room = 2
    cluster.run(2)
    assert cluster.told[1:] == ["the node of trainer 1 is being drained: it leaves"]
    assert cluster.trainers == ["trainer 2"]


@pytest.mark.parametrize(("with_node", "trainers"), [(False, 1), (True, 3)])
def test_losses_in_a_row_stop_the_growth_unless_their_nodes_ended(with_node: bool, trainers: int) -> None:
    cluster = Cluster(room=3)
    cluster.run(6)
    for _ in range(2):
        cluster.lose(with_node=with_node)
    assert cluster.run(6) == trainers
    cluster.step += QUIET_STEPS
    assert cluster.run(6) == 3


@pytest.mark.parametrize(("losses_most", "waits"), [(0, False), (1, True)])
def test_a_run_without_trainers_waits_while_one_may_come(losses_most: int, waits: bool) -> None:
    cluster = Cluster(room=0, losses_most=losses_most)
    cluster.elastic.start()
    cluster.lose(with_node=False)
    cluster.elastic.tick()
    assert cluster.elastic.pending == waits
    cluster.elastic.close()
    assert not cluster.elastic.pending


def test_a_trainer_that_cannot_start_is_a_sentence_and_counts_as_lost() -> None:
    cluster = Cluster(room=20, losses_most=2)
    assert cluster.run(9) == 1
    assert cluster.told == ["a trainer could not start: no such model"] * 3


@pytest.mark.parametrize(("given", "bounds"), [(3, (3, 3)), ([1, 8], (1, 8)), ((2, 2), (2, 2)), ((1, 4096), (1, 4096))])
def test_trainers_are_a_number_or_two_bounds(given: object, bounds: tuple[int, int]) -> None:
    engine = Ray(trainers=given)
    assert (engine.trainers_fewest, engine.trainers_most) == bounds
    assert engine.elastic == (given != 3)
    assert Ray.model_validate_json(engine.model_dump_json()) == engine


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (0, "must be from 1 to 4,096"),
        (4097, "must be from 1 to 4,096"),
        ([0, 8], "must be from 1 to 4,096"),
        ([8, 1], r"the fewest come first, as \[1, 8\]"),
        ([1], r"must be a whole number, or the fewest and the most, as \[1, 8\]"),
        ([1, 2.5], "must be a whole number"),
        ("2", "must be a whole number, write it without quotes"),
    ],
)
def test_other_numbers_of_trainers_are_refused_in_a_sentence(given: object, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"Ray\.trainers=.*: {told}"):
        hr.Ray(trainers=given)


@pytest.mark.parametrize(
    ("mode", "trainers", "workers"), [(Sync(), (1, 8), 4), (Sync(), (1, 3), 3), (GBA(), (1, 8), 8), (Sync(), 4, 4)]
)
def test_in_common_steps_no_more_trainers_start_than_a_global_batch_has_parts(
    mode: Mode, trainers: int | tuple[int, int], workers: int
) -> None:
    engine = Ray(trainers=trainers)
    facts = checked_facts(mode, RunFacts(engine.trainers_most, 4, 16), engine)
    assert (facts.workers, facts.parts) == (workers, 4)


def test_a_mode_is_checked_with_the_fewest_trainers_too() -> None:
    engine = Ray(trainers=(1, 8))
    with pytest.raises(ConfigError, match="backups=1"):
        checked_facts(BackupWorkers(backups=1), facts_of(16, engine.trainers_most, None), engine)
