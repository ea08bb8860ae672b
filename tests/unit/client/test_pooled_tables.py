"""A trainer sees the same outputs, and rows move the same, whether it asks the shards or an embedding worker."""

import pytest
import torch

from hotrow.client.base import inputs_of
from hotrow.client.pooled import RemoteTables
from hotrow.client.sharded import PushFacts
from hotrow.data.batch import Batch
from hotrow.errors import InputError
from hotrow.transport.client import Answer
from hotrow.transport.messages import ApplyOrder, Arrival, OrderPart, Perform, Pooled
from hotrow.types import Values
from unit.worker.embedding_threads import (
    Cluster,
    ask_all,
    batch_of,
    cluster,
    give_gradients,
    rows_of,
    without_ids,
)


def steps(there: Cluster, client: RemoteTables, *, through: bool, on_arrival: bool, count: int) -> list[torch.Tensor]:
    """A few steps of Sync, two batches each, as two trainers would do them; gives all outputs."""
    found = []
    embedding_workers = len(there.addresses) - len(there.cores)
    for step in range(count):
        parts = []
        for worker in range(2):
            grant = 2 * step + worker + 1
            batch = batch_of(9, grant)
            sample = None
            if through:
                number = grant % embedding_workers
                sample = there.send_ids(batch, grant, number=number, worker=worker, after=step)
                batch = without_ids(batch)
            lookup = client.prepare_lookup(batch, learn=True, after=step, sample=sample)
            handle = client.exchange(None, lookup).handle()
            found += [output.rows.detach().clone() for output in handle.outputs]
            give_gradients(handle, grant, [(), (1,), (0, 3)][grant % 3])
            arrival = Arrival(9 * grant, 1.0, 0.5) if on_arrival else None
            push = client.gradients(handle, PushFacts(grant, worker, step, step, arrival))
            taken = client.push(push).taken()
            assert [each.again for each in taken] == [False] * len(there.cores)
            parts.append(OrderPart(grant, step, step, 9, 1.0))
        applies = () if on_arrival else (ApplyOrder("both", step, 18 * (step + 1), 1.0, tuple(parts)),)
        made = [Perform(core.incarnation, step + 1, applies) for core in there.cores]
        ask_all(there.wire, there.shards, lambda at, made=made: made[at])  # type: ignore[misc]
    return found


@pytest.mark.parametrize(("shards", "embedding_workers"), [(1, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("on_arrival", [False, True])
def test_steps_through_embedding_workers_are_those_of_the_direct_client(
    shards: int, embedding_workers: int, on_arrival: bool
) -> None:
    with cluster(shards, embedding_workers) as there, cluster(shards, 0) as here:
        outputs = steps(there, there.through, through=True, on_arrival=on_arrival, count=4)
        wanted = steps(here, here.direct, through=False, on_arrival=on_arrival, count=4)
        for ours, theirs in zip(outputs, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
        for table in ("a", "b"):
            moved = rows_of([core.tables for core in there.cores], table)
            expected = rows_of([core.tables for core in here.cores], table)
            torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
        assert sum(there.figures(number)["kept"] for number in range(embedding_workers)) == 0


def test_narrow_values_stay_close_and_bytes_are_counted() -> None:
    narrow: dict[str, Values] = {"a": "fp16-scaled", "b": "fp16-scaled"}
    with cluster(2, 1, values=narrow) as there, cluster(2, 0) as here:
        outputs = steps(there, there.through, through=True, on_arrival=False, count=2)
        wanted = steps(here, here.direct, through=False, on_arrival=False, count=2)
        for ours, theirs in zip(outputs, wanted, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-2, atol=1e-2)
        figures, traffic = there.figures(), there.through.traffic
        assert traffic.received == figures["vector_bytes"]
        assert traffic.sent == figures["gradient_bytes"]
        assert traffic.plain == figures["vector_plain_bytes"] + figures["gradient_plain_bytes"]
        assert traffic.sent + traffic.received < 0.8 * traffic.plain


def test_a_model_gets_the_same_inputs() -> None:
    with cluster() as there:
        batch = batch_of(9, 1)
        sample = there.send_ids(batch, 1)
        bare = without_ids(batch)
        handle = there.through.exchange(None, there.through.prepare_lookup(bare, learn=True, sample=sample)).handle()
        ours, theirs = inputs_of(bare, handle), inputs_of(batch, there.direct.lookup(batch, learn=True))
        for name in ("x", "y", "z", "u", "v"):
            torch.testing.assert_close(ours[name], theirs[name])
        assert torch.equal(ours.sequence("w").mask, theirs.sequence("w").mask)
        assert all(output.rows.requires_grad for output in handle.outputs)


def test_one_exchange_sends_gradients_and_asks_for_the_next_vectors() -> None:
    with cluster(2, 2) as there:
        client, first, second = there.through, batch_of(9, 1), batch_of(9, 2)
        samples = [there.send_ids(first, 1, number=0), there.send_ids(second, 2, number=1)]
        handle = client.exchange(
            None, client.prepare_lookup(without_ids(first), learn=True, sample=samples[0])
        ).handle()
        give_gradients(handle, 1)
        push = client.gradients(handle, PushFacts(1, 0, 0, 0, Arrival(9, 1.0, 1.0)))
        both = client.exchange(push, client.prepare_lookup(without_ids(second), learn=True, sample=samples[1]))
        assert len(both.asked) == 1  # the push does not wait for the other batch's vectors
        assert len(both.taken()) == 2
        assert both.handle().sample == samples[1]


def test_each_client_refuses_the_batches_of_the_other() -> None:
    with cluster(1) as there:
        with pytest.raises(InputError, match="a batch came without a sample id"):
            there.through.prepare_lookup(batch_of(3, 1), learn=True)
        with pytest.raises(InputError, match="sample id 0x1: this client reads from shards"):
            there.direct.prepare_lookup(batch_of(3, 1), learn=True, sample=1)


def test_vectors_of_another_batch_are_refused() -> None:
    with cluster(1) as there:
        three: Batch = without_ids(batch_of(3, 1))
        expected = there.through.prepare_lookup(three, learn=True, sample=1)
        with pytest.raises(InputError, match="sample id 0x1: vectors of 4 samples came, the batch has 3 samples"):
            there.through.received(expected, Answer(Pooled(4, ()), []))
