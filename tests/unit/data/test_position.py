"""A position knows exactly which batches are done, as JSON and back, and refuses what cannot be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotrow.data.position import Mark, Position
from hotrow.errors import ConfigError, InputError


def started(**changes: int) -> Position:
    return Position(**{"batch": 8, "shuffle": 100, "seed": 3, **changes})


@given(st.lists(st.integers(0, 30), unique=True))
def test_done_batches_are_those_that_were_done_in_whatever_order(order: list[int]) -> None:
    position = started()
    for index in order:
        position = position.with_done(0, index, samples=8)
    mark = position.mark(0)
    assert {index for index in range(40) if position.is_done(0, index)} == set(order)
    assert mark.below not in mark.above  # what can be said by "all below" is
    assert position.samples == 8 * len(order)
    assert Position.of(json.loads(json.dumps(position.document()))) == position


def test_an_epoch_is_over_once_its_end_is_known_and_all_is_done() -> None:
    known_first = started().with_end(0, 2).with_done(0, 0, 8)
    assert known_first.epoch == 0
    assert known_first.with_done(0, 1, 3).epoch == 1
    done_first = started().with_done(0, 1, 3).with_done(0, 0, 8)
    assert done_first.epoch == 0
    assert done_first.with_end(0, 2).epoch == 1
    assert started().with_end(0, 0).epoch == 1


def test_the_end_of_an_epoch_that_is_over_changes_nothing() -> None:
    over = started().with_done(0, 0, 8).with_end(0, 1)
    assert over.with_end(0, 1) == over


def test_a_later_epoch_may_run_ahead_and_does_not_end_the_one_before() -> None:
    position = started().with_end(0, 3).with_done(0, 0, 8).with_done(1, 0, 8).with_end(1, 1)
    assert (position.epoch, len(position.marks)) == (0, 2)
    assert position.is_done(1, 0)
    assert not position.is_done(0, 2)
    position = position.with_done(0, 2, 1).with_done(0, 1, 8)
    assert (position.epoch, position.marks) == (2, ())
    assert position.is_done(0, 2)
    assert position.is_done(1, 0)


def test_a_batch_is_done_once() -> None:
    position = started().with_done(0, 4, 8)
    with pytest.raises(InputError, match="batch 4 of epoch 0: is done already"):
        position.with_done(0, 4, 8)
    with pytest.raises(InputError, match="batch -1 of epoch 0: there is no such batch"):
        position.with_done(0, -1, 8)
    with pytest.raises(InputError, match="epoch=0: is over"):
        started(epoch=1).mark(0)


def test_lease_numbers_only_rise() -> None:
    assert started().with_lease().with_lease().leases == 2


NONSENSE = {
    "no batch": ({}, "batch is missing"),
    "a batch of nothing": ({"batch": 0}, "batch=0"),
    "a truth for a number": ({"batch": True}, "batch=True"),
    "an unknown field": ({"batch": 8, "speed": 2}, "speed=2: there is no such setting"),
    "a negative epoch": ({"batch": 8, "epoch": -1}, "epoch=-1"),
    "an order that falls": ({"batch": 8, "marks": [{"below": 1, "above": [5, 3]}]}, "must rise"),
    "done twice": ({"batch": 8, "marks": [{"above": [5, 5]}]}, "must rise"),
    "all below not told": ({"batch": 8, "marks": [{"below": 5, "above": [5]}]}, "must rise"),
    "more than there are": ({"batch": 8, "marks": [{"below": 5, "batches": 4}]}, "batches=4 is fewer than are done"),
    "beyond the end": ({"batch": 8, "marks": [{"below": 1, "above": [4], "batches": 4}]}, "batches=4 is fewer"),
}


@pytest.mark.parametrize(("document", "sentence"), NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_with_a_sentence(document: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Position.of(document)


def test_what_is_no_document_is_refused() -> None:
    with pytest.raises(InputError, match="position is a list"):
        Position.of([1, 2])  # type: ignore[arg-type]


def test_a_mark_that_is_just_full_is_allowed() -> None:
    assert Mark(below=4, batches=4).is_over
    assert not Mark(below=1, above=(3,), batches=4).is_over


@pytest.mark.parametrize(("name", "value"), [("batch", 9), ("shuffle", 0), ("seed", 4), ("drop_last", True)])
def test_a_resume_with_other_settings_is_refused(name: str, value: int) -> None:
    same = {"batch": 8, "shuffle": 100, "seed": 3, "drop_last": False}
    started().check_same(**same)
    with pytest.raises(ConfigError, match=f"{name}={value}: the position .* was made with {name}={same[name]}"):
        started().check_same(**{**same, name: value})


def test_without_a_window_the_seed_does_not_matter() -> None:
    started(shuffle=0).check_same(batch=8, shuffle=0, seed=99, drop_last=False)
