"""A shard behind real sockets: what comes too early waits and holds up nobody, and wrong requests are refused."""

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotrow.config import Segment
from hotrow.server.process import ShardServer
from hotrow.server.shard import Shard
from hotrow.staleness import Cutoff, Staleness
from hotrow.store import RamTier, Rows
from hotrow.transport.client import RpcClient
from hotrow.transport.errors import RemoteFault
from hotrow.transport.frames import unpack
from hotrow.transport.messages import (
    ApplyOrder,
    Arrival,
    Done,
    Exchange,
    Exchanged,
    Export,
    Exported,
    Import,
    OrderResult,
    Perform,
    Policy,
    PullDense,
    PullRows,
    PushRows,
    Query,
    QueryReply,
    RowBlockHeader,
    Stop,
    Taken,
)
from hotrow.transport.security import ClusterKey
from hotrow.transport.server import RpcServer
from hotrow.transport.whole_rows import pack_rows, unpack_rows
from hotrow.types import Security, Values
from unit.server.asked_shard import (
    DIMS,
    F32,
    PATIENCE_S,
    TABLES,
    exchange,
    pull_of,
    push_of,
    rows_in,
    serving,
    step_of,
)


@pytest.mark.parametrize("security", ["off", "key"])
def test_a_push_and_a_pull_go_in_one_request(security: Security) -> None:
    key = None if security == "off" else ClusterKey.generate()
    with serving(security=security, key=key) as asked:
        [before] = rows_in(exchange(asked, None, pull_of([1, 2])))
        answer = exchange(asked, push_of(1, [1]), pull_of([2, 1, 2], versions=True)).result(PATIENCE_S)
        assert isinstance(answer.message, Exchanged)
        assert answer.message.taken == Taken()
        [block] = unpack(answer.message.blocks, answer.frames, DIMS)
        assert np.array_equal(block.values, before[[1, 0, 1]])  # type: ignore[arg-type]  # it is parked
        assert np.array_equal(block.versions, [1, 1, 1])  # type: ignore[arg-type]
        assert asked.answer(Perform(1, 1, (step_of(1),))) == OrderResult(1, lateness=((0, 1),))
        [after] = rows_in(exchange(asked, None, pull_of([1, 2])))
        np.testing.assert_allclose(before - after, [[0.5, 0.5], [0.0, 0.0]], atol=1e-6)


def test_an_empty_exchange_tells_the_incarnation_to_anybody() -> None:
    with serving(Shard(TABLES, number=0, shards=1, incarnation=7)) as asked:
        assert asked.answer(Exchange(0)) == Exchanged(7)


def test_a_request_for_another_incarnation_is_stale_and_changes_nothing() -> None:
    with serving(Shard(TABLES, number=0, shards=1, incarnation=7)) as asked:
        push, frames = push_of(1, [1])
        for stale in (6, 8):
            for message, sent in (
                (Exchange(stale, push), frames),
                (Perform(stale, 1, ()), []),
                (Policy(stale, 1, "batch"), []),
            ):
                fault = asked.fault(message, sent)
                assert fault.kind == "stale"
                assert f"is incarnation 7, asked for is {stale}" in fault.sentence
        assert (asked.shard.performed, len(asked.shard.parked)) == (0, 0)
        assert isinstance(asked.answer(Exchange(7, push), frames), Exchanged)


@pytest.mark.parametrize(
    ("wanted", "first", "second"), [("fp32", "fp32", "fp32"), ("fp16-scaled", "fp16-scaled", "fp32")]
)
def test_rows_travel_as_their_table_says_if_the_pull_can_take_it(wanted: Values, first: Values, second: Values) -> None:
    with serving(Shard(TABLES, number=0, shards=1, values={"first": "fp16-scaled"})) as asked:
        blocks: tuple[RowBlockHeader, ...] = ()
        frames: list[Any] = []
        for table in TABLES:
            pull, more = pull_of([5, 6], table)
            blocks, frames = (*blocks, *pull.blocks), [*frames, *more]
        answer = asked.ask(Exchange(1, None, PullRows(0, 0, True, False, wanted, blocks)), frames).result(PATIENCE_S)
        assert isinstance(answer.message, Exchanged)
        assert [block.values for block in answer.message.blocks] == [first, second]
        for block in unpack(answer.message.blocks, answer.frames, DIMS):
            out = np.empty((2, DIMS[block.table]), np.float32)
            asked.shard.tables.tiers[block.table].find(np.array([5, 6]), out)
            np.testing.assert_allclose(block.values, out, rtol=1e-3)  # type: ignore[arg-type]


