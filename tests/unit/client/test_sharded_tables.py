"""Rows on shards give the same vectors as rows in this process, and take the same gradients."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import torch

from hotrow.client import LocalTables
from hotrow.client.sharded import PushFacts, ShardedTables
from hotrow.data.batch import Batch, FeatureBlock
from hotrow.errors import ConfigError
from hotrow.server.process import ShardServer
from hotrow.server.shard import Shard
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import ApplyOrder, Arrival, OrderPart, Perform
from hotrow.transport.server import RpcServer
from hotrow.types import Values
from unit.worker.embedding_threads import TABLES, give_gradients, rows_of


@contextmanager
def cluster(
    shards: int, values: dict[str, Values] | None = None
) -> Iterator[tuple[ShardedTables, RpcClient, list[Shard]]]:
    """Shards behind real sockets, each in a thread, and a client of theirs."""
    with ExitStack() as stack:
        cores = [Shard(TABLES, number=number, shards=shards, values=values) for number in range(shards)]
        wire = stack.enter_context(RpcClient(security="off"))
        for number, core in enumerate(cores):
            server = stack.enter_context(RpcServer(security="off"))
            thread = threading.Thread(target=ShardServer(core, server).serve)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.stop)
            wire.connect(f"shard {number}", server.address)
        names = [f"shard {number}" for number in range(shards)]
        yield ShardedTables(TABLES, wire, names, values=values, threads=1), wire, cores


def batch_of(samples: int, seed: int) -> Batch:
    chance = np.random.default_rng(seed)
    lengths = chance.integers(0, 4, samples)
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    several = int(bounds[-1])
    parts = (
        FeatureBlock("a", "one", ("x", "y"), chance.integers(0, 20, 2 * samples)),
        FeatureBlock("b", "bags", ("z",), chance.integers(0, 20, several), bounds, "mean"),
        FeatureBlock("a", "sequence", ("w",), chance.integers(0, 20, several), bounds),
        FeatureBlock("b", "bags", ("v",), chance.integers(0, 20, several), bounds, "sum"),
    )
    return Batch(parts, np.zeros((samples, 0), np.float32), np.zeros((samples, 1), np.float32))


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("on_arrival", [False, True])
def test_lookups_and_pushes_are_those_of_one_process(shards: int, on_arrival: bool) -> None:
    here = LocalTables(TABLES, threads=1)
    with cluster(shards) as (there, wire, cores):
        for step in range(6):
            batch, unused = batch_of(9, step), [(), (1,), (0, 3)][step % 3]
            local, remote = here.lookup(batch, learn=True), there.lookup(batch, learn=True, after=step)
            for ours, theirs in zip(remote.outputs, local.outputs, strict=True):
                torch.testing.assert_close(ours.rows, theirs.rows, rtol=1e-6, atol=1e-6)
                assert (ours.mask is None) == (theirs.mask is None)
            give_gradients(local, step, unused)
            give_gradients(remote, step, unused)
            here.push(local, step=step, samples=9 * (step + 1))
            arrival = Arrival(9 * (step + 1), 1.0, 1.0) if on_arrival else None
            facts = PushFacts(step + 1, worker=0, token=step, pulled_step=step, arrival=arrival)
            taken = there.push(there.gradients(remote, facts)).taken()
            assert [each.again for each in taken] == [False] * shards
            part = OrderPart(step + 1, step, step, 9, 1.0)
            apply = ApplyOrder("both", step, 9 * (step + 1), 1.0, (part,))
            for number in range(shards):
                order = Perform(cores[number].incarnation, step + 1, () if on_arrival else (apply,))
                wire.request(f"shard {number}", order).result()
        for table in TABLES:
            spread = rows_of([core.tables for core in cores], table)
            torch.testing.assert_close(spread, rows_of([here], table), rtol=1e-5, atol=1e-6, equal_nan=True)
    here.close()


def test_one_request_carries_a_push_and_the_next_lookup() -> None:
    with cluster(2) as (there, wire, _):
        first, second = batch_of(9, 1), batch_of(9, 2)
        handle = there.lookup(first, learn=True)
        give_gradients(handle, 1)
        asked = wire.counts.requests
        facts = PushFacts(1, 0, 0, 0, Arrival(9, 1.0, 1.0))
        both = there.exchange(there.gradients(handle, facts), there.prepare_lookup(second, learn=True))
        assert len(both.taken()) == 2
        assert wire.counts.requests == asked + 2
        alone = there.lookup(second, learn=True)  # the push came first: the lookup beside it saw its rows
        for ours, theirs in zip(both.handle().outputs, alone.outputs, strict=True):
            torch.testing.assert_close(ours.rows, theirs.rows, rtol=0, atol=0)


def test_a_lookup_that_does_not_learn_makes_no_rows_and_counts_absent_ids() -> None:
    with cluster(2) as (there, _, cores):
        batch = batch_of(9, 1)
        there.lookup(batch, learn=False)
        distinct = {table: len(np.unique(np.concatenate([p.keys for p in batch.parts if p.table == table])))
                    for table in TABLES}  # fmt: skip
        assert there.absent_ids == sum(distinct.values())
        assert sum(len(tier) for core in cores for tier in core.tables.tiers.values()) == 0


def test_narrow_values_halve_the_bytes_of_rows_and_stay_close() -> None:
    batch = batch_of(200, 1)
    handles, received = [], []
    for values in ({}, {"a": "fp16-scaled", "b": "fp16-scaled"}):
        with cluster(2, values) as (there, _, _):  # type: ignore[arg-type]
            handles.append(there.lookup(batch, learn=True))
            received.append(there.traffic.received)
    assert received[1] < 0.85 * received[0]  # at dims 3 and 4 the scale of a row weighs a good deal
    for narrow, plain in zip(handles[1].outputs, handles[0].outputs, strict=True):
        torch.testing.assert_close(narrow.rows, plain.rows, rtol=1e-3, atol=1e-5)


def test_versions_come_with_the_rows_where_they_are_asked_for() -> None:
    with cluster(2) as (there, _, _):
        batch = batch_of(9, 1)
        handle = there.lookup(batch, learn=True, versions=True)
        assert {table: set(found.tolist()) for table, found in handle.versions.items()} == {"a": {1}, "b": {1}}
        assert there.lookup(batch, learn=True).versions == {}


def test_a_table_that_is_not_there_is_named() -> None:
    with cluster(1) as (there, _, _):
        strange = Batch((FeatureBlock("c", "one", ("x",), np.arange(2)),), np.zeros((2, 0), np.float32))
        with pytest.raises(ConfigError, match="table 'c' of feature 'x' is missing: there are 'a', 'b'"):
            there.lookup(strange, learn=True)
