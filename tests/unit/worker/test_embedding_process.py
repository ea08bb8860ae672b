"""An embedding worker behind real sockets: nobody waits for others, nothing is kept for ever, all is told by name."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack

import pytest
import torch

from hotrow.client.pooled import PooledLookup, peer_name
from hotrow.client.sharded import PushFacts
from hotrow.data.batch import Batch
from hotrow.transport.client import Answer
from hotrow.transport.errors import RemoteFault
from hotrow.transport.ids import pack_ids, sample_id
from hotrow.transport.messages import (
    ApplyOrder,
    Arrival,
    Exchange,
    LookUp,
    OrderPart,
    Perform,
    PullPooled,
    PushPooled,
    Release,
)
from hotrow.worker.embedding import BufferLimits
from hotrow.worker.embedding_process import EmbeddingSetup
from unit.worker.embedding_threads import (
    TABLES,
    Cluster,
    ask_all,
    batch_of,
    cluster,
    embedding_worker,
    give_gradients,
    without_ids,
)


def pull(there: Cluster, sample: int) -> "Future[Answer]":
    return there.wire.request(peer_name(0), PullPooled(sample))


def look_up(there: Cluster, batch: Batch, sample: int) -> PooledLookup:
    return there.through.exchange(
        None, there.through.prepare_lookup(without_ids(batch), learn=True, sample=sample)
    ).handle()


def facts(grant: int) -> PushFacts:
    return PushFacts(grant, 0, 0, 0, Arrival(9, 1.0, 1.0))


def soon(true: Callable[[], bool]) -> bool:
    """Whether something comes true before patience ends."""
    ends = time.monotonic() + 20
    while not (came := true()) and time.monotonic() < ends:
        time.sleep(0.01)
    return came


def test_vectors_that_are_not_there_yet_are_waited_for_without_holding_up_others() -> None:
    with cluster() as there:
        early = pull(there, sample_id(0, 2))
        assert look_up(there, batch_of(9, 1), there.send_ids(batch_of(9, 1), 1)).samples == 9
        assert not early.done()
        assert there.figures()["waiting"] == 1
        there.send_ids(batch_of(9, 2), 2)
        early.result(20)


def test_a_lookup_waits_for_the_order_it_names() -> None:
    with cluster() as there:
        first = look_up(there, batch_of(9, 1), there.send_ids(batch_of(9, 1), 1))
        give_gradients(first, 1)
        push = there.through.gradients(first, PushFacts(1, 0, 0, 0))
        sample = there.send_ids(batch_of(9, 1), 2, after=1)
        waiting = pull(there, sample)
        assert len(there.through.push(push).taken()) == 2
        assert not waiting.done()
        apply = ApplyOrder("both", 0, 9, 1.0, (OrderPart(1, 0, 0, 9, 1.0),))
        ask_all(there.wire, there.shards, lambda at: Perform(there.cores[at].incarnation, 1, (apply,)))
        after = look_up(there, batch_of(9, 1), sample)
        waiting.result(20)
        assert not torch.equal(after.outputs[0].rows, first.outputs[0].rows)


def test_asks_that_wait_are_bounded() -> None:
    with cluster(1, bounds=BufferLimits(waiting=2)) as there:
        waiting = [pull(there, sample_id(0, grant)) for grant in (1, 2)]
        assert soon(lambda: there.figures()["waiting"] == 2)
        third = pull(there, sample_id(0, 3))
        assert soon(lambda: there.wire.counts.busy > 1)  # it is asked again, without anybody's doing
        assert there.figures()["waiting"] == 2
        there.send_ids(batch_of(3, 1), 3)
        third.result(20)
        for grant in (1, 2):
            there.send_ids(batch_of(3, 1), grant)
            waiting[grant - 1].result(20)


def test_a_batch_without_room_waits_for_it_and_one_that_never_fits_is_refused() -> None:
    with cluster(1, bounds=BufferLimits(samples=9)) as there:
        first = look_up(there, batch_of(9, 1), there.send_ids(batch_of(9, 1), 1))
        parts, frames = pack_ids(batch_of(1, 1))
        second = there.wire.request(peer_name(0), LookUp(sample_id(0, 2), 0, 0, 0, False, 1, parts), frames)
        assert soon(lambda: there.figures()["busy"] > 1)
        assert not second.done()
        with pytest.raises(RemoteFault, match=r"a batch of 10 samples is more than the 9 that embedding worker 0 may"):
            there.send_ids(batch_of(10, 1), 3)
        give_gradients(first, 1)
        there.through.push(there.through.gradients(first, facts(1))).taken()
        second.result(20)
        look_up(there, batch_of(1, 1), sample_id(0, 2))
        figures = there.figures()
        assert (figures["refused"], figures["pushed"], figures["kept"]) == (1, 1, 1)
        assert figures["wire.busy"] == figures["busy"] == there.wire.counts.busy


def test_gradients_without_their_batch_get_a_sentence() -> None:
    with cluster(1) as there:
        handle = look_up(there, batch_of(9, 1), there.send_ids(batch_of(9, 1), 1))
        give_gradients(handle, 1)
        push = there.through.gradients(handle, facts(1))
        there.wire.request(peer_name(0), Release((handle.sample,))).result(20)
        with pytest.raises(RemoteFault, match="embedding worker 0 has dropped it"):
            there.through.push(push).taken()
        with pytest.raises(RemoteFault, match="its vectors were not pulled yet, pull them first"):
            there.wire.request(peer_name(0), PushPooled(sample_id(0, 5), 0, 0, 0, ())).result(20)
        with pytest.raises(RemoteFault, match="is of embedding worker 1, not of embedding worker 0"):
            pull(there, sample_id(1, 1)).result(20)


def test_resends_are_taken_once() -> None:
    with cluster() as there:
        batch = batch_of(9, 1)
        sample = there.send_ids(batch, 1)
        assert there.send_ids(batch, 1) == sample
        handle, again = look_up(there, batch, sample), look_up(there, batch, sample)
        for one, other in zip(handle.outputs, again.outputs, strict=True):
            assert torch.equal(one.rows, other.rows)
        give_gradients(handle, 1)
        push = there.through.gradients(handle, facts(1))
        pushes = [there.through.push(push) for _ in range(3)]
        assert len({str(each.taken()) for each in pushes}) == 1
        assert there.send_ids(batch, 1) == sample  # ids that come after all was done
        figures = there.figures()
        assert (figures["batches"], figures["pushed"], figures["again"], figures["kept"]) == (1, 1, 4, 0)
        assert [core.counts["pushes"] for core in there.cores] == [1, 1]


def test_released_batches_are_freed_and_who_waits_for_them_hears_it() -> None:
    with cluster(1) as there:
        there.send_ids(batch_of(9, 1), 1, worker=0)
        held_back = there.send_ids(batch_of(9, 2), 2, worker=1, after=1)  # an order that does not come
        waiting = pull(there, held_back)
        assert soon(lambda: there.figures()["waiting"] == 1)
        there.wire.request(peer_name(0), Release((held_back,))).result(20)
        with pytest.raises(RemoteFault, match="has dropped sample id 0x2: it was released"):
            waiting.result(20)
        figures = there.figures()
        assert (figures["released"], figures["kept"], figures["kept_samples"], figures["waiting"]) == (1, 1, 9, 0)


def test_who_waits_for_ids_that_will_not_arrive_hears_of_their_release() -> None:
    """The loader that has them is lost: the driver releases the batch."""
    with cluster(1) as there:
        waiting = pull(there, sample_id(0, 9))
        assert soon(lambda: there.figures()["waiting"] == 1)
        there.wire.request(peer_name(0), Release((sample_id(0, 9),))).result(20)
        with pytest.raises(RemoteFault, match="has dropped sample id 0x9: it was released"):
            waiting.result(20)
        assert there.figures()["waiting"] == 0


def test_what_a_killed_peer_leaves_is_freed_after_a_deadline() -> None:
    with cluster(1, bounds=BufferLimits(keep_s=0.3)) as there:
        there.send_ids(batch_of(9, 1), 1)  # whoever was to ask for it is gone
        never = pull(there, sample_id(0, 9))  # whoever was to send its ids is gone
        with pytest.raises(RemoteFault, match="the ids of sample id 0x9 did not arrive"):
            never.result(20)
        assert soon(lambda: there.figures()["kept"] == 0)
        figures = there.figures()
        assert (figures["expired"], figures["waited_in_vain"], figures["kept_bytes"]) == (1, 1, 0)
        with pytest.raises(RemoteFault, match=r"no message about it came for 0.3 s"):
            pull(there, sample_id(0, 1)).result(20)


def test_rows_that_a_shard_refuses_free_the_batch_and_the_fault_names_it() -> None:
    with cluster(1) as there:
        core = there.cores[0]
        core.incarnation += 1  # the shard started anew: what the embedding worker knows of it is stale
        sample = there.send_ids(batch_of(9, 1), 1)
        with pytest.raises(RemoteFault, match=r"embedding worker 0.*rows of sample id 0x1: shard 0: .*incarnation"):
            pull(there, sample).result(20)
        figures = there.figures()
        assert (figures["failed"], figures["kept"]) == (1, 0)


def test_gradients_that_a_shard_refuses_are_told_and_freed() -> None:
    with cluster(1) as there:
        handle = look_up(there, batch_of(9, 1), there.send_ids(batch_of(9, 1), 1))
        give_gradients(handle, 1)
        there.cores[0].parked.bytes_most = 1
        push = there.through.gradients(handle, PushFacts(1, 0, 0, 0))
        with pytest.raises(RemoteFault, match=r"the gradients of sample id 0x1: shard 0: .*parked_bytes"):
            there.through.push(push).taken()
        assert (there.figures()["failed"], there.figures()["kept"]) == (1, 0)


def test_what_is_nothing_for_an_embedding_worker_is_refused_and_it_goes_on() -> None:
    with cluster(1) as there:
        with pytest.raises(RemoteFault, match="an embedding worker does not handle Exchange"):
            there.wire.request(peer_name(0), Exchange(0)).result(20)
        parts, frames = pack_ids(batch_of(3, 1))
        with pytest.raises(RemoteFault, match="frames came for 4 parts"):
            there.wire.request(peer_name(0), LookUp(sample_id(0, 1), 0, 0, 0, False, 3, parts), frames[:-1]).result(20)
        assert look_up(there, batch_of(3, 1), there.send_ids(batch_of(3, 1), 1)).samples == 3


def test_stop_tells_whoever_waits() -> None:
    with cluster(1, embedding_workers=0) as there:
        with ExitStack() as its_life:
            setup = EmbeddingSetup(TABLES, 0, ["shard 0"])
            there.wire.connect(peer_name(0), embedding_worker(its_life, setup, there.addresses))
            waiting = pull(there, sample_id(0, 1))
            assert soon(lambda: there.figures()["waiting"] == 1)
        with pytest.raises(RemoteFault, match="embedding worker 0 is stopping"):
            waiting.result(20)


def test_versions_go_with_the_gradients_where_they_were_asked_for() -> None:
    with cluster(1) as there:
        handle = look_up(there, batch_of(9, 1), there.send_ids(batch_of(9, 1), 1, versions=True))
        give_gradients(handle, 1)
        there.through.push(there.through.gradients(handle, PushFacts(1, 0, 0, 0))).taken()
        parked = there.cores[0].parked.find(1)
        assert parked is not None
        assert {table: set(rows.versions.tolist()) for table, rows in parked.items() if rows.versions is not None} == {
            "a": {1},
            "b": {1},
        }
