"""BackupWorkers: the first N - b close a step, those of the slowest b are dropped, and nothing is ever stale."""

import pytest

from hotrow.errors import ConfigError
from hotrow.modes import BackupWorkers
from hotrow.modes.backup_workers import Backups
from hotrow.modes.base import Apply, Drain, Drop, Ended, Grant, Joined, Lost, Park, Ready, Resume
from unit.modes.tiny_cluster import cluster_of, facts_of, grants_of, pushed


def started(workers: int, backups: int) -> Backups:
    made = BackupWorkers(backups=backups).start(facts_of(workers=workers, parts=workers))
    assert isinstance(made, Backups)
    for worker in range(workers):
        made.on(Joined(worker))
    return made


def everybody(backups: Backups, workers: int) -> list[Grant]:
    return [grant for worker in range(workers) for grant in grants_of(backups.on(Ready(worker)))]


def test_the_first_close_the_step_and_the_late_are_dropped() -> None:
    made = started(4, backups=1)
    grants = everybody(made, 4)
    assert made.on(pushed(grants[3])) == []
    assert made.on(pushed(grants[1])) == []
    (step,) = made.on(pushed(grants[0]))
    assert isinstance(step, Apply)
    assert (step.step, [part.grant for part in step.parts]) == (0, [4, 2, 1])
    assert made.on(pushed(grants[2])) == [Drop(3, "late")]
    assert made.on(Ready(2)) == [Grant(2, 5, token=1)]


def test_who_gave_its_gradient_waits_for_the_next_step() -> None:
    made = started(3, backups=1)
    grants = everybody(made, 3)
    made.on(pushed(grants[0]))
    assert made.on(Ready(0)) == [Park(0)]
    effects = made.on(pushed(grants[1]))
    assert isinstance(effects[0], Apply)
    assert effects[1:] == [Grant(0, 4, token=1)]


def test_without_backups_it_waits_for_all() -> None:
    made = started(2, backups=0)
    grants = everybody(made, 2)
    assert made.on(pushed(grants[0])) == []
    assert isinstance(made.on(pushed(grants[1]))[0], Apply)


def test_where_fewer_are_left_than_a_step_needs_they_give_twice() -> None:
    made = started(4, backups=1)
    grants = everybody(made, 4)
    assert made.on(Lost(3)) == [Drop(4, "lost")]
    made.on(pushed(grants[0]))
    assert made.on(Ready(0)) == [Park(0)]  # two more are computing: with them the step closes
    assert made.on(Lost(2)) == [Drop(3, "lost"), Grant(0, 5, token=0)]
    made.on(pushed(Grant(0, 5, 0)))
    (step,) = made.on(pushed(grants[1]))
    assert isinstance(step, Apply)
    assert [part.grant for part in step.parts] == [1, 5, 2]


def test_the_last_worker_makes_whole_steps_alone() -> None:
    cluster = cluster_of(BackupWorkers(backups=1), workers=4, batches=12)
    for worker in range(4):
        cluster.join(worker)
    for worker in (1, 2, 3):
        cluster.lose(worker)
    cluster.finish()
    assert [len(step.parts) for step in cluster.steps] == [3, 3, 3, 3]


def test_somebody_who_will_soon_ask_is_waited_for() -> None:
    made = started(3, backups=0)
    grants = grants_of(made.on(Ready(0))) + grants_of(made.on(Ready(1)))
    for grant in grants:
        made.on(pushed(grant))
    assert made.on(Ready(0)) == [Park(0)]  # worker 2 is there and has given nothing
    assert made.on(Ended(2)) == [Grant(0, 3, token=0)]


def test_a_newcomer_takes_part_in_the_running_step() -> None:
    made = started(2, backups=0)
    grants = everybody(made, 2)
    made.on(pushed(grants[0]))
    made.on(Joined(2))
    assert made.on(Ready(2)) == [Grant(2, 3, token=0)]
    assert isinstance(made.on(pushed(Grant(2, 3, 0)))[0], Apply)
    assert made.on(pushed(grants[1])) == [Drop(2, "late")]


def test_a_drain_closes_short_and_still_drops_the_late() -> None:
    made = started(4, backups=1)
    grants = everybody(made, 4)
    for grant in grants[:3]:
        made.on(pushed(grant))
    again = grants_of(made.on(Ready(0)))
    made.on(Drain())
    assert made.on(Ready(1)) == [Park(1)]
    assert made.on(pushed(again[0])) == []  # the late one is still out
    dropped, short = made.on(pushed(grants[3]))
    assert dropped == Drop(4, "late")
    assert isinstance(short, Apply)
    assert ([part.grant for part in short.parts], made.counts["short_steps"]) == ([5], 1)
    assert made.on(Resume()) == [Grant(1, 6, token=2)]


def test_the_straggler_is_dropped_over_and_over_and_all_that_counts_is_fresh() -> None:
    cluster = cluster_of(BackupWorkers(backups=1), workers=3, batches=30)
    for worker in range(3):
        cluster.join(worker)
        cluster.ask(worker)
    for turn in range(12):
        for worker in (0, 1) if turn % 3 else (0, 1, 2):
            cluster.push(worker)
            cluster.ask(worker)
    cluster.finish()
    assert cluster.late >= 3
    assert all(part.pulled_step == step.step for step in cluster.steps for part in step.parts)


@pytest.mark.parametrize(("workers", "backups"), [(3, 2), (2, 1), (1, 0)])
def test_one_gradient_is_enough_for_a_step(workers: int, backups: int) -> None:
    BackupWorkers(backups=backups).check(facts_of(workers=workers, parts=workers))


@pytest.mark.parametrize(("workers", "backups", "said"), [(3, 3, "below the 3 workers"), (1, 1, "for several workers")])
def test_no_gradient_left_for_a_step_is_refused(workers: int, backups: int, said: str) -> None:
    for refuse in (BackupWorkers(backups=backups).check, BackupWorkers(backups=backups).start):
        with pytest.raises(ConfigError, match=f"backups={backups}: .*{said}"):
            refuse(facts_of(workers=workers, parts=workers))
