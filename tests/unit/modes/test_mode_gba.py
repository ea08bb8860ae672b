"""GBA: the global batch from whoever is fast, tokens that never drift, and nobody too late counted."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.errors import ConfigError
from hotrow.modes import GBA
from hotrow.modes.base import Apply, Drain, Drop, Grant, Lost, Park, Ready, Resume, RunFacts
from hotrow.modes.gba import GlobalBatch
from hotrow.staleness import Cutoff, Inverse, Staleness
from unit.modes.tiny_cluster import cluster_of, facts_of, grants_of, pushed


def started(parts: int, tolerance: int = 4, **facts: int) -> GlobalBatch:
    made = GBA(tolerance=tolerance).start(facts_of(workers=parts, parts=parts, **facts))
    assert isinstance(made, GlobalBatch)
    return made


def ask(gba: GlobalBatch, worker: int) -> Grant:
    (grant,) = grants_of(gba.on(Ready(worker)))
    return grant


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_the_token_of_place_i_is_i_over_the_places_of_a_step(parts: int) -> None:
    gba = started(parts)
    assert [ask(gba, worker).token for worker in range(20)] == [place // parts for place in range(20)]


def test_grants_never_wait_and_the_last_push_closes_the_step() -> None:
    gba = started(3)
    grants = [ask(gba, 0) for _ in range(5)]
    assert gba.on(pushed(grants[4])) == []
    assert gba.on(pushed(grants[0])) == []
    (step,) = gba.on(pushed(grants[2]))
    assert isinstance(step, Apply)
    assert (step.group, step.step) == ("both", 0)
    assert [part.grant for part in step.parts] == [5, 1, 3]
    assert gba.step == 1


def test_staleness_bound_is_inclusive() -> None:
    gba = started(2, tolerance=2)
    old, older = ask(gba, 0), ask(gba, 1)  # both meant for step 0
    for _ in range(2):
        for grant in (ask(gba, 2), ask(gba, 2)):
            gba.on(pushed(grant))
    gba.on(pushed(old))
    (at_the_bound,) = gba.on(pushed(ask(gba, 2)))
    gba.on(pushed(older))
    (beyond,) = gba.on(pushed(ask(gba, 2)))
    assert isinstance(at_the_bound, Apply)
    assert isinstance(beyond, Apply)
    assert (at_the_bound.step, [part.weight for part in at_the_bound.parts]) == (2, [1.0, 1.0])
    assert (beyond.step, [part.weight for part in beyond.parts]) == (3, [0.0, 1.0])


def test_a_stale_part_stays_in_its_step() -> None:
    gba = started(2, tolerance=0)
    late = ask(gba, 0)
    for grant in (ask(gba, 1), ask(gba, 1)):
        gba.on(pushed(grant))
    gba.on(pushed(late, samples=3))
    (step,) = gba.on(pushed(ask(gba, 1)))
    assert isinstance(step, Apply)
    assert (step.samples, [part.grant for part in step.parts]) == (7, [1, 4])


def test_a_token_ahead_of_the_step_is_not_late() -> None:
    gba = started(2, tolerance=0)
    grants = [ask(gba, 0) for _ in range(4)]  # tokens 0, 0, 1, 1
    gba.on(pushed(grants[2]))
    (step,) = gba.on(pushed(grants[3]))
    assert isinstance(step, Apply)
    assert [part.weight for part in step.parts] == [1.0, 1.0]


def test_another_curve_takes_the_place_of_the_cut_off() -> None:
    spec = GBA(decay=Inverse(), literal=True)
    assert spec.late == Staleness(decay=Inverse(), literal=True)
    assert GBA(tolerance=3).late == Staleness(decay=Cutoff(tolerance=3))
    gba = spec.start(facts_of(workers=1, parts=1))
    late = [grants_of(gba.on(Ready(0)))[0] for _ in range(4)]
    for _ in range(4):
        gba.on(pushed(grants_of(gba.on(Ready(1)))[0]))
    (step,) = gba.on(pushed(late[0]))
    assert isinstance(step, Apply)
    assert (step.step, step.parts[0].weight) == (4, 0.25)


def test_a_freed_place_keeps_its_token_while_the_step_has_not_passed_it() -> None:
    gba = started(2)
    grants = [ask(gba, worker) for worker in range(4)]  # tokens 0, 0, 1, 1
    assert gba.on(Lost(3)) == [Drop(4, "lost")]
    assert ask(gba, 5).token == 1  # place 3, and not place 4 with token 2
    assert ask(gba, 6).token == 2
    assert [grant.token for grant in grants] == [0, 0, 1, 1]


def test_who_takes_a_freed_place_over_later_pulls_now() -> None:
    gba = started(2)
    ask(gba, 0)
    for _ in range(3):
        for grant in (ask(gba, 1), ask(gba, 1)):
            gba.on(pushed(grant))
    gba.on(Lost(0))  # place 0, token 0
    assert gba.step == 3
    assert ask(gba, 2).token == 3


def test_freed_places_of_one_worker_are_taken_in_order() -> None:
    gba = started(2)
    for worker in (0, 1, 0, 1, 0):  # places 0, 2, 4 are worker 0's: tokens 0, 1, 2
        ask(gba, worker)
    gba.on(Lost(0))
    assert [ask(gba, 2).token for _ in range(4)] == [0, 1, 2, 2]


def test_the_smallest_freed_place_goes_out_first_whichever_was_lost_first() -> None:
    gba = started(1)
    for worker in range(6):  # place and token of worker i are i
        ask(gba, worker)
    for worker in (4, 1, 3):
        gba.on(Lost(worker))
    assert gba.freed == [1, 3, 4]
    assert ask(gba, 7).token == 1
    gba.on(Lost(0))
    assert [ask(gba, 7).token for _ in range(4)] == [0, 3, 4, 6]


@pytest.mark.parametrize("seed", range(5))
def test_tokens_do_not_drift_over_many_losses(seed: int) -> None:
    workers = 6
    gba, chance = started(3), random.Random(seed)
    out: dict[int, Grant] = {worker: ask(gba, worker) for worker in range(workers)}
    for _ in range(3_000):
        worker = chance.randrange(workers)
        if chance.random() < 0.3:
            gba.on(Lost(worker))
        else:
            gba.on(pushed(out[worker]))
        out[worker] = ask(gba, worker)
        assert gba.step <= out[worker].token <= gba.step + workers // 3  # never further than those under way
    assert gba.step > 500


def test_after_a_short_step_tokens_start_with_the_step() -> None:
    gba = started(3)
    first = ask(gba, 0)
    gba.on(Drain())
    (short,) = gba.on(pushed(first))
    assert isinstance(short, Apply)
    assert (gba.step, gba.counts["short_steps"]) == (1, 1)
    gba.on(Resume())
    assert [ask(gba, 0).token for _ in range(4)] == [1, 1, 1, 2]


def test_a_drain_with_a_full_and_a_short_step_to_come() -> None:
    gba = started(2)
    grants = [ask(gba, worker) for worker in range(3)]
    assert gba.on(Drain()) == []
    assert gba.on(Ready(7)) == [Park(7)]
    assert gba.on(pushed(grants[2])) == []
    (full,) = gba.on(pushed(grants[0]))
    (short,) = gba.on(pushed(grants[1]))
    assert isinstance(full, Apply)
    assert isinstance(short, Apply)
    assert (len(full.parts), len(short.parts), gba.counts["short_steps"]) == (2, 1, 1)
    (granted,) = gba.on(Resume())
    assert granted == Grant(7, 4, token=2)


def test_a_drain_that_loses_its_last_grant_closes_what_is_there() -> None:
    gba = started(3)
    grants = [ask(gba, worker) for worker in range(2)]
    gba.on(pushed(grants[0]))
    gba.on(Drain())
    dropped, short = gba.on(Lost(1))
    assert dropped == Drop(2, "lost")
    assert isinstance(short, Apply)
    assert [part.grant for part in short.parts] == [1]
    gba.on(Resume())
    assert [ask(gba, 0).token for _ in range(4)] == [1, 1, 1, 2]  # the freed place is gone with its step


def test_it_goes_on_where_another_mode_stopped() -> None:
    gba = started(3, step=7, grants=100)
    assert [ask(gba, 0).token for _ in range(4)] == [7, 7, 7, 8]
    assert gba.grants.given == 104


@pytest.mark.parametrize(
    ("whole", "local", "fits"),
    [(12, 5, "take 4 or 6"), (12, 7, "take 6 or 12"), (7, 2, "take 1 or 7"), (64, 100, "take 64"), (12, 12, None)],
)
def test_a_local_batch_that_does_not_divide_is_refused_with_those_that_do(
    whole: int, local: int, fits: str | None
) -> None:
    facts = RunFacts(workers=2, local_batch=local, global_batch=whole)
    if fits is None:
        GBA().check(facts)
        return
    for refuse in (GBA().check, GBA().start):
        with pytest.raises(ConfigError, match=f"local_batch={local}: gba .* global batch of {whole}.*{fits}$"):
            refuse(facts)


@given(st.integers(1, 400), st.integers(1, 450))
def test_the_numbers_that_are_named_do_divide_and_are_the_nearest(whole: int, local: int) -> None:
    facts = RunFacts(workers=1, local_batch=local, global_batch=whole)
    divisors = [size for size in range(1, whole + 1) if whole % size == 0]
    if local in divisors:
        GBA().check(facts)
        return
    with pytest.raises(ConfigError) as refused:
        GBA().check(facts)
    named = [int(number) for number in str(refused.value).rpartition("take ")[2].split(" or ")]
    nearest = {max(size for size in divisors if size < local), min((s for s in divisors if s > local), default=whole)}
    assert set(named) == nearest


def test_a_number_of_workers_that_is_not_that_of_places_is_told() -> None:
    assert GBA().remarks(facts_of(workers=3, parts=3)) == []
    (told,) = GBA().remarks(facts_of(workers=5, parts=3))
    assert "5 workers for the 3 local batches" in told


def test_a_slow_worker_is_late_and_the_batch_stays_whole() -> None:
    cluster = cluster_of(GBA(tolerance=1), workers=3, parts=3, batches=30)
    for worker in range(3):
        cluster.join(worker)
        cluster.ask(worker)
    for _ in range(20):
        for worker in (0, 1):
            cluster.push(worker)
            cluster.ask(worker)
    cluster.push(2)
    cluster.finish()
    weights = [part.weight for step in cluster.steps for part in step.parts]
    assert weights.count(0.0) == 1
    assert {len(step.parts) for step in cluster.steps} == {3}
