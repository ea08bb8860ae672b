"""Async and BulkSync: nobody waits; one gradient, or so many, make a step, of whatever version."""

import pytest

from hotrow.errors import ConfigError
from hotrow.modes import Async, BulkSync, Mode
from hotrow.modes.base import Apply, Discipline, Drain, Drop, Ended, Grant, Joined, Lost, Park, Ready, Resume
from hotrow.staleness import Cutoff, Inverse, Staleness
from unit.modes.tiny_cluster import facts_of, grants_of, pushed


def ask(discipline: Discipline, worker: int) -> Grant:
    (grant,) = grants_of(discipline.on(Ready(worker)))
    return grant


def applied(discipline: Discipline, grant: Grant, **push: int) -> Apply:
    (step,) = discipline.on(pushed(grant, **push))  # type: ignore[arg-type]
    assert isinstance(step, Apply)
    return step


@pytest.mark.parametrize("mode", [Async(), BulkSync(bulk=1)])
def test_every_gradient_is_a_step_and_the_token_is_the_step_at_the_grant(mode: Mode) -> None:
    made = mode.start(facts_of(workers=3, parts=3))
    slow, fast = ask(made, 0), ask(made, 1)
    assert (slow.token, fast.token) == (0, 0)
    for step in range(3):
        closed = applied(made, fast)
        assert (closed.group, closed.step, [part.weight for part in closed.parts]) == ("both", step, [1.0])
        fast = ask(made, 1)
        assert fast.token == step + 1
    late = applied(made, slow)
    assert (late.step, late.parts[0].token, late.parts[0].weight) == (3, 0, 1.0)


def test_a_policy_weighs_late_gradients_on_both_sides_of_its_bound() -> None:
    made = Async(staleness=Staleness(decay=Cutoff(tolerance=1))).start(facts_of(workers=3, parts=3))
    first, second, third = ask(made, 0), ask(made, 1), ask(made, 2)
    assert [applied(made, grant).parts[0].weight for grant in (first, second, third)] == [1.0, 1.0, 0.0]


def test_a_policy_for_rows_alone_leaves_dense_weights() -> None:
    late = Staleness(decay=Cutoff(tolerance=0), groups="embedding")
    made = Async(staleness=late).start(facts_of(workers=3, parts=3))
    first, second = ask(made, 0), ask(made, 1)
    assert [applied(made, grant).parts[0].weight for grant in (first, second)] == [1.0, 1.0]


def test_bulk_gradients_close_a_step_whoever_sent_them() -> None:
    made = BulkSync(bulk=3, staleness=Staleness(decay=Inverse())).start(facts_of(workers=2, parts=2))
    old = ask(made, 0)
    for _ in range(3):
        made.on(pushed(ask(made, 1)))
    for _ in range(3):
        made.on(pushed(ask(made, 1)))
    assert made.on(pushed(old)) == []
    assert made.on(pushed(ask(made, 1))) == []
    step = applied(made, ask(made, 1))
    assert (step.step, [part.weight for part in step.parts]) == (2, [0.5, 1.0, 1.0])
    assert made.counts["short_steps"] == 0


def test_joins_losses_and_ends_change_nothing_for_the_others() -> None:
    made = BulkSync(bulk=2).start(facts_of(workers=3, parts=3))
    assert made.on(Joined(0)) == []
    first, second = ask(made, 0), ask(made, 1)
    assert made.on(Ended(2)) == []
    assert made.on(Lost(0)) == [Drop(first.grant, "lost")]
    assert made.on(Lost(0)) == []
    assert made.on(pushed(second)) == []
    assert [part.grant for part in applied(made, ask(made, 2)).parts] == [2, 3]


def test_a_drain_closes_short_once_nothing_is_outstanding() -> None:
    made = BulkSync(bulk=3).start(facts_of(workers=3, parts=3))
    first, second = ask(made, 0), ask(made, 1)
    made.on(pushed(first))
    assert made.on(Drain()) == []
    assert made.on(Ready(0)) == [Park(0)]
    assert len(applied(made, second).parts) == 2
    assert made.counts["short_steps"] == 1
    assert made.on(Resume()) == [Grant(0, 3, token=1)]


def test_a_drain_with_nothing_outstanding_closes_at_once() -> None:
    made = BulkSync(bulk=3).start(facts_of(workers=3, parts=3))
    made.on(pushed(ask(made, 0)))
    (short,) = made.on(Drain())
    assert isinstance(short, Apply)
    assert made.on(Drain()) == []


@pytest.mark.parametrize("gone", [Lost(1), Ended(1)])
def test_who_leaves_during_a_drain_gets_nothing_at_the_resume(gone: Lost | Ended) -> None:
    made = Async().start(facts_of(workers=2, parts=2))
    made.on(Drain())
    made.on(Ready(1))
    made.on(Ready(0))
    made.on(gone)
    assert made.on(Resume()) == [Grant(0, 1, token=0)]


def test_a_step_with_fewer_samples_than_promised_is_short() -> None:
    made = Async().start(facts_of(workers=2, parts=2))
    applied(made, ask(made, 0), samples=4)
    assert made.counts["short_steps"] == 0
    applied(made, ask(made, 0), samples=3)
    assert made.counts["short_steps"] == 1


def test_any_local_batch_will_do_and_a_smaller_step_is_told() -> None:
    facts = facts_of(workers=2, parts=2, local_batch=3)
    for mode in (Async(), BulkSync(bulk=2)):
        mode.start(facts)
    assert Async().remarks(facts_of(workers=2, parts=1)) == []
    (told,) = Async().remarks(facts_of(workers=2, parts=2))
    assert "async applies 4 samples a step, the global batch is 8" in told
    assert BulkSync(bulk=2).remarks(facts_of(workers=2, parts=2)) == []


@pytest.mark.parametrize("bulk", [0, 1_000_001])
def test_bulk_has_bounds(bulk: int) -> None:
    with pytest.raises(ConfigError, match=f"bulk={bulk}"):
        BulkSync(bulk=bulk)
