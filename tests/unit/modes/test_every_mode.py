"""What holds in every mode, whoever is slow, lost, late or without data."""

import copy
from dataclasses import asdict

import pytest

from hotrow.modes import (
    GBA,
    MODES,
    Async,
    BackupWorkers,
    BoundedStaleness,
    BulkSync,
    Hybrid,
    KStep,
    Mode,
    Sync,
    mode_of,
)
from hotrow.modes.base import Drain, Grant, Joined, Lost, Ready, Resume, RunFacts
from unit.modes.tiny_cluster import TinyCluster, cluster_of, groups_of, pushed, restored

SMALL = {
    "sync": Sync(),
    "async": Async(),
    "bulk_sync": BulkSync(bulk=2),
    "bounded_staleness": BoundedStaleness(bound=1),
    "backup_workers": BackupWorkers(backups=1),
    "gba": GBA(tolerance=1),
    "hybrid": Hybrid(max_in_flight=2),
    "k_step": KStep(k=2, warmup=0),
}
every_mode = pytest.mark.parametrize("mode", SMALL.values(), ids=SMALL)


def test_no_mode_is_left_out() -> None:
    assert list(SMALL) == list(MODES)
    assert all(mode_of(name) == entry.spec() for name, entry in MODES.items())


@every_mode
def test_all_data_are_trained_and_the_last_step_is_short(mode: Mode) -> None:
    cluster = cluster_of(mode, batches=13, short=1)
    for worker in range(3):
        cluster.join(worker)
    cluster.finish()
    assert sum(cluster.samples) == 51
    dropped = 4 * cluster.late
    assert dropped == 0 or mode.name == "backup_workers"


@every_mode
def test_a_duplicate_push_is_counted_and_has_no_effect(mode: Mode) -> None:
    cluster = cluster_of(mode)
    for worker in range(3):
        cluster.join(worker)
    for worker in range(3):
        cluster.ask(worker)
    cluster.push(0)
    before = copy.deepcopy(cluster.discipline)
    cluster.push_again(0)
    cluster.push_again(0)
    counts = {**before.counts, "duplicate_pushes": 2}
    assert cluster.discipline.counts == counts
    before.grants.duplicates = 2  # type: ignore[attr-defined]
    assert cluster.discipline == before
    cluster.finish()


@every_mode
def test_a_push_after_the_loss_of_its_worker_is_counted_and_has_no_effect(mode: Mode) -> None:
    cluster = cluster_of(mode)
    for worker in range(3):
        cluster.join(worker)
    for worker in range(3):
        cluster.ask(worker)
    cluster.lose(1)
    assert cluster.lost == 1
    expected = len(groups_of(mode))
    for _ in range(expected):
        cluster.push_after_loss()
    assert cluster.discipline.counts["pushes_after_loss"] == expected
    cluster.finish()


@every_mode
def test_after_its_loss_a_resent_push_is_a_duplicate(mode: Mode) -> None:
    discipline = mode.start(RunFacts(workers=3, local_batch=4, global_batch=12))
    granted = [each for worker in range(3) for each in discipline.on(Joined(worker))]
    granted += [each for worker in range(3) for each in discipline.on(Ready(worker))]
    first = next(each for each in granted if isinstance(each, Grant))
    discipline.on(Lost(first.worker))
    for group in groups_of(mode) * 2:
        assert discipline.on(pushed(first, group=group)) == []
    each_once = len(groups_of(mode))
    assert discipline.counts["pushes_after_loss"] == discipline.counts["duplicate_pushes"] == each_once


@every_mode
def test_what_a_lost_worker_had_pushed_still_counts(mode: Mode) -> None:
    cluster = cluster_of(mode, batches=6)
    for worker in range(3):
        cluster.join(worker)
    for worker in range(3):
        cluster.ask(worker)
    while cluster.push(2):
        pass
    cluster.lose(2)
    assert cluster.lost == 0
    cluster.finish()


@every_mode
def test_somebody_who_joins_in_mid_step_takes_part(mode: Mode) -> None:
    cluster = cluster_of(mode, batches=24)
    for worker in range(2):
        cluster.join(worker)
    for worker in range(2):
        cluster.ask(worker)
    cluster.push(0)
    cluster.join(2)
    cluster.finish()
    took_part = {effect.worker for effect in cluster.effects if isinstance(effect, Grant)}
    assert took_part == {0, 1, 2}


@every_mode
def test_the_end_of_one_workers_data_holds_nobody_back(mode: Mode) -> None:
    cluster = cluster_of(mode, batches=4)  # a step is 3, but for async
    for worker in range(3):
        cluster.join(worker)
    cluster.finish()
    assert sum(cluster.done.values()) == 4


@every_mode
def test_a_drain_applies_what_is_outstanding_and_grants_nothing(mode: Mode) -> None:
    cluster = cluster_of(mode)
    for worker in range(3):
        cluster.join(worker)
    for worker in range(3):
        cluster.ask(worker)
    cluster.push(0)
    cluster.drain()
    while any(cluster.push(worker) for worker in range(3)):
        pass
    cluster.check_rest()
    granted = [effect for effect in cluster.effects if isinstance(effect, Grant)]
    cluster.ask(0)
    cluster.ask(1)
    assert [effect for effect in cluster.effects if isinstance(effect, Grant)] == granted
    cluster.resume()
    cluster.finish()


@every_mode
def test_a_drain_of_nobody_does_nothing_but_kept_merges(mode: Mode) -> None:
    discipline = mode.start(RunFacts(workers=3, local_batch=4, global_batch=12))
    assert discipline.on(Drain()) == []
    assert discipline.on(Drain()) == []
    assert discipline.on(Resume()) == []


@every_mode
def test_steps_and_grants_go_on_where_the_mode_before_left_them(mode: Mode) -> None:
    facts = RunFacts(workers=3, local_batch=4, global_batch=12, step=7, grants=40)
    cluster = TinyCluster(mode, facts, [4] * 9)
    for worker in range(3):
        cluster.join(worker)
    cluster.finish()
    assert cluster.steps[0].step == 7
    tokens = [effect.token for effect in cluster.effects if isinstance(effect, Grant)]
    assert tokens[0] == 7
    assert tokens == sorted(tokens)


@every_mode
def test_a_copy_in_the_middle_goes_on_alike(mode: Mode) -> None:
    cluster = cluster_of(mode, batches=15)
    for worker in range(3):
        cluster.join(worker)
    for worker in (0, 1, 2, 0):
        cluster.ask(worker)
    for worker in (2, 0, 0):
        cluster.push(worker)
        cluster.ask(worker)
    cluster.lose(1)
    halfway, kept = len(cluster.events), restored(cluster.discipline)
    assert kept == cluster.discipline
    assert asdict(kept) == asdict(cluster.discipline)  # type: ignore[call-overload]
    kept_too = copy.deepcopy(cluster.discipline)
    effects = len(cluster.effects)
    cluster.finish()
    assert kept != cluster.discipline
    for other in (kept, kept_too):
        answered = [effect for event in cluster.events[halfway:] for effect in other.on(event)]
        assert answered == cluster.effects[effects:]
        assert other == cluster.discipline
