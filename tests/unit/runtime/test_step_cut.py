"""A step that a loss has cut: which trainers have the state, whether the step counts, and what is lost."""

import pytest

from hotrow.errors import HotrowError
from hotrow.runtime.losses import SavedRows
from hotrow.runtime.step_cut import decide_cut, decide_cut_without_trainers
from hotrow.types import RoleId

A, B = RoleId("trainer", 0), RoleId("trainer", 1)


@pytest.mark.parametrize(
    ("reached", "begun", "sources", "closes", "dense_steps_lost"),
    [
        ({A: 7, B: 7}, False, (A, B), 0, 0),  # nobody has ended the open step: it is dealt again
        ({A: 8, B: 7}, False, (A,), 1, 0),  # one has: its state counts, and so do the rows of the step
        ({A: 7, B: 8}, False, (B,), 1, 0),
        ({A: 7, B: 6}, False, (A,), 0, 0),  # one failed in the step before, which the other has ended
        ({A: 6, B: 6}, False, (A, B), 0, 1),  # all failed in the step before: its rows are updated
        ({A: 7, B: 7}, True, (A, B), 1, 1),  # a shard has begun to update rows: that cannot be undone
        ({A: 8, B: 7}, True, (A,), 1, 0),
    ],
)
def test_the_furthest_state_counts_and_what_it_lacks_is_counted(
    reached: dict[RoleId, int], begun: bool, sources: tuple[RoleId, ...], closes: int, dense_steps_lost: int
) -> None:
    found = decide_cut(7, reached, begun=begun)
    assert (found.sources, found.closes, found.dense_steps_lost) == (sources, closes, dense_steps_lost)
    assert {*found.sources, *found.behind} == {A, B}


@pytest.mark.parametrize("reached", [5, 9])
def test_trainers_that_are_two_steps_away_are_a_fault(reached: int) -> None:
    with pytest.raises(HotrowError, match=f"trainers are at step {reached}, and step 7 is open"):
        decide_cut(7, {A: reached}, begun=False)


@pytest.mark.parametrize(
    ("saved", "begun", "lost"),
    [(7, False, 0), (6, False, 1), (7, True, 1), (0, False, 7), (0, True, 8), (8, False, 0)],
)
def test_without_trainers_the_steps_since_the_checkpoint_are_lost(saved: int, begun: bool, lost: int) -> None:
    checkpoint = SavedRows("runs/x/checkpoint", saved)
    found = decide_cut_without_trainers(7, checkpoint, begun=begun)
    assert (found.sources, found.restored) == ((), checkpoint)
    assert (found.closes, found.dense_steps_lost) == (begun, lost)


@pytest.mark.parametrize("begun", [False, True])
def test_steps_that_trainers_ended_before_the_driver_heard_of_them_all_count(begun: bool) -> None:
    """In Hybrid a reply waits for shards that are slow, and the next steps do not."""
    found = decide_cut(7, {A: 10, B: 9}, begun=begun, ahead=3)
    assert (found.sources, found.closes, found.dense_steps_lost) == ((A,), 3, 0)
    with pytest.raises(HotrowError, match="trainers are at step 11, and step 7 is open"):
        decide_cut(7, {A: 11}, begun=begun, ahead=3)
