"""Hybrid: rows on arrival, dense in step, several batches in flight, and no deadlock when hands are full."""

import pytest

from hotrow.errors import ConfigError
from hotrow.modes import Hybrid
from hotrow.modes.base import (
    Apply,
    Drain,
    Drop,
    Effect,
    Ended,
    Grant,
    Joined,
    Lost,
    Park,
    Pushed,
    Ready,
    Resume,
    RunFacts,
)
from hotrow.modes.hybrid import DenseInStep
from hotrow.staleness import Inverse, Staleness
from unit.modes.tiny_cluster import cluster_of, facts_of, grants_of, pushed


def started(workers: int, parts: int, **spec: object) -> DenseInStep:
    made = Hybrid(**spec).start(facts_of(workers=workers, parts=parts))
    assert isinstance(made, DenseInStep)
    for worker in range(workers):
        made.on(Joined(worker))
    return made


def ask(hybrid: DenseInStep, *workers: int) -> list[Grant]:
    return [grant for worker in workers for grant in grants_of(hybrid.on(Ready(worker)))]


def finish(hybrid: DenseInStep, grant: Grant) -> list[Effect]:
    """Both pushes of a batch; the effects of the second."""
    (rows,) = hybrid.on(pushed(grant, group="embedding"))
    assert isinstance(rows, Apply)
    assert rows.group == "embedding"
    return hybrid.on(pushed(grant, group="dense"))


def test_rows_are_applied_as_they_come_as_a_share_of_the_global_batch() -> None:
    hybrid = started(2, parts=2)
    first, second = ask(hybrid, 0, 1)
    (rows,) = hybrid.on(pushed(second, group="embedding"))
    assert isinstance(rows, Apply)
    assert (rows.group, rows.step, rows.parts[0].weight) == ("embedding", 0, 0.5)
    (short,) = hybrid.on(pushed(first, group="embedding", samples=3))
    assert isinstance(short, Apply)
    assert short.parts[0].weight == 3 / 8
    assert hybrid.step == 0  # steps are dense ones


def test_or_as_they_are() -> None:
    hybrid = started(2, parts=2, scale="local")
    (granted,) = ask(hybrid, 0)
    (rows,) = hybrid.on(pushed(granted, group="embedding", samples=3))
    assert isinstance(rows, Apply)
    assert rows.parts[0].weight == 1.0


def test_dense_gradients_wait_for_the_whole_step() -> None:
    hybrid = started(2, parts=2, max_in_flight=1)
    first, second = ask(hybrid, 0, 1)
    assert finish(hybrid, second) == []
    (step,) = finish(hybrid, first)
    assert isinstance(step, Apply)
    assert (step.group, step.step) == ("dense", 0)
    assert [(part.grant, part.weight) for part in step.parts] == [(1, 1.0), (2, 1.0)]
    assert hybrid.step == 1


def test_tokens_are_the_steps_that_batches_are_meant_for() -> None:
    hybrid = started(2, parts=2, max_in_flight=3)
    grants = ask(hybrid, 0, 1, 0, 1, 0, 1)
    assert [(grant.worker, grant.token) for grant in grants] == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)]
    assert hybrid.on(Ready(0)) == [Park(0)]  # its hands are full


def test_a_step_is_dealt_evenly_to_those_who_are_there() -> None:
    hybrid = started(2, parts=4, max_in_flight=4)
    assert len(ask(hybrid, 0, 0)) == 2
    assert hybrid.on(Ready(0)) == [Park(0)]  # its share of the step: the rest is worker 1's
    assert ask(hybrid, 1) == [Grant(1, 3, token=0)]
    assert ask(hybrid, 1) == [Grant(1, 4, token=0), Grant(0, 5, token=1)]  # the step is full, so the next one opens


def test_the_end_of_one_workers_data_leaves_its_share_to_the_others() -> None:
    hybrid = started(2, parts=2, max_in_flight=2)
    assert len(ask(hybrid, 0)) == 1
    assert hybrid.on(Ready(0)) == [Park(0)]
    assert hybrid.on(Ended(1)) == [Grant(0, 2, token=0)]