def test_narrow_gradients_are_widened() -> None:
    with serving() as asked:
        [before] = rows_in(exchange(asked, None, pull_of([1])))
        exchange(asked, push_of(1, [1], values="fp16-scaled", arrival=Arrival(4, 1.0, 0.5))).result(PATIENCE_S)
        [after] = rows_in(exchange(asked, None, pull_of([1])))
        np.testing.assert_allclose(before - after, 0.25, atol=1e-4)


def test_a_pull_waits_for_its_order_and_holds_up_nobody() -> None:
    with serving() as asked:
        [before] = rows_in(exchange(asked, None, pull_of([1])))
        late = exchange(asked, push_of(1, [1]), pull_of([1], after=2))
        assert rows_in(exchange(asked, None, pull_of([1])))[0].tolist() == before.tolist()
        assert len(asked.shard.parked) == 1  # its push did not wait
        asked.answer(Perform(1, 1, ()))
        asked.answer(Exchange(0))
        assert not late.done()  # answers on a connection keep their order
        asked.answer(Perform(1, 2, (step_of(1),)))
        [after] = rows_in(late)
        np.testing.assert_allclose(before - after, 0.5, atol=1e-6)


def test_orders_that_come_in_the_wrong_order_are_performed_in_the_right_one() -> None:
    with serving() as asked:
        rows_in(exchange(asked, None, pull_of([1])))
        exchange(asked, push_of(1, [1])).result(PATIENCE_S)
        cutoff = Staleness(decay=Cutoff(tolerance=3)).model_dump_json()
        third = asked.ask(Perform(1, 3, (step_of(1, step=5),)))
        waiting = exchange(asked, None, pull_of([1], after=3, versions=True))
        second = asked.ask(Policy(1, 2, "present", cutoff))
        asked.answer(Exchange(0))
        assert not third.done()
        assert not second.done()
        assert asked.answer(Perform(1, 1, ())) == OrderResult(1)
        assert second.result(PATIENCE_S).message == OrderResult(2)
        assert third.result(PATIENCE_S).message == OrderResult(3, lateness=((0, 1),))
        waited = waiting.result(PATIENCE_S)
        assert isinstance(waited.message, Exchanged)
        assert np.array_equal(unpack(waited.message.blocks, waited.frames, DIMS)[0].versions, [2])  # type: ignore[arg-type]
        assert asked.shard.updates.average == "present"
        assert asked.answer(Perform(1, 2, ())) == OrderResult(2)  # again
        assert asked.shard.performed == 3


def test_the_fault_of_one_that_waited_is_its_own() -> None:
    with serving() as asked:
        bad_order = asked.ask(Policy(1, 2, "batch", "{"))
        bad_step = asked.ask(Perform(1, 3, (ApplyOrder("both", 0, 0, -1.0, ()),)))
        assert asked.answer(Perform(1, 1, ())) == OrderResult(1)
        with pytest.raises(RemoteFault, match="is not JSON") as caught:
            bad_order.result(PATIENCE_S)
        assert caught.value.kind == "config"
        assert asked.answer(Policy(1, 2, "batch")) == OrderResult(2)
        with pytest.raises(RemoteFault, match=r"lr_scale=-1\.0") as caught:
            bad_step.result(PATIENCE_S)
        assert caught.value.kind == "input"


