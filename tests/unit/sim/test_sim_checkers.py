"""Disciplines that are broken on purpose: the checkers catch each of them, and name what it did."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hotrow.modes import GBA, Async, BackupWorkers, BoundedStaleness, BulkSync, Hybrid, KStep, Mode, Sync
from hotrow.modes.aggregating import Aggregating
from hotrow.modes.base import Apply, Discipline, Drain, Drop, Effect, Ended, Event, Grant, Lost, Pushed, Ready, RunFacts
from hotrow.sim import (
    BrokenPromise,
    Checkers,
    ClusterConfig,
    Crash,
    Faults,
    LogNormal,
    Messages,
    SimCluster,
    Speeds,
    Stragglers,
)
from hotrow.sim.promises import promise_of
from hotrow.staleness import Cutoff, Staleness

SAMPLES = 100 * 8 + 3


@dataclass(slots=True)
class Broken:
    """A right discipline, and a fault around it."""

    inner: Discipline
    fault: Callable[[Discipline, Event], list[Effect]]

    @property
    def step(self) -> int:
        return self.inner.step

    @property
    def counts(self) -> dict[str, int]:
        return self.inner.counts

    def on(self, event: Event) -> list[Effect]:
        return self.fault(self.inner, event)


def broken(mode: Mode, fault: Callable[[Discipline, Event], list[Effect]]) -> Mode:
    """The mode, with a fault in its discipline; its promise stays what it was."""

    class Faulty(type(mode)):  # type: ignore[misc]
        def start(self, facts: RunFacts) -> Discipline:
            return Broken(super().start(facts), fault)

    return Faulty(**mode.model_dump())


def spoiled(mode: Mode, **fields: object) -> Mode:
    """The mode with other fields in its discipline than its settings say."""

    class Faulty(type(mode)):  # type: ignore[misc]
        def start(self, facts: RunFacts) -> Discipline:
            right: Any = super().start(facts)
            spoilt: Discipline = replace(right, **fields)
            return spoilt

    return Faulty(**mode.model_dump())


def run(mode: Mode, samples: int = SAMPLES) -> None:
    """Uneven workers, a crash, duplicates; a rest in between."""
    checkers = Checkers()
    config = ClusterConfig(
        workers=5,
        local_batch=8,
        speeds=Speeds(
            batch_s=1.0,
            sample_s=0.0,
            batches=LogNormal(sigma=0.2),
            stragglers=(Stragglers(workers=(4,), factor=4.0),),
        ),
        faults=Faults(
            crashes=(Crash(worker=2, at_s=5.5, restart_after_s=6.0), Crash(worker=3, at_s=9.5, cut_off=True)),
            messages=Messages(duplicate=0.2, timeout_s=0.5),
            detect_s=0.2,
        ),
    )
    cluster = SimCluster(mode, config, data=samples, seed=1, watchers=[checkers])
    cluster.rest(at_s=15.0)
    cluster.run()
    checkers.end(samples)


def deaf_to(*kinds: type) -> Callable[[Discipline, Event], list[Effect]]:
    def fault(inner: Discipline, event: Event) -> list[Effect]:
        return [] if isinstance(event, kinds) else inner.on(event)

    return fault


def applies_twice(inner: Discipline, event: Event) -> list[Effect]:
    effects = inner.on(event)
    return [*effects, *(replace(each, step=each.step + 1) for each in effects if isinstance(each, Apply))]


def applies_the_one_before() -> Callable[[Discipline, Event], list[Effect]]:
    before: list[Apply] = []

    def swapped(effect: Effect) -> Effect:
        if not isinstance(effect, Apply):
            return effect
        before.append(effect)
        return replace(effect, parts=before[-2].parts) if effect.step > 3 else effect

    return lambda inner, event: [swapped(effect) for effect in inner.on(event)]


def counts_duplicates(inner: Discipline, event: Event) -> list[Effect]:
    assert isinstance(inner, Aggregating)
    if isinstance(event, Pushed) and event.grant not in inner.grants.out:
        inner.grants.lost.pop(event.grant, None)
        inner.grants.out[event.grant] = (event.worker, ("both",))
    return inner.on(event)


def skips_a_number(inner: Discipline, event: Event) -> list[Effect]:
    return [
        replace(each, step=each.step + (each.step > 4)) if isinstance(each, Apply) else each for each in inner.on(event)
    ]


def grants_a_gone_worker(inner: Discipline, event: Event) -> list[Effect]:
    effects = inner.on(event)
    return [replace(each, worker=2) if isinstance(each, Grant) and inner.step > 20 else each for each in effects]


def uses_numbers_again(inner: Discipline, event: Event) -> list[Effect]:
    effects = inner.on(event)
    return [replace(each, grant=each.grant % 30 + 1) if isinstance(each, Grant) else each for each in effects]


def weighs_all_in_full(inner: Discipline, event: Event) -> list[Effect]:
    def full(apply: Apply) -> Apply:
        return replace(apply, parts=tuple(replace(part, weight=1.0) for part in apply.parts))

    return [full(each) if isinstance(each, Apply) else each for each in inner.on(event)]


def keeps_the_places_of_the_lost(inner: Discipline, event: Event) -> list[Effect]:
    effects = inner.on(event)
    inner.freed.clear()  # type: ignore[attr-defined]
    return effects


def grants_in_a_drain(inner: Discipline, event: Event) -> list[Effect]:
    if isinstance(event, Ready) and inner.draining:  # type: ignore[attr-defined]
        return [inner.grants.give(event.worker, inner.step)]  # type: ignore[attr-defined]
    return inner.on(event)


def takes_late_ones(inner: Discipline, event: Event) -> list[Effect]:
    if isinstance(event, Pushed) and event.grant in inner.tokens:  # type: ignore[attr-defined]
        inner.tokens[event.grant] = inner.step  # type: ignore[attr-defined]
    return inner.on(event)


def drops_at_will(inner: Discipline, event: Event) -> list[Effect]:
    effects = inner.on(event)
    if isinstance(event, Pushed) and inner.buffer and inner.step > 3:  # type: ignore[attr-defined]
        push = inner.buffer.pop()  # type: ignore[attr-defined]
        return [*effects, Drop(push.grant, "late")]
    return effects


def holds_rows_back(inner: Discipline, event: Event) -> list[Effect]:
    return [each for each in inner.on(event) if not (isinstance(each, Apply) and each.group == "embedding")]


def closes_short(inner: Discipline, event: Event) -> list[Effect]:
    """A step whose last gradient is made up of fewer."""
    return [
        replace(each, parts=each.parts[:-1]) if isinstance(each, Apply) and len(each.parts) > 1 else each
        for each in inner.on(event)
    ]


LATE = Staleness(decay=Cutoff(tolerance=2))
EARLIER, EARLIEST = Staleness(decay=Cutoff(tolerance=1)), Staleness(decay=Cutoff(tolerance=0))
GONE = "lost and holds grant|goes to absent worker"
BULK, BOUND, BACKUPS = BulkSync(bulk=4), BoundedStaleness(bound=1), BackupWorkers(backups=1)
FAULTS: dict[str, tuple[Mode, str]] = {
    "async applies twice": (broken(Async(), applies_twice), "grant 3 in step 1 of both is applied twice"),
    "async applies the one before": (broken(Async(), applies_the_one_before()), "is applied twice"),
    "async counts duplicates": (broken(Async(), counts_duplicates), "does not count had effects"),
    "async skips a step": (broken(Async(), skips_a_number), "step 6 of both comes where 5 is next"),
    "async grants a gone worker": (broken(Async(), grants_a_gone_worker), "did not request|to absent worker"),
    "async uses numbers again": (broken(Async(), uses_numbers_again), "its worker is not lost|was used before"),
    "async forgets the lost": (broken(Async(), deaf_to(Lost)), "worker 2 is lost and holds grant"),
    "async weighs the old in full": (broken(Async(staleness=LATE), weighs_all_in_full), "3 steps late and has weight"),
    "async cuts off too early": (spoiled(Async(staleness=LATE), late=EARLIER), "2 steps late and has weight 0, not 1"),
    "bulk closes early": (spoiled(BULK, parts_per_step=3), "holds 3 of 4 parts, and it is not the end of a drain"),
    "bulk closes late": (spoiled(BULK, parts_per_step=5), "step 0 is full and was not applied"),
    "bulk loses one of each step": (broken(BULK, closes_short), "holds 3 of 4 parts"),
    "bulk does not come to rest": (broken(BULK, deaf_to(Drain)), "in a drain|stay in the buffer after a drain"),
    "bulk drops at will": (broken(BULK, drops_at_will), "is dropped as late, and it is not"),
    "bounded has a wider bound": (spoiled(BOUND, bound=2), "2 batches ahead of the slowest"),
    "bounded forgets the lost": (broken(BOUND, deaf_to(Lost)), GONE),
    "backups takes late ones": (broken(BACKUPS, takes_late_ones), "was computed from the parameters of step"),
    "backups needs all": (spoiled(BACKUPS, needed=5), "step 0 is full and was not applied"),
    "gba has a wider tolerance": (spoiled(GBA(tolerance=1), late=LATE), "2 steps late and has weight 1, not 0"),
    "gba excludes at the tolerance": (spoiled(GBA(tolerance=1), late=EARLIEST), "1 steps late and has weight 0, not 1"),
    "gba lets tokens drift": (broken(GBA(), keeps_the_places_of_the_lost), "has token 5, and place 23 has 4"),
    "gba grants in a drain": (broken(GBA(), grants_in_a_drain), "in a drain"),
    "gba has another batch size": (spoiled(GBA(), parts_per_step=4), "has token|holds 4 of 5 parts"),
    "sync forgets the lost": (broken(Sync(), deaf_to(Lost)), GONE),
    "sync waits for the ended": (broken(Sync(), deaf_to(Ended)), "no other worker computes|wait forever"),
    "sync has another batch size": (spoiled(Sync(), slices=4), "holds 4 of 5 parts"),
    "hybrid holds rows back": (broken(Hybrid(), holds_rows_back), "was not applied on arrival"),
    "hybrid scales otherwise": (spoiled(Hybrid(), global_batch=0), r"has weight 1, not 0\.2"),
    "hybrid has other steps": (spoiled(Hybrid(), places=4), "holds 4 of 5 parts"),
    "k_step merges too seldom": (spoiled(KStep(k=2, warmup=0), k=3), "starts a step, and step 1 was not merged"),
    "k_step merges too often": (spoiled(KStep(k=3, warmup=0), k=2), "merges beside step 1"),
}


@pytest.mark.parametrize(("mode", "told"), FAULTS.values(), ids=FAULTS)
def test_a_broken_discipline_is_caught(mode: Mode, told: str) -> None:
    with pytest.raises(BrokenPromise, match=told):
        run(mode)


def test_gba_has_to_give_the_smallest_free_place_out_first() -> None:
    promise = promise_of(GBA(), RunFacts(workers=4, local_batch=8, global_batch=8))
    for grant in range(1, 5):  # one place a step: its token is its number
        assert promise.grant_fault(0, token=grant - 1) is None
        promise.granted(grant)
    promise.lost(3)
    promise.lost(2)
    assert promise.grant_fault(0, token=2) == "has token 2, and place 1 has 1"
    assert promise.grant_fault(0, token=1) is None


def test_waiting_for_one_that_has_ended_is_caught_when_data_come_back() -> None:
    faulty = broken(BoundedStaleness(bound=1), deaf_to(Ended))
    with pytest.raises(BrokenPromise, match=r"workers \[0, 1\] wait, and no other worker computes"):
        run(faulty, samples=160)  # dealt when worker 3 is cut off: what it held comes back
    run(BoundedStaleness(bound=1), samples=160)


RIGHT = (Sync(), Async(staleness=LATE), BULK, BOUND, BACKUPS, GBA(tolerance=1), Hybrid(), KStep(k=2, warmup=0))


@pytest.mark.parametrize("mode", RIGHT, ids=lambda mode: mode.name)
def test_the_same_cluster_finds_no_fault_in_the_right_ones(mode: Mode) -> None:
    run(mode)
