"""Batches of an evaluation go to the trainers that have read them, and no trainer waits for another one."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from hotrow.runtime.cluster.dealing import Dealing
from hotrow.types import RoleId

NAMES = [RoleId("trainer", number) for number in range(3)]


def test_a_trainer_takes_what_it_has_read_until_it_has_as_many_as_it_may() -> None:
    dealing = Dealing(NAMES, most_open=2)
    assert [dealing.deal(NAMES[1], 8) for _ in range(2)] == [(NAMES[1], 0), (NAMES[1], 1)]
    assert dealing.deal(NAMES[1], 8) == (NAMES[0], 2), "it has two"
    dealing.done(NAMES[1])
    assert dealing.deal(NAMES[1], 5) == (NAMES[1], 3)
    assert dealing.dealt(NAMES[1]) == [(0, 8), (1, 8), (3, 5)]


def test_batches_of_loaders_go_to_the_trainer_with_the_fewest() -> None:
    dealing = Dealing(NAMES, most_open=2)
    loader = RoleId("loader", 0)
    assert [dealing.deal(loader, 8) for _ in range(6)] == [(NAMES[number % 3], number) for number in range(6)]
    assert dealing.deal(loader, 8) is None
    dealing.done(NAMES[2])
    assert dealing.deal(loader, 8) == (NAMES[2], 6)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9))), st.randoms(use_true_random=False))
def test_every_batch_is_dealt_once_and_no_trainer_has_more_than_it_may(
    batches: list[tuple[int, int]], chance: Random
) -> None:
    dealing, open_at = Dealing(NAMES), dict.fromkeys(NAMES, 0)
    for holder, samples in batches:
        while (dealt := dealing.deal(RoleId("trainer", holder), samples)) is None:
            assert set(open_at.values()) == {2}
            ended = chance.choice(NAMES)
            dealing.done(ended)
            open_at[ended] -= 1
        open_at[dealt[0]] += 1
        assert open_at[dealt[0]] <= 2
    assert dealing.open == sum(open_at.values())
    found = sorted(each for name in NAMES for each in dealing.dealt(name))
    assert found == [(number, samples) for number, (_, samples) in enumerate(batches)]
