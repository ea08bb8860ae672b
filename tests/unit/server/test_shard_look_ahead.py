"""A shard with look-ahead: what it refuses, and that it keeps nothing of steps that are over."""

import numpy as np
import pytest

import hotrow as hr
from hotrow.errors import InputError
from hotrow.server.shard import Shard
from hotrow.transport.frames import RowBlock
from hotrow.transport.messages import ApplyOrder, OrderPart, PullRows, PushRows, RowBlockHeader

KEYS = np.arange(6, dtype=np.uint64)


@pytest.fixture
def shard() -> Shard:
    made = Shard({"t": hr.Table(dim=2, optimizer=hr.SGD(lr=1.0), init=hr.Constant(value=0.0))}, number=0, shards=1)
    made.policy(1, "batch", None, step=0, samples=0)
    return made


def pull(shard: Shard, step: int, keys: list[int], grant: int | None = None) -> list[RowBlock] | None:
    """The look-up of a grant, by default step + 1."""
    block = RowBlock("t", keys=np.array(keys, np.uint64), dim=2)
    head = RowBlockHeader("t", len(keys), 2, keys=True)
    wish = PullRows(0, 0, True, False, "fp32", (head,), step + 1 if grant is None else grant, step)
    _, pulled = shard.exchange(None, (), wish, [block])
    return None if pulled is None else pulled.blocks


def push(shard: Shard, step: int, keys: list[int]) -> None:
    head = RowBlockHeader("t", len(keys), 2, keys=True, values="fp32")
    block = RowBlock("t", keys=np.array(keys, np.uint64), values=np.ones((len(keys), 2), np.float32))
    shard.exchange(PushRows(step + 1, 0, step, step, 1, (head,)), [block], None, ())


def order(step: int, *, samples: int | None = None) -> ApplyOrder:
    return ApplyOrder(
        "both", step, step + 1 if samples is None else samples, 1.0, (OrderPart(step + 1, step, step, 1, 1.0),)
    )


def test_the_rest_follows_the_gradients_and_not_the_order(shard: Shard) -> None:
    pull(shard, 0, [0, 1, 2])
    shard.prepare(order(0))
    (early,) = pull(shard, 1, [2, 3, 0]) or []
    assert early.mask is not None
    assert early.mask.tolist() == [False, True, False]
    assert not shard.rest_is_here(2)
    push(shard, 0, [0, 1, 2])
    assert shard.rest_is_here(2)
    for _ in range(2):  # a lost reply is asked for again
        assert shard.rest_is_here(2)
        (rest,) = shard.rest(2)[0].blocks
    np.testing.assert_array_equal(rest.values, np.full((2, 2), -1.0))
    assert shard.tables.tiers["t"].versions(KEYS[:4]).tolist() == [2, 1, 2, 1]  # row 1 waits for the order
    shard.perform(2, [order(0)])
    assert shard.tables.tiers["t"].versions(KEYS[:4]).tolist() == [2, 2, 2, 1]


def test_a_row_that_a_later_look_up_of_the_step_made_is_not_in_the_rest() -> None:
    table = hr.Table(dim=2, optimizer=hr.SGD(lr=1.0), init=hr.Constant(value=0.5), admission=hr.AtLeast(count=3))
    shard = Shard({"t": table}, number=0, shards=1)
    shard.policy(1, "batch", None, step=0, samples=0)
    (unadmitted,) = pull(shard, 0, [7]) or []
    shard.prepare(order(0))
    pull(shard, 1, [7], grant=2)
    pull(shard, 1, [7], grant=3)  # the third time: it gets its row
    assert shard.tables.tiers["t"].versions(np.array([7], np.uint64)).tolist() == [1]
    push(shard, 0, [7])
    rest = shard.rest(2)[0].blocks[0].values
    assert rest is not None
    assert unadmitted.values is not None
    np.testing.assert_array_equal(rest, unadmitted.values)  # as in line


def test_a_look_up_ahead_of_an_unknown_step_waits(shard: Shard) -> None:
    assert pull(shard, 1, [0]) is None
    assert pull(shard, 0, [0]) is not None
    assert pull(shard, 1, [0]) is None  # who else trains step 0 is not known
    shard.prepare(order(0))
    assert pull(shard, 1, [0]) is not None


def test_an_order_that_is_not_as_it_was_prepared_is_refused_once_rows_are_updated(shard: Shard) -> None:
    pull(shard, 0, [0, 1])
    shard.prepare(order(0))
    pull(shard, 1, [0])
    push(shard, 0, [0, 1])
    shard.rest(2)
    with pytest.raises(InputError, match=r"step 0: was prepared as .* and is ordered as .* load the last checkpoint"):
        shard.perform(2, [order(0, samples=7)])


def test_an_order_that_was_prepared_and_not_begun_may_differ(shard: Shard) -> None:
    """As a step that a drain closes short: nothing of it was updated."""
    pull(shard, 0, [0, 1])
    shard.prepare(order(0))
    push(shard, 0, [0, 1])
    assert shard.perform(2, [order(0, samples=7)]).refused == 0


def test_a_step_is_prepared_one_ahead_at_most(shard: Shard) -> None:
    shard.prepare(order(1))
    with pytest.raises(InputError, match="step=2: is prepared, and step 0 is open"):
        shard.prepare(order(2))


def test_nothing_is_kept_of_steps_that_are_over(shard: Shard) -> None:
    for step in range(50):
        pull(shard, step, [step % 6])
        shard.prepare(order(step))
        if step % 2:
            pull(shard, step + 1, [0])  # and nobody asks for the rest
        push(shard, step, [step % 6])
        shard.perform(step + 2, [order(step)])
    ahead = shard.look_ahead
    assert len(ahead._reads) <= 2
    assert len(ahead._orders) == 0
    assert len(ahead._window._steps) <= 2
    shard.prepare(order(3))  # late
    assert len(ahead._orders) == 0
