"""What a cluster is told after an event, and who computes a batch: without sockets."""

import pytest

from hotrow.modes import GBA, Async, Hybrid, KStep, Mode, Sync
from hotrow.modes.base import Apply, GradientPart, Group, RunFacts
from hotrow.runtime.cluster.executor import rank_for, shares_of
from hotrow.runtime.cluster.order_plan import OrderPlan, WeightReplies
from hotrow.staleness import Cutoff, Staleness
from hotrow.transport.messages import CloseStep, PartWeights, Settle

FACTS = RunFacts(workers=2, local_batch=8, global_batch=16)


def effect(group: Group, step: int, *grants: int) -> Apply:
    return Apply(group, step, tuple(GradientPart(grant, step, step, 8, 1.0) for grant in grants))


def plan(mode: Mode) -> OrderPlan:
    return OrderPlan(mode, FACTS)


def test_a_step_with_all_its_batches_needs_no_message_to_trainers() -> None:
    made = plan(Sync())
    made.apply(effect("both", 4, 1, 2), 16, 0.5)
    planned = made.take()
    assert [each.step for each in planned.applies] == [4]
    assert planned.to_trainers == ()


@pytest.mark.parametrize(("mode", "closes"), [(Sync(), True), (GBA(), False)], ids=["sync", "gba"])
def test_a_short_step_is_closed_where_ranks_wait_for_each_other(mode: Mode, closes: bool) -> None:
    made = plan(mode)
    made.apply(effect("both", 4, 1), 8, 0.5)
    assert made.take().to_trainers == ((CloseStep(4, 0.5),) if closes else ())


def test_rows_that_shards_apply_on_arrival_are_in_no_order() -> None:
    made = plan(Hybrid())
    made.apply(effect("embedding", 4, 1), 8, 1.0)
    assert made.take().applies == ()


@pytest.mark.parametrize(("mode", "asks"), [(Hybrid(), True), (Sync(), False)], ids=["hybrid", "sync"])
def test_shards_look_for_rows_of_batches_without_an_answer_where_no_order_names_them(mode: Mode, asks: bool) -> None:
    made = plan(mode)
    made.expect(7)
    assert made.empty != asks
    assert made.take().expected == ((7,) if asks else ())
    assert made.empty


def test_a_merge_replaces_the_update_of_its_step_and_can_stand_alone() -> None:
    made = plan(KStep())
    made.apply(effect("embedding", 4, 1, 2), 16, 0.5)
    made.apply(effect("dense", 4, 1, 2), 16, 0.25)
    assert made.take().to_trainers == (Settle(4, True, 16, 0.5),)
    made.apply(effect("embedding", 5, 3, 4), 32, 0.5)
    assert made.take().to_trainers == (Settle(5, False, 32, 0.5),)
    made.apply(effect("dense", 6), 32, 0.5)
    planned = made.take()
    assert (planned.applies, planned.to_trainers) == ((), (Settle(5, True, 32, 0.5),))


def test_a_plan_is_sent_once() -> None:
    made = plan(Sync())
    made.discard(7)
    assert made.take().discards == (7,)
    assert made.take().discards == ()


def test_weights_are_complete_with_the_reply_of_the_last_shard() -> None:
    mode = Async(staleness=Staleness(decay=Cutoff(tolerance=2), movement=1.0))
    replies = WeightReplies(mode, shards=2)
    replies.ordered(effect("both", 4, 1))
    assert replies.answered([PartWeights(1, 0.5, 0.75)]) == []
    assert replies.answered([PartWeights(1, 0.25, 0.5)]) == [(1.0, (0.25, 0.75))]
    assert replies.answered([]) == []


@pytest.mark.parametrize(
    ("worker", "given", "rank"),
    [(0, [0, 0], 0), (1, [1, 1], 1), (0, [2, 1], 1), (0, [2, 0], 1), (1, [2, 2], 0)],
)
def test_a_rank_with_its_share_leaves_the_rest_to_the_one_with_the_fewest(
    worker: int, given: list[int], rank: int
) -> None:
    assert rank_for(worker, given, [2, 2]) == rank


@pytest.mark.parametrize(
    ("worker", "given", "rank"),
    [(0, [0, 0, 0], 0), (1, [1, 1, 1], 0), (2, [1, 1, 1], 0), (1, [0, 1, 0], 0), (0, [2, 1, 0], 2)],
)
def test_ranks_have_uneven_shares_where_their_number_does_not_divide_a_step(
    worker: int, given: list[int], rank: int
) -> None:
    assert rank_for(worker, given, shares_of(4, 3)) == rank
    assert shares_of(4, 3) == [2, 1, 1]