def test_a_push_sent_again_is_taken_once() -> None:
    with serving() as asked:
        [before] = rows_in(exchange(asked, None, pull_of([1])))
        for grant, arrival in ((1, None), (2, Arrival(4, 1.0, 1.0))):
            told = [exchange(asked, push_of(grant, [1], arrival=arrival)).result(PATIENCE_S).message for _ in range(3)]
            assert [each.taken for each in told if isinstance(each, Exchanged)] == [
                Taken(),
                Taken(again=True),
                Taken(again=True),
            ]
        asked.answer(Perform(1, 1, (step_of(1),)))
        [after] = rows_in(exchange(asked, None, pull_of([1])))
        np.testing.assert_allclose(before - after, 1.0, atol=1e-6)


def test_whole_rows_move_from_shard_to_shard() -> None:
    with serving() as source, serving() as target:
        rows_in(exchange(source, None, pull_of(list(range(5)), "second")))
        exchange(source, push_of(1, [1, 2], "second", arrival=Arrival(4, 1.0, 1.0))).result(PATIENCE_S)
        tier = source.shard.tables.tiers["second"]
        cursor, first = 0, True
        while first or cursor:
            given = source.ask(Export("second", cursor, 2)).result(PATIENCE_S)
            assert isinstance(given.message, Exported)
            cursor, first = given.message.cursor, False
            rows = unpack_rows(given.message.rows, given.message.fields, given.frames, dim=3, state_dim=tier.state_dim)
            put = Import("second", len(rows.keys), tuple(rows.fields))
            assert target.answer(put, pack_rows(rows)) == Done()
        exported = [next(each.shard.tables.tiers["second"].export()) for each in (source, target)]
        for rows in exported:
            assert len(rows.keys) == 5
        mine, theirs = (
            {int(key): row for key, row in zip(rows.keys, _columns(rows), strict=True)} for rows in exported
        )
        assert mine == theirs
        assert target.shard.counts["imported"] == 5


def test_rows_without_optimizer_state_start_with_that_of_new_ones() -> None:
    with serving() as source, serving() as target:
        rows_in(exchange(source, None, pull_of([1, 2], "second")))
        exchange(source, push_of(1, [1, 2], "second", arrival=Arrival(4, 1.0, 1.0))).result(PATIENCE_S)
        rows = next(source.shard.tables.tiers["second"].export())
        fresh = Rows(rows.keys, rows.values, np.zeros((2, 0), np.float32), {})
        assert target.answer(Import("second", 2, ()), pack_rows(fresh)) == Done()
        tier = target.shard.tables.tiers["second"]
        like = RamTier(tier.table)
        like.put(rows.keys, rows.values)
        [kept], [wanted] = tier.export(), like.export()
        assert kept.state.shape[1]
        assert sorted(_columns(kept)) == sorted(_columns(wanted))


def _columns(rows: Any) -> list[list[float]]:
    fields = [rows.fields[name][:, None] for name in sorted(rows.fields)]
    joined: list[list[float]] = np.concatenate([rows.values, rows.state, *fields], axis=1).tolist()
    return joined


def test_whole_rows_that_do_not_fit_are_refused() -> None:
    with serving() as asked:
        rows_in(exchange(asked, None, pull_of([1, 2], "second")))
        given = asked.ask(Export("second", 0, 10)).result(PATIENCE_S)
        assert isinstance(given.message, Exported)
        fields, frames = given.message.fields, given.frames
        before = asked.shard.figures()
        wrong: list[tuple[Import, list[Any], str]] = [
            (Import("second", 2, fields), frames[:-1], "send each column once"),
            (Import("second", 2, (*fields, fields[0])), [*frames, frames[-1]], "send each column once"),
            (Import("second", 2, ("keys", *fields[1:])), frames, "send each column once"),
            (Import("second", 3, fields), frames, "keys of 3 rows are 24 bytes, 16 came"),
            (Import("second", 2**31, fields), frames, "bytes, 16 came"),
            (Import("second", 2, ("unknown", *fields[1:])), frames, "'unknown'"),
            (Import("first", 2, fields), frames, "values of 2 rows are 16 bytes, 24 came"),
            (Import("third", 2, fields), frames, "'third' is missing"),
        ]
        for message, sent, sentence in wrong:
            assert sentence in asked.fault(message, sent).sentence
        assert asked.shard.figures() == before
        assert "'third' is missing" in asked.fault(Export("third", 0, 1)).sentence
        assert asked.answer(Import("second", 2, fields), frames) == Done()