def test_a_newcomer_takes_places_that_are_free() -> None:
    hybrid = started(1, parts=3, max_in_flight=1)
    ask(hybrid, 0)
    hybrid.on(Joined(1))
    assert ask(hybrid, 1) == [Grant(1, 2, token=0)]


def test_a_lost_place_is_dealt_again_first() -> None:
    hybrid = started(3, parts=3, max_in_flight=2)
    ask(hybrid, 0, 1, 2)
    assert hybrid.on(Lost(2)) == [Drop(3, "lost")]
    assert ask(hybrid, 0) == [Grant(0, 4, token=0)]
    assert ask(hybrid, 1) == [Grant(1, 5, token=1)]


def test_a_loss_when_all_hands_are_full_gives_the_place_unasked() -> None:
    hybrid = started(3, parts=3, max_in_flight=2)
    grants = ask(hybrid, 0, 1, 2, 0, 1, 2)  # steps 0 and 1 are dealt
    effects = hybrid.on(Lost(2))
    assert effects == [Drop(3, "lost"), Drop(6, "lost"), Grant(0, 7, token=0)]
    finish(hybrid, grants[0])
    finish(hybrid, grants[1])
    (step,) = finish(hybrid, Grant(0, 7, 0))[:1]
    assert isinstance(step, Apply)
    assert [part.grant for part in step.parts] == [1, 2, 7]


def test_the_next_step_that_lacks_a_place_gets_it_when_it_runs() -> None:
    hybrid = started(3, parts=3, max_in_flight=3)
    grants = ask(hybrid, 0, 1, 2, 0, 1, 2, 0, 1)  # step 2 lacks one
    for grant in grants[:2]:
        finish(hybrid, grant)
    assert finish(hybrid, grants[2])[1:] == []  # all is well
    assert hybrid.on(Lost(2)) == [Drop(6, "lost"), Grant(0, 9, token=1)]


def test_a_place_behind_the_front_goes_to_who_waits_before_anybody_unasked() -> None:
    hybrid = started(3, parts=2, max_in_flight=2)
    assert len(ask(hybrid, 0, 1, 0, 2, 1)) == 5  # steps 0 and 1 are dealt, one place of step 2
    hybrid.on(Lost(2))  # held one of step 1
    finish(hybrid, Grant(0, 1, 0))
    assert hybrid.on(Ready(0)) == [Park(0)]  # it has its share of step 1: worker 1 could take the other
    effects = finish(hybrid, Grant(1, 2, 0))
    assert isinstance(effects[0], Apply)
    assert effects[1:] == [Grant(0, 6, token=1)]  # the data of that place were reserved for its wish
    assert hybrid.waiting == []


def test_also_before_somebody_who_holds_no_more() -> None:
    hybrid = started(3, parts=2, max_in_flight=2)
    ask(hybrid, 0, 0, 2, 2)
    hybrid.on(pushed(Grant(2, 2, 0), group="embedding"))
    ask(hybrid, 1)
    hybrid.on(pushed(Grant(2, 2, 0), group="dense"))
    assert hybrid.on(Lost(0)) == [Drop(1, "lost"), Drop(3, "lost"), Grant(1, 6, token=0)]  # two sets of data are back
    assert hybrid.on(Ready(2)) == [Park(2)]  # and one is reserved again
    closed, granted = finish(hybrid, Grant(1, 6, 0))
    assert isinstance(closed, Apply)
    assert granted == Grant(2, 7, token=1)


def test_when_all_are_lost_the_first_to_come_back_is_asked_to_do_no_more_than_it_wants() -> None:
    hybrid = started(2, parts=2, max_in_flight=2)
    ask(hybrid, 0, 1, 0, 1)
    hybrid.on(Lost(0))
    hybrid.on(Lost(1))
    assert hybrid.on(Joined(0)) == []
    assert ask(hybrid, 0) == [Grant(0, 6, token=0)]  # one went to worker 1 in between


