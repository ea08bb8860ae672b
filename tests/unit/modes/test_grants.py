"""Grants that were given up are remembered, and not for ever."""

import pytest

from hotrow.modes import base
from hotrow.modes.base import Drop, Grants, Pushed


def push(grant: int, group: base.Group = "both") -> Pushed:
    return Pushed(group, 0, grant, 0, 0, 4)


def given_up(grants: Grants, count: int) -> None:
    for _ in range(count):
        given = grants.give(7, token=0)
        assert grants.lose(7) == [Drop(given.grant, "lost")]


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Grants:
    """Remembers no more than three."""
    monkeypatch.setattr(base, "REMEMBERED", 3)
    return Grants()


def test_losses_are_remembered_up_to_a_number_and_the_oldest_go(three: Grants) -> None:
    given_up(three, 3)
    assert (list(three.lost), three.forgotten) == ([1, 2, 3], 0)
    given_up(three, 5)
    assert (list(three.lost), three.forgotten) == ([6, 7, 8], 5)


def test_what_arrives_under_a_forgotten_loss_counts_as_late_and_not_twice(three: Grants) -> None:
    given_up(three, 4)
    assert not three.take(push(1))
    assert (three.after_loss, three.duplicates) == (1, 0)


def test_a_second_copy_is_told_apart_as_long_as_losses_are_remembered(three: Grants) -> None:
    given_up(three, 3)
    fourth = three.give(0, token=0)
    assert three.take(push(fourth.grant))
    for grant in (fourth.grant, 2, 2):
        assert not three.take(push(grant))
    assert (three.after_loss, three.duplicates) == (1, 2)  # grant 2 was late once, then a copy


def test_a_copy_of_what_counted_is_one_unless_a_later_loss_is_forgotten(three: Grants) -> None:
    first = three.give(0, token=0)
    assert three.take(push(first.grant))
    given_up(three, 3)
    assert not three.take(push(first.grant))
    assert (three.after_loss, three.duplicates) == (0, 1)
    given_up(three, 1)
    assert not three.take(push(first.grant))
    assert (three.after_loss, three.duplicates) == (1, 1)


def test_each_half_of_a_batch_is_late_once() -> None:
    grants = Grants(groups=("embedding", "dense"))
    given = grants.give(7, token=0)
    grants.lose(7)
    for group in ("dense", "dense", "embedding", "embedding"):
        assert not grants.take(push(given.grant, group))
    assert (grants.after_loss, grants.duplicates, grants.lost) == (2, 2, {})


def test_a_worker_holds_what_is_out() -> None:
    grants = Grants()
    given = grants.give(7, token=0)
    assert (grants.holds(7), grants.holds(6)) == (True, False)
    grants.take(push(given.grant))
    assert not grants.holds(7)
