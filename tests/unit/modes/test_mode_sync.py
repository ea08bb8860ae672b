"""Sync: a step is the whole global batch, slice r by rank r, and nobody waits for the gone."""

import pytest

from hotrow.errors import ConfigError
from hotrow.modes import Sync
from hotrow.modes.base import Apply, Drain, Drop, Ended, Grant, Joined, LookAhead, Lost, Park, Ready, Resume
from hotrow.modes.synchronous import Synchronous
from unit.modes.tiny_cluster import facts_of, grants_of, pushed


def started(workers: int, parts: int, **facts: int) -> Synchronous:
    made = Sync().start(facts_of(workers=workers, parts=parts, **facts))
    assert isinstance(made, Synchronous)
    for worker in range(workers):
        assert made.on(Joined(worker)) == []
    return made


def first_grants(sync: Synchronous, workers: int) -> list[Grant]:
    return [grant for worker in range(workers) for grant in grants_of(sync.on(Ready(worker)))]


def test_a_step_starts_when_everybody_asks_and_rank_r_gets_slice_r() -> None:
    sync = started(3, parts=3)
    assert sync.on(Ready(2)) == [Park(2)]
    assert sync.on(Ready(0)) == [Park(0)]
    assert sync.on(Ready(1)) == [Grant(0, 1, 0), Grant(1, 2, 0), Grant(2, 3, 0)]


def test_the_step_closes_with_the_last_and_its_parts_stand_by_rank() -> None:
    sync = started(3, parts=3)
    grants = first_grants(sync, 3)
    assert sync.on(pushed(grants[2])) == []
    assert sync.on(Ready(2)) == [Park(2)]  # it waits for the others
    assert sync.on(pushed(grants[1])) == []
    (step,) = sync.on(pushed(grants[0]))
    assert isinstance(step, Apply)
    assert (step.group, step.step) == ("both", 0)
    assert [(part.grant, part.weight) for part in step.parts] == [(1, 1.0), (2, 1.0), (3, 1.0)]
    assert sync.step == 1


def test_fewer_workers_than_slices_take_several() -> None:
    sync = started(2, parts=3)
    assert len(first_grants(sync, 2)) == 2
    sync.on(pushed(Grant(0, 1, 0)))
    assert sync.on(Ready(0)) == [Grant(0, 3, 0)]
    sync.on(pushed(Grant(1, 2, 0)))
    assert sync.on(Ready(1)) == [Park(1)]  # all slices are dealt
    (step,) = sync.on(pushed(Grant(0, 3, 0)))
    assert isinstance(step, Apply)
    assert len(step.parts) == 3
    assert grants_of(sync.on(Ready(0))) == [Grant(0, 4, 1), Grant(1, 5, 1)]


def test_more_workers_than_slices_leave_the_last_waiting() -> None:
    sync = started(3, parts=2)
    grants = first_grants(sync, 3)
    assert [grant.worker for grant in grants] == [0, 1]
    for grant in grants:
        sync.on(pushed(grant))
    sync.on(Ready(1))
    assert [grant.worker for grant in grants_of(sync.on(Ended(0)))] == [1, 2]


def test_a_lost_slice_goes_to_who_waits_and_the_batch_stays_whole() -> None:
    sync = started(3, parts=3)
    grants = first_grants(sync, 3)
    sync.on(pushed(grants[0]))
    sync.on(Ready(0))
    assert sync.on(Lost(2)) == [Drop(3, "lost"), Grant(0, 4, 0)]
    sync.on(pushed(grants[1]))
    (step,) = sync.on(pushed(Grant(0, 4, 0)))
    assert isinstance(step, Apply)
    assert [part.grant for part in step.parts] == [1, 2, 4]


def test_a_lost_slice_waits_for_somebody_to_be_free() -> None:
    sync = started(2, parts=2)
    first_grants(sync, 2)
    assert sync.on(Lost(1)) == [Drop(2, "lost")]
    sync.on(pushed(Grant(0, 1, 0)))
    assert sync.on(Ready(0)) == [Grant(0, 3, 0)]


def test_a_step_whose_slices_are_all_lost_starts_anew_with_all() -> None:
    sync = started(2, parts=2)
    first_grants(sync, 2)
    sync.on(Lost(0))
    sync.on(Lost(1))
    sync.on(Joined(0))
    sync.on(Joined(1))
    assert sync.on(Ready(1)) == [Park(1)]  # rank 0 is there and will ask
    assert sync.on(Ready(0)) == [Grant(0, 3, 0), Grant(1, 4, 0)]


def test_somebody_lost_before_asking_holds_nobody_back() -> None:
    sync = started(2, parts=2)
    assert sync.on(Ready(0)) == [Park(0)]
    assert sync.on(Lost(1)) == [Grant(0, 1, 0)]


def test_a_newcomer_takes_part_from_the_next_step_on() -> None:
    sync = started(2, parts=2)
    grants = first_grants(sync, 2)
    sync.on(Joined(2))
    assert sync.on(Ready(2)) == [Park(2)]
    sync.on(pushed(grants[0]))
    sync.on(Ready(0))
    sync.on(pushed(grants[1]))
    assert [grant.worker for grant in grants_of(sync.on(Ready(1)))] == [0, 1]


def test_the_end_of_one_workers_data_lets_the_others_begin() -> None:
    sync = started(3, parts=3)
    sync.on(Ready(0))
    sync.on(Ready(1))
    assert sync.on(Ended(2)) == [Grant(0, 1, 0), Grant(1, 2, 0)]
    sync.on(pushed(Grant(0, 1, 0)))
    sync.on(Ended(0))
    sync.on(pushed(Grant(1, 2, 0)))
    sync.on(Ended(1))
    (short,) = sync.on(Drain())
    assert isinstance(short, Apply)
    assert ([part.grant for part in short.parts], sync.counts["short_steps"]) == ([1, 2], 1)


