"""A shard without room makes its peers wait and lets nothing stand still; what can never have room is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from hotrow.errors import ConfigError, InputError
from hotrow.server.dense_service import DenseService
from hotrow.server.dense_shard import DenseShard
from hotrow.server.pushes import OVERHEAD, PushBuffer
from hotrow.server.shard import Shard
from hotrow.transport.errors import Busy
from hotrow.transport.messages import Done, Exchange, Exchanged, OrderResult, Perform, Policy, PushDense, Taken
from unit.server.asked_shard import PATIENCE_S, TABLES, Asked, exchange, pull_of, push_of, rows_in, serving, step_of
from unit.transport.parts import until

ONE = OVERHEAD + 8 + 24  # a push of one id of the first table


def parked(most: int, needed: int = 1) -> PushBuffer[bytes]:
    made: PushBuffer[bytes] = PushBuffer(most, len)
    made.needed = needed
    return made


def fill(room: PushBuffer[bytes], *pushes: tuple[int, int]) -> None:
    for grant, size in pushes:
        room.park(grant, bytes(size))


def test_the_bound_is_inclusive_and_room_comes_back() -> None:
    room = parked(10)
    fill(room, (1, 6), (2, 4))
    with pytest.raises(Busy, match="2 pushes of 10 bytes wait, and 1 more would pass the bound of 10"):
        room.park(3, bytes(1))
    assert room.take(1) == bytes(6)
    fill(room, (3, 6))
    assert (room.nbytes, len(room), room.above) == (10, 2, 0)


def test_a_push_that_can_never_fit_is_refused_and_one_that_just_fits_is_not() -> None:
    fill(parked(10), (1, 10))
    with pytest.raises(InputError, match=r"parked_bytes=10 has to hold a step: raise it, take more shards") as refused:
        fill(parked(10), (1, 11))
    assert "1 of them are 11 bytes" in str(refused.value)


def test_a_step_that_can_never_fit_is_refused_and_one_that_just_fits_is_not() -> None:
    fill(parked(10, needed=3), (1, 4), (2, 4), (3, 2))
    with pytest.raises(InputError, match=r"a step takes 3 pushes, and 3 of them are 11 bytes here"):
        fill(parked(10, needed=3), (1, 4), (2, 4), (3, 3))
    room = parked(10, needed=3)
    fill(room, (1, 4), (2, 3), (3, 3))
    with pytest.raises(Busy):  # the step is whole: the order that takes it is on its way
        room.park(4, bytes(1))


@pytest.mark.parametrize(("needed", "busy"), [(1, 4), (2, 5)])
def test_the_oldest_pushes_of_a_step_are_taken_above_the_bound_and_no_more(needed: int, busy: int) -> None:
    """On another server they may be in and younger ones out: each of the two would wait for the other."""
    room = parked(10, needed)
    fill(room, (8, 5), (9, 5))
    for grant in range(3, busy):
        room.park(grant, bytes(5))
    assert (room.above, room.nbytes) == (needed, 10 + 5 * needed)
    with pytest.raises(Busy):
        room.park(busy, bytes(5))


def test_two_servers_that_filled_with_different_pushes_do_not_wait_for_each_other() -> None:
    """Each of four grants pushes to both; a step takes one push that is on both."""
    servers = parked(10), parked(10)
    fill(servers[0], (1, 5), (2, 5))
    fill(servers[1], (3, 5), (4, 5))
    missing = {(grant, place) for grant in (1, 2) for place in (1,)} | {(grant, 0) for grant in (3, 4)}
    applied: list[int] = []
    for _ in range(20):
        for grant, place in sorted(missing):
            try:
                servers[place].park(grant, bytes(5))
            except Busy:
                continue
            missing.remove((grant, place))
        whole = [grant for grant in (1, 2, 3, 4) if grant not in applied and not {(grant, 0), (grant, 1)} & missing]
        for grant in whole[:1]:
            applied.append(grant)
            for server in servers:
                server.take(grant)
    assert applied == [1, 2, 3, 4]


def push_now(asked: Asked, grant: int) -> object:
    return exchange(asked, push_of(grant, [1])).result(PATIENCE_S).message


def test_a_push_without_room_waits_until_an_order_makes_some() -> None:
    with serving(Shard(TABLES, number=0, shards=1, parked_bytes=2 * ONE)) as asked:
        [before] = rows_in(exchange(asked, None, pull_of([1])))
        for grant in (1, 2):
            push_now(asked, grant)
        waiting = exchange(asked, push_of(3, [1]))
        until(lambda: asked.wire.counts.busy >= 2)
        assert not waiting.done()
        assert (len(asked.shard.parked), asked.shard.figures()["parked_above"]) == (2, 0)
        assert asked.answer(Perform(1, 1, (step_of(1),))) == OrderResult(
            1, lateness=((0, 1),)
        )  # orders find room always
        assert waiting.result(PATIENCE_S).message == Exchanged(1, Taken())
        asked.answer(Perform(1, 2, (step_of(2, step=1), step_of(3, step=2))))
        [after] = rows_in(exchange(asked, None, pull_of([1])))
        np.testing.assert_allclose(before - after, 1.5, atol=1e-6)  # each once
        assert (asked.server.counts.busy, asked.server.counts.faults) == (asked.wire.counts.busy, 0)
        assert (asked.shard.counts["pushes"], asked.shard.counts["again"]) == (3, 0)


def test_a_push_that_is_larger_than_the_bound_gets_a_sentence() -> None:
    with serving(Shard(TABLES, number=0, shards=1, parked_bytes=ONE)) as asked:
        large, frames = push_of(1, [1, 2])
        fault = asked.fault(Exchange(1, large), frames)
        assert fault.kind == "input"
        assert f"parked_bytes={ONE:,} has to hold a step: raise it, take more shards" in fault.sentence
        assert isinstance(push_now(asked, 2), Exchanged)


def test_how_many_pushes_a_step_takes_comes_with_the_policy() -> None:
    with serving(Shard(TABLES, number=0, shards=1, parked_bytes=2 * ONE)) as asked:
        asked.answer(Policy(1, 1, "batch", pushes=3))
        for grant in (1, 2):
            push_now(asked, grant)
        third, frames = push_of(3, [1])
        assert "a step takes 3 pushes" in asked.fault(Exchange(1, third), frames).sentence


def test_no_more_wait_than_may_and_who_has_to_come_again_leaves_his_push() -> None:
    """Or all that wait would wait for a push that waits behind them."""
    with serving(waiting_most=1) as asked:
        first = exchange(asked, None, pull_of([1], after=1))
        second = exchange(asked, push_of(1, [1]), pull_of([1], after=1))
        until(lambda: asked.wire.counts.busy >= 2)
        assert len(asked.shard.parked) == 1
        ahead = asked.ask(Perform(1, 2, ()))  # an order waits in addition
        asked.answer(Exchange(0))
        assert not ahead.done()
        [before] = rows_in(exchange(asked, None, pull_of([1])))
        asked.answer(Perform(1, 1, (step_of(1),)))
        for waited in (first, second):
            np.testing.assert_allclose(before - rows_in(waited)[0], 0.5, atol=1e-6)
        assert ahead.result(PATIENCE_S).message == OrderResult(2)
        assert asked.shard.counts["pushes"] == 1


def dense_piece(most: int) -> DenseShard:
    model = nn.Linear(4, 1, bias=False)
    return DenseShard(model, torch.optim.SGD(model.parameters(), lr=1.0), [0], buffers=False, parked_bytes=most)


def test_dense_pushes_have_a_bound_of_their_own() -> None:
    size = OVERHEAD + 16
    piece = dense_piece(2 * size)
    before = piece.parameters[0].detach().clone()
    with serving(dense=DenseService(piece)) as asked:
        asked.answer(Policy(1, 1, "batch", dense=True))
        frames = [np.ones(4, np.float32)]

        def push(grant: int) -> PushDense:
            return PushDense(grant, 0, 0, 0, 4, (True,))

        for grant in (1, 2):
            assert asked.answer(push(grant), frames) == Done()
        third = asked.ask(push(3), frames)
        until(lambda: asked.wire.counts.busy >= 2)
        assert (piece.parked.nbytes, len(piece.parked)) == (2 * size, 2)
        asked.answer(Perform(1, 2, (step_of(1),)))
        assert third.result(PATIENCE_S).message == Done()
        asked.answer(Perform(1, 3, (step_of(2, step=1),), discards=(3,)))
        assert (piece.parked.nbytes, len(piece.parked)) == (0, 0)
        torch.testing.assert_close(before - piece.parameters[0].detach(), torch.full((1, 4), 2.0))
    with serving(dense=DenseService(dense_piece(size - 1))) as asked:
        assert f"parked_bytes={size - 1:,} has to hold a step" in asked.fault(push(1), frames).sentence


def test_a_bound_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="parked_bytes=0"):
        dense_piece(0)
