"""Shards together end with the rows of one server that holds them all, and what comes twice changes nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import hotrow as hr
from hotrow.client.aggregate import Average
from hotrow.config import Segment
from hotrow.errors import ConfigError, InputError
from hotrow.modes.base import Group
from hotrow.server.order_log import ANSWERS_KEPT
from hotrow.server.pushes import OVERHEAD, SeenGrants
from hotrow.server.shard import Shard
from hotrow.staleness import Cutoff, Inverse, Power, Staleness
from hotrow.store import Rows
from hotrow.store.shards import shard_of
from hotrow.transport.errors import Busy
from hotrow.transport.frames import RowBlock
from hotrow.transport.messages import (
    ApplyOrder,
    Arrival,
    OrderPart,
    OrderResult,
    PartWeights,
    PullRows,
    PushRows,
    Taken,
)
from profiles import examples
from unit.server.shard_pair import F32, KEYS, TABLES, Pair, pull

LATE: list[Staleness | None] = [
    None,
    Staleness(decay=Cutoff(tolerance=1)),
    Staleness(decay=Inverse(), by="version"),
    Staleness(decay=Cutoff(tolerance=0), literal=True),
    Staleness(decay=Power(reference=0.5), groups="dense"),
]
some_keys = st.lists(st.integers(0, len(KEYS) - 1), min_size=1, max_size=5, unique=True)
chosen: st.SearchStrategy[dict[str, list[int]]] = st.one_of(
    st.fixed_dictionaries({"first": some_keys, "second": some_keys}),
    st.fixed_dictionaries({"first": some_keys}),
    st.just({}),
)
a_push = st.tuples(chosen, st.integers(0, 1000), st.integers(1, 9), st.integers(0, 2))
operations = st.one_of(
    st.tuples(st.just("park"), a_push),
    st.tuples(st.just("park"), a_push),
    st.tuples(st.just("arrive"), a_push, st.sampled_from([1.0, 0.25, 0.0]), st.sampled_from([1.0, 0.5])),
    st.tuples(st.just("apply"), st.integers(1, 4), st.sampled_from(["both", "embedding"]), st.sampled_from([1.0, 0.5])),
    st.tuples(st.just("apply"), st.integers(1, 4), st.just("both"), st.just(1.0)),
    st.tuples(st.just("dense")),
    st.tuples(st.just("discard"), st.integers(0, 100)),
    st.tuples(st.just("discard early"), a_push),
    st.tuples(st.just("push again"), st.integers(0, 100), st.booleans()),
    st.tuples(st.just("order again"), st.integers(0, 100), st.integers(0, 100)),
    st.tuples(st.just("policy"), st.sampled_from(["batch", "present"]), st.integers(0, len(LATE) - 1)),
)


def carry_out(pair: Pair, operation: Any) -> None:
    match operation:
        case ("park", (ids, seed, samples, behind)):
            pair.park(pair.make(ids, seed, samples, behind=behind))
        case ("arrive", (ids, seed, samples, behind), factor, lr_scale):
            pair.arrive(pair.make(ids, seed, samples, behind=behind), factor, lr_scale)
        case ("apply", count, group, weight):
            pair.apply(pair.parked[:count], group, weight)
        case ("dense",):
            pair.dense()
        case ("discard", number) if pair.parked:
            pair.discard(pair.parked[number % len(pair.parked)])
        case ("discard early", (ids, seed, samples, behind)):
            made = pair.make(ids, seed, samples, behind=behind)
            pair.discard(made.push.grant)
            assert all(taken == Taken(again=True) for taken in pair.send(made))
        case ("push again", number, arrives) if pair.made:
            made = pair.made[number % len(pair.made) + 1]
            arrival = Arrival(pair.samples, 1.0, 1.0) if arrives else None
            assert all(taken == Taken(again=True) for taken in pair.send(made, arrival))
        case ("order again", number, grant) if pair.order:
            parts = (OrderPart(grant, 0, 0, 1, 1.0),)
            for shard in pair.shards:
                shard.perform(number % pair.order + 1, [ApplyOrder("both", 0, 0, 1.0, parts)], discards=(grant,))
        case ("policy", average, number):
            pair.policy(average, LATE[number])


@settings(max_examples=examples(150))
@given(
    st.integers(1, 3), st.sampled_from(["batch", "present"]), st.sampled_from(LATE), st.lists(operations, max_size=12)
)
def test_shards_end_with_the_rows_of_one_server(
    shards: int, average: Average, late: Staleness | None, sequence: list[Any]
) -> None:
    pair = Pair.of(shards)
    pair.policy(average, late)
    for operation in sequence:
        carry_out(pair, operation)
    pair.check()


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("average", ["batch", "present"])
def test_steps_of_several_parts_with_late_ids(shards: int, late: Staleness | None, average: Average) -> None:
    pair = Pair.of(shards)
    pair.policy(average, late)
    everything = list(range(len(KEYS)))
    for step in range(6):
        made = [pair.make({"first": everything[n:], "second": everything[:n]}, 3 * n, n, behind=n) for n in (1, 2, 3)]
        for each in made:
            pair.park(each)
        if step % 2:
            pair.apply(pair.parked[:4], "both", 1.0)
    pair.check()
    assert pair.whole["weightless"] > 0 or late is None or late.groups == "dense" or isinstance(late.decay, Inverse)


def one_shard(**settings: object) -> Shard:
    return Shard(TABLES, number=0, shards=1, **settings)  # type: ignore[arg-type]


def gradient(*keys: int, table: str = "second", value: float = 1.0, versions: bool = False) -> RowBlock:
    dim = TABLES[table].dim
    counted = np.ones(len(keys), np.uint32) if versions else None
    return RowBlock(table, np.array(keys, np.uint64), np.full((len(keys), dim), value, np.float32), counted)


def a_push_of(grant: int, **more: object) -> PushRows:
    return replace(PushRows(grant, 0, 0, 0, 4, ()), **more)


def a_step(*grants: int, step: int = 0, group: Group = "both", samples: int = 4) -> ApplyOrder:
    return ApplyOrder(group, step, samples, 1.0, tuple(OrderPart(grant, step, step, 4, 1.0) for grant in grants))


def values(shard: Shard, *keys: int) -> F32:
    return pull(shard, "second", np.array(keys, np.uint64), learn=False)[0]


def with_rows(shard: Shard, *keys: int) -> F32:
    return pull(shard, "second", np.array(keys, np.uint64))[0]


def test_a_push_is_only_parked_until_its_order_comes() -> None:
    shard = one_shard()
    before = with_rows(shard, 5, 6)
    assert shard.exchange(a_push_of(1), [gradient(5)], None, ()) == (Taken(), None)
    assert (values(shard, 5, 6) == before).all()
    assert (len(shard.parked), shard.parked.nbytes) == (1, OVERHEAD + 12 + 24)
    shard.perform(1, [a_step(1)])
    np.testing.assert_allclose(before - values(shard, 5, 6), [[0.5] * 3, [0.0] * 3], atol=1e-6)
    assert (len(shard.parked), shard.parked.nbytes) == (0, 0)


def test_what_is_applied_on_arrival_bears_the_latest_step() -> None:
    shard = one_shard()
    with_rows(shard, 5)
    last: list[int] = []
    for grant in (1, 2, 3):
        shard.exchange(a_push_of(grant, arrival=Arrival(4, 1.0, 1.0)), [gradient(5)], None, ())
        last += shard.tables.tiers["second"].last_updates(np.array([5])).tolist()
        shard.perform(grant, [a_step(step=6 + grant, group="dense")])
    assert last == [1, 9, 10]  # a row is stamped with the step after which it changed; of 0, 8 and 9
    assert shard.figures()["step"] == 10


@pytest.mark.parametrize(("group", "moves"), [("both", True), ("embedding", False)])
def test_rows_alone_are_as_late_as_their_lookup_and_not_as_their_token(group: Group, moves: bool) -> None:
    shard = one_shard()
    shard.policy(1, "batch", Staleness(decay=Cutoff(tolerance=1)).model_dump_json())
    with_rows(shard, 5)
    shard.exchange(a_push_of(1), [gradient(5)], None, ())
    shard.perform(2, [a_step(1, step=4)])
    before = values(shard, 5)
    shard.exchange(a_push_of(2), [gradient(5)], None, ())
    part = OrderPart(2, token=5, pulled_step=0, samples=4, weight=1.0)
    answer = shard.perform(3, [ApplyOrder(group, 6, 8, 1.0, (part,))])
    assert (answer.weightless, answer.lateness) == ((0, ((0, 1),)) if moves else (1, ((5, 1),)))
    assert bool((values(shard, 5) != before).all()) == moves


def test_the_clock_of_samples_never_goes_back_for_a_push_that_was_slow() -> None:
    shard = one_shard()
    pull(shard, "first", np.array([5, 6], np.uint64))
    for grant, (key, samples) in enumerate(((5, 1), (6, 30), (5, 2)), start=1):
        push = a_push_of(grant, arrival=Arrival(samples, 1.0, 1.0))
        shard.exchange(push, [gradient(key, table="first")], None, ())
    rows, _ = shard.export("first", 0, 2)
    state = dict(zip(rows.keys.tolist(), rows.state[:, 0].tolist(), strict=True))
    assert state == {5: 1 * 0.5**2 + 1, 6: 1.0}  # two periods of 12 samples ended


def test_a_part_that_came_on_arrival_is_not_applied_again_by_its_step() -> None:
    shard = one_shard()
    with_rows(shard, 5)
    shard.exchange(a_push_of(1, arrival=Arrival(4, 1.0, 1.0)), [gradient(5)], None, ())
    before = values(shard, 5)
    shard.perform(1, [a_step(1)])
    assert (values(shard, 5) == before).all()
    assert shard.counts["lost_pushes"] == 0


def test_a_part_that_never_came_is_counted_and_stays_in_the_divisor() -> None:
    shard = one_shard()
    before = with_rows(shard, 5)
    shard.exchange(a_push_of(1), [gradient(5)], None, ())
    assert shard.pushes.newest == 1
    assert shard.perform(1, [a_step(1, 2, samples=8)]).lost_pushes == 1
    np.testing.assert_allclose(before - values(shard, 5), 0.25, atol=1e-6)
    assert shard.counts["lost_pushes"] == 1
    assert shard.exchange(a_push_of(2), [gradient(5)], None, ())[0] == Taken(again=True)


def test_a_pull_that_comes_before_its_order_waits_and_its_push_does_not() -> None:
    shard = one_shard()
    wanted = [RowBlock("second", np.array([5], np.uint64))]
    want = PullRows(1, 0, True, False, "fp32", ())
    assert shard.exchange(a_push_of(1), [gradient(5)], want, wanted) == (Taken(), None)
    assert len(shard.parked) == 1
    shard.perform(1, [])
    taken, found = shard.exchange(None, (), want, wanted)
    assert taken is None
    assert found is not None
    assert found.blocks[0].versions is None


def test_a_pull_without_learning_makes_no_row_and_counts_the_absent() -> None:
    shard = one_shard()
    made = with_rows(shard, 5)
    wanted = [RowBlock("second", np.array([5, 6, 7], np.uint64))]
    _, found = shard.exchange(None, (), PullRows(0, 0, False, True, "fp32", ()), wanted)
    assert found is not None
    assert found.absent == 2
    assert (values(shard, 5) == made).all()
    assert np.array_equal(pull(shard, "second", wanted[0].keys, learn=False)[1], [1, 0, 0])  # type: ignore[arg-type]
    assert shard.figures()["rows.second"] == 1
    without_row = values(shard, 6, 7)
    assert (with_rows(shard, 6, 7) == without_row).all()


def test_what_parts_weighed_is_told_again_with_the_answer() -> None:
    shard = one_shard()
    weights = [PartWeights(3, 0.25, 1.0)]
    done = shard.orders.with_dense(shard.perform(1, ()), weights, 0)
    assert done == OrderResult(1, weights=tuple(weights))
    assert shard.perform(1, ()) == done
    assert shard.orders.with_dense(shard.perform(2, ()), [], 0) == OrderResult(2)


def test_orders_go_in_turn_and_give_their_answer_again() -> None:
    shard = one_shard()
    with_rows(shard, 5)
    shard.exchange(a_push_of(1), [gradient(5, value=np.nan)], None, ())
    with pytest.raises(InputError, match=r"order=2: comes before its turn, the next is 1"):
        shard.perform(2, [a_step(1)])
    with pytest.raises(InputError, match="order=3"):
        shard.policy(3, "batch", None)
    first = shard.perform(1, [a_step(1)])
    assert (first.refused, first.lateness) == (1, ((0, 1),))
    second = shard.policy(2, "present", None)
    assert (second.refused, second.lateness) == (0, ())
    assert shard.perform(1, []) == first
    assert shard.policy(2, "batch", None) == second
    assert shard.updates.average == "present"
    for order in range(3, ANSWERS_KEPT + 2):
        shard.perform(order, [])
    assert shard.perform(1, []).refused == 0  # forgotten
    assert shard.perform(2, []) == second
    assert shard.counts["refused"] == 1


def test_pushes_beyond_the_bound_are_refused_until_others_are_applied() -> None:
    size = OVERHEAD + 2 * (12 + 24)
    shard = one_shard(parked_bytes=2 * size)
    with_rows(shard, 5, 6)
    for grant in (1, 2):
        shard.exchange(a_push_of(grant), [gradient(5, 6)], None, ())
    with pytest.raises(Busy, match="push 3: 2 pushes of 32,912 bytes wait"):
        shard.exchange(a_push_of(3), [gradient(5, 6)], None, ())
    shard.perform(1, [a_step(1)])
    assert shard.exchange(a_push_of(3), [gradient(5, 6)], None, ())[0] == Taken()
    shard.perform(2, [], discards=(2,))
    assert shard.parked.nbytes == size


def test_a_discarded_push_whose_rows_were_applied_on_arrival_is_counted() -> None:
    """Its batch is trained again, with its rows. One that is parked, or has not come, leaves nothing."""
    shard = one_shard()
    with_rows(shard, 5)
    shard.exchange(a_push_of(1, arrival=Arrival(4, 1.0, 1.0)), [gradient(5)], None, ())
    shard.exchange(a_push_of(2), [gradient(5)], None, ())
    assert shard.perform(1, [], discards=(1, 2, 3)).applied_before == 1
    assert shard.exchange(a_push_of(3), [gradient(5)], None, ())[0] == Taken(again=True)
    assert shard.perform(2, []).applied_before == 0


def test_a_push_that_counts_and_never_arrived_is_lost_and_not_taken_later() -> None:
    """In Hybrid a step counts once its dense gradients are reduced; a trainer may end before it has sent its rows."""
    shard = one_shard()
    with_rows(shard, 5)
    shard.exchange(a_push_of(1, arrival=Arrival(4, 1.0, 1.0)), [gradient(5)], None, ())
    assert shard.perform(1, [], expected=(1, 2)).lost_pushes == 1
    before = values(shard, 5)
    assert shard.exchange(a_push_of(2, arrival=Arrival(4, 1.0, 1.0)), [gradient(5)], None, ())[0] == Taken(again=True)
    assert (values(shard, 5) == before).all()
    assert shard.perform(2, [], expected=(1, 2)).lost_pushes == 0


BAD_PUSHES = {
    "of a stranger": (2, a_push_of(1), [gradient(8)], "1 ids of table 'second' do not belong to shard 0 of 2"),
    "no table": (1, a_push_of(1), [RowBlock("third", np.zeros(1, np.uint64))], "'third' is missing"),
    "no ids": (1, a_push_of(1), [RowBlock("second", values=np.zeros((1, 3), np.float32))], "ids of table 'second'"),
    "no gradients": (1, a_push_of(1), [RowBlock("second", np.zeros(1, np.uint64))], "are missing"),
    "wrong shape": (1, a_push_of(1), [gradient(5, table="first")], ""),
    "an id twice": (1, a_push_of(1), [gradient(5, 5)], "occur twice"),
    "a table twice": (1, a_push_of(1), [gradient(5), gradient(6)], "occur twice"),
    "grant 0": (1, a_push_of(0), [gradient(5)], "push.grant=0"),
    "no samples": (1, a_push_of(1, samples=0), [gradient(5)], "push.samples=0"),
    "factor": (1, a_push_of(1, arrival=Arrival(0, 1.0, float("nan"))), [gradient(5)], "factor=nan"),
    "scale": (1, a_push_of(1, arrival=Arrival(0, -1.0, 1.0)), [gradient(5)], "lr_scale=-1.0"),
    "infinite scale": (1, a_push_of(1, arrival=Arrival(0, float("inf"), 1.0)), [gradient(5)], "lr_scale=inf"),
}  # fmt: skip


@pytest.mark.parametrize(("shards", "push", "blocks", "sentence"), BAD_PUSHES.values(), ids=BAD_PUSHES)
def test_a_push_that_cannot_be_is_refused_and_changes_nothing(
    shards: int, push: PushRows, blocks: list[RowBlock], sentence: str
) -> None:
    shard = Shard(TABLES, number=0, shards=shards)
    if not sentence:
        blocks = [RowBlock("second", blocks[0].keys, blocks[0].values, None)]
        sentence = r"gradient of table 'second' is \(1, 2\), expected \(1, 3\)"
    before = shard.figures()
    with pytest.raises(InputError, match=sentence):
        shard.exchange(push, blocks, None, ())
    assert shard.figures() == before
    assert shard.exchange(a_push_of(1), [], None, ())[0] == Taken()  # it was not remembered


def test_a_pull_that_cannot_be_keeps_its_push_out_too() -> None:
    shard = Shard(TABLES, number=0, shards=2, pull_bytes=2 * 4 * 4)
    mine = KEYS[shard_of(KEYS, 2) == 0]
    want = PullRows(0, 0, True, False, "fp32", ())
    with pytest.raises(InputError, match="a table occurs twice"):
        shard.exchange(a_push_of(1), [gradient(0)], want, [RowBlock("second", mine[:1]), RowBlock("second", mine[1:2])])
    for keys, sentence in ((mine[:3], "48 bytes of rows, at most 32"), (KEYS[4:5], "do not belong to shard 0 of 2")):
        with pytest.raises(InputError, match=sentence):
            shard.exchange(a_push_of(1), [gradient(0)], want, [RowBlock("second", keys)])
    assert len(shard.parked) == 0
    found = shard.exchange(a_push_of(1), [gradient(0)], want, [RowBlock("second", mine[:2])])
    assert found[0] == Taken()
    assert found[1] is not None


def test_an_order_with_a_part_that_cannot_be_changes_nothing() -> None:
    shard = one_shard()
    with_rows(shard, 5)
    shard.exchange(a_push_of(1), [gradient(5)], None, ())
    before = values(shard, 5)
    good = a_step(1)
    for bad in (
        replace(a_step(9), lr_scale=float("nan")),
        replace(good, lr_scale=-0.5),
        replace(good, parts=(OrderPart(9, 0, 0, 4, float("inf")),)),
        replace(good, parts=(OrderPart(9, 0, 0, 0, 1.0),)),
    ):
        with pytest.raises(InputError):
            shard.perform(1, [good, bad])
        assert (values(shard, 5) == before).all()
        assert (len(shard.parked), shard.performed) == (1, 0)
    shard.perform(1, [good])


def test_a_scale_that_one_table_refuses_is_refused_before_another_applies() -> None:
    tables = {**TABLES, "third": hr.Table(dim=1, optimizer=hr.FTRL(lr=0.5))}
    shard = Shard(tables, number=0, shards=1)
    before = with_rows(shard, 5)
    shard.exchange(a_push_of(1), [gradient(5)], None, ())
    for scale in (0.5, 0.25):
        with pytest.raises(InputError, match="FTRL"):
            shard.perform(1, [replace(a_step(1), lr_scale=scale)])
    with pytest.raises(InputError, match="FTRL"):
        shard.exchange(a_push_of(2, arrival=Arrival(4, 0.5, 1.0)), [gradient(5)], None, ())
    assert (values(shard, 5) == before).all()
    shard.perform(1, [a_step(1)])
    assert (values(shard, 5) != before).all()


def test_lateness_by_version_needs_versions() -> None:
    shard = one_shard()
    with_rows(shard, 5)
    shard.exchange(a_push_of(1), [gradient(5)], None, ())
    shard.policy(1, "batch", Staleness(decay=Inverse(), by="version").model_dump_json())
    with pytest.raises(InputError, match="versions of table 'second' are missing"):
        shard.exchange(a_push_of(2), [gradient(5)], None, ())
    assert shard.exchange(a_push_of(2), [gradient(5, versions=True)], None, ())[0] == Taken()
    with pytest.raises(InputError, match="grant=1: has no versions"):
        shard.perform(2, [a_step(2, 1)])
    assert len(shard.parked) == 2
    shard.perform(2, [a_step(2)], discards=(1,))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"decay": 3}', '{"decay": {"name": "cutoff"}, "more": 1}', "[" * 90_000]
)
def test_a_policy_that_cannot_be_is_refused_and_the_old_one_stays(text: str) -> None:
    shard = one_shard()
    shard.policy(1, "present", LATE[1].model_dump_json())  # type: ignore[union-attr]
    with pytest.raises(ConfigError):
        shard.policy(2, "batch", text)
    assert (shard.updates.average, shard.updates.late, shard.performed) == ("present", LATE[1], 1)


def test_rows_move_whole_from_shards_to_other_shards() -> None:
    pair = Pair.of(2)
    pair.park(pair.make({"first": list(range(len(KEYS))), "second": [0, 4]}, 1, 3))
    pair.apply([1], "both", 1.0)
    others = [Shard(TABLES, number=number, shards=3) for number in range(3)]
    for table in TABLES:
        for shard in pair.shards:
            cursor, first = 0, True
            while first or cursor:
                rows, cursor = shard.export(table, cursor, 2)
                first = False
                for number, other in enumerate(others):
                    mine = shard_of(rows.keys, 3) == number
                    fields = {name: column[mine] for name, column in rows.fields.items()}
                    other.put(table, Rows(rows.keys[mine], rows.values[mine], rows.state[mine], fields))
    pair.shards = others
    pair.order = 0
    pair.check()
    with pytest.raises(InputError, match=r"import: .* do not belong to shard 0 of 3"):
        others[0].put(
            "second", Rows(KEYS, np.zeros((len(KEYS), 3), np.float32), np.zeros((len(KEYS), 0), np.float32), {})
        )


def test_an_export_never_asks_for_more_memory_than_a_pull() -> None:
    shard = one_shard(pull_bytes=8 + 4 * (3 + 0 + 2) + 1)
    with_rows(shard, 5)
    with_rows(shard, 6)
    assert len(shard.export("second", 0, 2**31)[0].keys) == 1
    with pytest.raises(InputError, match="most=0"):
        shard.export("second", 0, 0)
    with pytest.raises(InputError, match="'third' is missing: there are 'first', 'second'"):
        shard.export("third", 0, 1)


def in_segment(directory: Path) -> dict[str, hr.Table]:
    table = hr.Table(dim=3, optimizer=hr.SGD(lr=0.5), segment=Segment(run="run", directory=directory, keep=True))
    return {"second": table, "third": table.model_copy(update={"segment": None})}


def test_a_push_applied_on_arrival_is_not_repeated_after_a_restart(tmp_path: Path) -> None:
    shard = Shard(in_segment(tmp_path), number=0, shards=1)
    with_rows(shard, 5)
    push = a_push_of(7, arrival=Arrival(4, 1.0, 1.0))
    assert shard.exchange(push, [gradient(5)], None, ())[0] == Taken()
    before = values(shard, 5)
    shard.close()
    again = Shard(in_segment(tmp_path), number=0, shards=1, incarnation=2)
    assert again.pushes.newest == 7  # so that a new run does not take its own first pushes for these
    assert (values(again, 5) == before).all()
    assert again.exchange(push, [gradient(5)], None, ())[0] == Taken(again=True)
    assert (values(again, 5) == before).all()
    assert again.exchange(replace(push, grant=8), [gradient(5)], None, ())[0] == Taken()
    np.testing.assert_allclose(before - values(again, 5), 0.5, atol=1e-6)
    assert again.pushes.newest == 8
    again.close()


def test_an_order_that_is_performed_again_after_a_restart_has_the_same_counts(tmp_path: Path) -> None:
    """Its first reply was lost with the process. A push that it discarded was once taken for one that was applied."""

    def expected(shard: Shard) -> tuple[int, int]:
        answer = shard.perform(1, [], discards=(1, 2), expected=(3, 4))
        return answer.applied_before, answer.lost_pushes

    tables = {"second": in_segment(tmp_path)["second"]}
    shard = Shard(tables, number=0, shards=1)
    with_rows(shard, 5)
    for grant in (1, 3):
        shard.exchange(a_push_of(grant, arrival=Arrival(4, 1.0, 1.0)), [gradient(5)], None, ())
    found = [expected(shard)]
    for _ in range(2):
        shard.close()
        shard = Shard(tables, number=0, shards=1, restarted=True)
        found.append(expected(shard))
        assert shard.exchange(a_push_of(2), [gradient(5)], None, ())[0] == Taken(again=True)
    shard.close()
    assert found == [(1, 1)] * 3


def test_a_push_that_was_cut_in_the_middle_is_counted_and_its_other_tables_are_applied(tmp_path: Path) -> None:
    shard = Shard(in_segment(tmp_path), number=0, shards=1)
    with_rows(shard, 5)
    shard.tables.tiers["second"].pushes.begin(7)
    before = values(shard, 5)
    other = RowBlock("third", *[getattr(gradient(5), name) for name in ("keys", "values", "versions")])
    taken, _ = shard.exchange(a_push_of(7, arrival=Arrival(4, 1.0, 1.0)), [gradient(5), other], None, ())
    assert taken == Taken(missing=1)  # nobody pulled the row of the other
    assert (values(shard, 5) == before).all()
    assert shard.counts["partly_applied"] == 1
    assert shard.perform(1, []).partly_applied == 1  # the run hears of it
    assert shard.perform(2, []).partly_applied == 0
    shard.close()


@given(st.integers(1, 12), st.lists(st.integers(1, 60), max_size=60))
def test_seen_grants_are_those_of_a_set_within_the_window(most: int, grants: list[int]) -> None:
    seen, twin = SeenGrants(most), set[int]()
    for grant in grants:
        if grant > max(twin, default=0) - most:
            assert (grant in seen) == (grant in twin)
        else:
            assert grant in seen
            assert seen.forgotten(grant)
        seen.add(grant)
        twin.add(grant)
    newest = max(twin, default=0)
    assert all((grant in seen) == (grant in twin or grant <= newest - most) for grant in range(1, 70))


def test_a_grant_older_than_the_window_is_not_taken_and_counted() -> None:
    shard = one_shard()
    assert shard.exchange(a_push_of(2**20 + 5), [], None, ())[0] == Taken()
    assert shard.exchange(a_push_of(6), [], None, ())[0] == Taken()
    assert shard.exchange(a_push_of(5), [], None, ())[0] == Taken(again=True)
    assert (shard.counts["forgotten"], shard.counts["again"]) == (1, 0)


def test_settings_that_cannot_be_are_refused() -> None:
    for wrong in (
        {"number": 2},
        {"number": -1},
        {"incarnation": 0},
        {"parked_bytes": 0},
        {"values": {"fourth": "fp32"}},
    ):
        with pytest.raises(ConfigError):
            Shard(TABLES, **{"number": 0, "shards": 2, **wrong})  # type: ignore[arg-type]