def test_frames_that_do_not_fit_their_blocks_change_nothing() -> None:
    with serving() as asked:
        push, frames = push_of(1, [1, 2], "second")
        pull, keys = pull_of([1, 2], "second")
        for message, sent in (
            (Exchange(1, push), frames[:1]),
            (Exchange(1, push), [*frames, frames[0]]),
            (Exchange(1, push), [frames[0], frames[1][:-4]]),
            (Exchange(1, push, pull), frames),
            (Exchange(1, push, pull), [*keys, *frames]),
            (Exchange(1, push, pull), [*frames, *keys, *keys]),
            (Exchange(1, PushRows(1, 0, 0, 0, 4, (RowBlockHeader("second", 2**31, 3, True, "fp32"),))), frames),
            (Exchange(1, PushRows(1, 0, 0, 0, 4, (RowBlockHeader("second", 2, 2, True, "fp32"),))), frames),
            (Exchange(1, PushRows(1, 0, 0, 0, 4, (RowBlockHeader("third", 2, 3, True, "fp32"),))), frames),
        ):
            assert asked.fault(message, sent).kind == "input"
        assert asked.shard.figures()["pushes"] == 0
        assert asked.shard.figures()["rows.second"] == 0
        assert len(rows_in(exchange(asked, (push, frames), (pull, keys)))) == 1


def test_what_a_shard_does_not_know_is_refused_and_it_goes_on() -> None:
    with serving() as asked:
        assert "holds no dense parameters" in asked.fault(PullDense(0)).sentence
        told = asked.answer(Query("status"))
        assert isinstance(told, QueryReply)
        assert told.role == "shard 0"
        assert told.figures["wire.faults"] == 1
        assert told.figures["performed"] == 0
        assert asked.answer(Query("ready")) == QueryReply(
            "shard 0", {"ready": 1.0, "incarnation": 1.0, "dense_found": 0.0}
        )


def test_stop_ends_it_and_tells_those_who_wait() -> None:
    with serving() as asked:
        waiting = [exchange(asked, None, pull_of([1], after=9)), asked.ask(Perform(1, 9, ()))]
        assert asked.answer(Stop()) == Done()
        for each in waiting:
            with pytest.raises(RemoteFault, match="is stopping") as caught:
                each.result(PATIENCE_S)
            assert caught.value.kind == "closing"
        asked.thread.join(PATIENCE_S)
        assert not asked.thread.is_alive()


def run_shard(directory: Path, incarnation: int, told: Connection) -> None:
    """A process of its own, which is killed."""
    segment = Segment(run="killed", directory=directory)
    tables = {name: table.model_copy(update={"segment": segment}) for name, table in TABLES.items()}
    shard = Shard(tables, number=0, shards=1, incarnation=incarnation)
    with RpcServer(security="off") as server:
        told.send(server.address)
        ShardServer(shard, server).serve()


def test_a_killed_shard_comes_back_with_its_rows_and_repeats_no_push(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    seen: list[F32] = []
    taken: list[Taken | None] = []
    for incarnation in (1, 2):
        here, there = context.Pipe()
        process = context.Process(target=run_shard, args=(tmp_path, incarnation, there))
        process.start()
        with RpcClient(security="off") as wire:
            wire.connect("shard", here.recv())
            push, frames = push_of(3, [1], arrival=Arrival(4, 1.0, 1.0))
            pull, keys = pull_of([1])
            if incarnation == 1:
                wire.request("shard", Exchange(1, None, pull), keys).result(PATIENCE_S)
            answer = wire.request("shard", Exchange(incarnation, push, pull), [*frames, *keys]).result(PATIENCE_S)
            assert isinstance(answer.message, Exchanged)
            taken.append(answer.message.taken)
            seen.append(np.array(unpack(answer.message.blocks, answer.frames, DIMS)[0].values))
        process.kill()
        process.join()
    assert taken == [Taken(), Taken(again=True)]
    assert seen[0].tolist() == seen[1].tolist()