def test_a_whole_step_with_fewer_samples_is_short_too() -> None:
    sync = started(2, parts=2)
    grants = first_grants(sync, 2)
    sync.on(pushed(grants[0]))
    sync.on(pushed(grants[1], samples=3))
    assert sync.counts["short_steps"] == 1
    again = first_grants(sync, 2)
    for grant in again:
        sync.on(pushed(grant))
    assert sync.counts["short_steps"] == 1


def test_a_drain_waits_for_the_outstanding_and_resume_deals_to_who_asked() -> None:
    sync = started(2, parts=3)
    grants = first_grants(sync, 2)
    sync.on(pushed(grants[0]))
    assert sync.on(Drain()) == []
    assert sync.on(Ready(0)) == [Park(0)]
    (short,) = sync.on(pushed(grants[1]))
    assert isinstance(short, Apply)
    assert sync.on(Resume()) == []  # the step begins anew: worker 1 will ask
    assert sync.on(Ready(1)) == [Grant(0, 3, 1), Grant(1, 4, 1)]


def test_a_local_batch_that_does_not_divide_is_refused() -> None:
    facts = facts_of(workers=2, parts=2, local_batch=3)
    with pytest.raises(ConfigError, match=r"local_batch=3: sync .* take 2 or 4$"):
        Sync().start(facts)


def ahead_of(workers: int, parts: int) -> Synchronous:
    made = Sync(look_ahead=1).start(facts_of(workers=workers, parts=parts))
    assert isinstance(made, Synchronous)
    for worker in range(workers):
        made.on(Joined(worker))
    return made


def test_with_look_ahead_the_next_step_is_dealt_while_the_first_is_computed() -> None:
    sync = ahead_of(2, parts=2)
    assert sync.on(Ready(0)) == [Park(0)]
    assert sync.on(Ready(1)) == [Grant(0, 1, 0), Grant(1, 2, 0)]
    assert sync.on(Ready(0)) == [Park(0)]
    assert sync.on(Ready(1)) == [Grant(0, 3, 1), Grant(1, 4, 1)]
    sync.on(Ready(0))
    assert sync.on(Ready(1)) == [Park(1)]  # two steps are open


def test_a_step_ahead_is_dealt_as_a_whole_or_not_at_all() -> None:
    sync = ahead_of(2, parts=4)
    for _ in range(3):
        granted = [effect for worker in (0, 1) for effect in grants_of(sync.on(Ready(worker)))]
    assert granted == []  # two requests wait, and a step has four slices
    assert len(sync.grants.out) == 4
    sync.on(Ready(0))
    assert [(grant.worker, grant.token) for grant in grants_of(sync.on(Ready(1)))] == [(0, 1), (1, 1)] * 2


def test_a_drain_finishes_the_steps_that_were_dealt() -> None:
    sync = ahead_of(1, parts=1)
    sync.on(Ready(0))
    sync.on(Ready(0))
    assert sync.on(Drain()) == []
    assert [type(effect) for effect in sync.on(pushed(Grant(0, 1, 0)))] == [Apply]
    assert [type(effect) for effect in sync.on(pushed(Grant(0, 2, 1)))] == [Apply]
    assert sync.short_steps == 0


def test_a_push_of_the_step_ahead_may_arrive_first() -> None:
    """Trainers end a dense step among themselves, so one of them may be computing the next."""
    sync = ahead_of(2, parts=2)
    for worker in (0, 1, 0, 1):
        sync.on(Ready(worker))
    assert sync.on(pushed(Grant(0, 1, 0))) == []
    assert sync.on(pushed(Grant(0, 3, 1))) == []
    assert [effect.step for effect in sync.on(pushed(Grant(1, 2, 0))) if isinstance(effect, Apply)] == [0]
    assert [effect.step for effect in sync.on(pushed(Grant(1, 4, 1))) if isinstance(effect, Apply)] == [1]


def test_a_lost_slice_of_the_open_step_is_dealt_before_those_ahead() -> None:
    sync = ahead_of(2, parts=2)
    for worker in (0, 1, 0, 1):
        sync.on(Ready(worker))
    sync.on(pushed(Grant(0, 1, 0)))
    assert sync.on(Lost(1)) == [Drop(2, "lost"), Drop(4, "lost")]
    assert sync.on(Ready(0)) == [Grant(0, 5, 0)]
    assert sync.on(Ready(0)) == [Grant(0, 6, 1)]


def test_a_drain_gives_up_grants_ahead_of_a_step_without_a_batch() -> None:
    """Nobody would ever compute them."""
    sync = ahead_of(1, parts=1)
    assert sync.on(Ready(0)) == [Grant(0, 1, 0)]
    sync.on(Joined(1))
    sync.on(Ready(1))
    assert sync.on(Ended(0)) == [Grant(1, 2, 1)]
    assert sync.on(Drain()) == []
    assert sync.on(Lost(0)) == [Drop(1, "lost"), Drop(2, "rollback")]
    assert sync.dealt == {}


def test_look_ahead_changes_at_any_time() -> None:
    sync = started(1, parts=1)
    assert sync.on(Ready(0)) == [Grant(0, 1, 0)]
    assert sync.on(Ready(0)) == [Park(0)]
    assert sync.on(LookAhead(1)) == [Grant(0, 2, 1)]
    sync.on(Ready(0))
    sync.on(LookAhead(0))
    assert [type(effect) for effect in sync.on(pushed(Grant(0, 1, 0)))] == [Apply]  # and no grant
    assert [type(effect) for effect in sync.on(pushed(Grant(0, 2, 1)))] == [Apply, Grant]