def test_a_loss_between_the_pushes_of_a_batch_gives_it_up() -> None:
    hybrid = started(2, parts=2, max_in_flight=1)
    first, _ = ask(hybrid, 0, 1)
    hybrid.on(pushed(first, group="embedding"))
    assert hybrid.on(Lost(0)) == [Drop(1, "lost")]
    assert hybrid.counts["rows_applied_twice"] == 1  # its data come again
    assert hybrid.on(pushed(first, group="dense")) == []
    assert hybrid.counts["pushes_after_loss"] == 1
    assert hybrid.on(pushed(first, group="embedding")) == []
    assert hybrid.counts["duplicate_pushes"] == 1


def test_a_drain_closes_all_that_is_dealt_and_the_last_short() -> None:
    hybrid = started(2, parts=2, max_in_flight=2)
    grants = ask(hybrid, 0, 1, 0)
    hybrid.on(Drain())
    assert hybrid.on(Ready(1)) == [Park(1)]
    finish(hybrid, grants[0])
    (whole,) = finish(hybrid, grants[1])
    (short,) = finish(hybrid, grants[2])
    assert isinstance(whole, Apply)
    assert isinstance(short, Apply)
    assert (len(whole.parts), len(short.parts), short.step) == (2, 1, 1)
    assert hybrid.counts["short_steps"] == 1
    assert hybrid.on(Resume()) == [Grant(1, 4, token=2)]


def test_a_drain_passes_over_a_step_whose_places_were_all_lost() -> None:
    hybrid = started(2, parts=1, max_in_flight=1)
    ask(hybrid, 0)
    (ahead,) = ask(hybrid, 1)
    assert ahead.token == 1
    hybrid.on(Drain())
    effects = hybrid.on(Lost(0))
    assert effects == [Drop(1, "lost"), Apply("dense", 0, ())]  # or worker 1 would wait for step 0 for ever
    assert hybrid.step == 1
    assert isinstance(finish(hybrid, ahead)[0], Apply)


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_nobody_ever_waits_with_all_hands_full_after_losses(in_flight: int) -> None:
    cluster = cluster_of(Hybrid(max_in_flight=in_flight), workers=4, parts=4, batches=60)
    for worker in range(4):
        cluster.join(worker)
    for lost in (3, 1, 0, 2, 3, 0):
        for _ in range(in_flight):
            for worker in range(4):
                cluster.ask(worker)
        cluster.push(2)
        cluster.lose(lost)
        for _ in range(30):
            for worker in range(4):
                cluster.push(worker)
        cluster.join(lost)
    cluster.finish()
    assert all(len(step.parts) == 4 for step in cluster.steps)


def test_dense_gradients_are_never_late_so_no_policy_weighs_them() -> None:
    policy = Staleness(decay=Inverse(), groups="embedding")
    assert Hybrid(staleness=policy).late == policy
    for wrong in (Staleness(decay=Inverse(), groups="dense"), Staleness(decay=Inverse(), movement=1.0)):
        with pytest.raises(ConfigError, match="never late"):
            Hybrid(staleness=wrong)


@pytest.mark.parametrize("in_flight", [0, 1_001])
def test_how_many_in_flight_has_bounds(in_flight: int) -> None:
    with pytest.raises(ConfigError, match=f"max_in_flight={in_flight}"):
        Hybrid(max_in_flight=in_flight)


def test_half_a_push_of_a_lost_worker_is_counted_whichever_half_it_is() -> None:
    hybrid = Hybrid().start(RunFacts(workers=2, local_batch=4, global_batch=8))
    first, second = (hybrid.on(Ready(worker))[0] for worker in (0, 1))
    assert isinstance(first, Grant)
    assert isinstance(second, Grant)
    hybrid.on(Pushed("dense", 0, first.grant, 0, 0, 4))
    hybrid.on(Pushed("embedding", 1, second.grant, 0, 0, 4))
    assert Drop(first.grant, "lost") not in hybrid.on(Lost(0))  # its dense gradient is in, and counts
    assert Drop(second.grant, "lost") in hybrid.on(Lost(1))  # its data come again
    assert (hybrid.counts["rows_never_pushed"], hybrid.counts["rows_applied_twice"]) == (1, 1)
