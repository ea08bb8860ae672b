"""BoundedStaleness: nobody starts a batch more than the bound ahead of the slowest who is there."""

import pytest

from hotrow.errors import ConfigError
from hotrow.modes import BoundedStaleness
from hotrow.modes.base import Apply, Drain, Drop, Ended, Grant, Joined, Lost, Park, Ready, Resume
from hotrow.modes.bounded_staleness import Bounded
from hotrow.staleness import Cutoff, Staleness
from unit.modes.tiny_cluster import facts_of, grants_of, pushed


def started(bound: int, workers: int = 2, **spec: Staleness) -> Bounded:
    made = BoundedStaleness(bound=bound, **spec).start(facts_of(workers=workers, parts=workers))
    assert isinstance(made, Bounded)
    for worker in range(workers):
        made.on(Joined(worker))
    return made


def batch(bounded: Bounded, worker: int) -> None:
    """A batch from asking to pushing; it must not have to wait."""
    (grant,) = grants_of(bounded.on(Ready(worker)))
    bounded.on(pushed(grant))


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_the_bound_is_inclusive(bound: int) -> None:
    bounded = started(bound)
    for _ in range(bound + 1):
        batch(bounded, 0)  # the last of these starts exactly `bound` ahead
    assert bounded.on(Ready(0)) == [Park(0)]
    (slow,) = grants_of(bounded.on(Ready(1)))
    assert isinstance(bounded.on(pushed(slow))[1], Grant)  # the slowest is one further: so may worker 0


def test_gradients_are_applied_as_they_come() -> None:
    bounded = started(2, staleness=Staleness(decay=Cutoff(tolerance=0)))
    slow, fast = (grants_of(bounded.on(Ready(worker)))[0] for worker in range(2))
    (step,) = bounded.on(pushed(fast))
    assert isinstance(step, Apply)
    assert (step.group, step.step, step.parts[0].weight) == ("both", 0, 1.0)
    (late,) = bounded.on(pushed(slow))
    assert isinstance(late, Apply)
    assert (late.step, late.parts[0].token, late.parts[0].weight) == (1, 0, 0.0)


def test_a_newcomer_starts_level_with_the_slowest() -> None:
    bounded = started(1)
    for _ in range(5):
        batch(bounded, 0)
        batch(bounded, 1)
    bounded.on(Joined(2))
    assert len(grants_of(bounded.on(Ready(0)))) == 1  # nobody is held back to its first batch
    batch(bounded, 2)
    batch(bounded, 2)
    assert bounded.on(Ready(2)) == [Park(2)]  # and it is not ahead either


@pytest.mark.parametrize("gone", [Lost(1), Ended(1)])
def test_who_is_gone_holds_nobody_back(gone: Lost | Ended) -> None:
    bounded = started(0)
    batch(bounded, 0)
    assert bounded.on(Ready(0)) == [Park(0)]
    assert grants_of(bounded.on(gone)) == [Grant(0, 2, token=1)]


def test_a_lost_workers_batch_is_given_up_and_its_wish_forgotten() -> None:
    bounded = started(0)
    (granted,) = grants_of(bounded.on(Ready(0)))
    assert bounded.on(Lost(0)) == [Drop(granted.grant, "lost")]
    batch(bounded, 1)
    bounded.on(Joined(0))
    assert bounded.on(pushed(granted)) == []
    batch(bounded, 1)  # worker 0 came back level with it


def test_a_push_that_outlives_its_workers_stay_counts_and_moves_no_bound() -> None:
    bounded = started(0)
    (granted,) = grants_of(bounded.on(Ready(1)))
    bounded.on(Ended(1))
    assert isinstance(bounded.on(pushed(granted))[0], Apply)
    assert bounded.done == {0: 0}


def test_a_drain_parks_and_resume_goes_on() -> None:
    bounded = started(3)
    (granted,) = grants_of(bounded.on(Ready(0)))
    bounded.on(Drain())
    assert bounded.on(Ready(1)) == [Park(1)]
    (applied,) = bounded.on(pushed(granted))
    assert isinstance(applied, Apply)
    assert bounded.on(Resume()) == [Grant(1, 2, token=1)]


def test_a_batch_with_fewer_samples_is_a_short_step() -> None:
    bounded = started(3)
    batch(bounded, 0)
    assert bounded.counts["short_steps"] == 0
    (granted,) = grants_of(bounded.on(Ready(0)))
    bounded.on(pushed(granted, samples=3))
    assert bounded.counts["short_steps"] == 1


def test_a_bound_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="bound=-1"):
        BoundedStaleness(bound=-1)
