"""An exchange that fails, wherever that is, fails its batch alone: no row that did not come is read, nothing stays in
use, and changes that may be lost are counted."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import hotrow as hr
from hotrow.cache import shard_requests
from hotrow.cache.client import CachedTables
from hotrow.cache.requests import DroppedChanges
from hotrow.client.sharded import LookupStep
from hotrow.config import Table
from hotrow.errors import InputError
from hotrow.store.shards import shard_of
from hotrow.transport.client import Answer
from hotrow.transport.errors import PeerLost, RemoteFault
from hotrow.transport.messages import CacheExchange, Exchange
from unit.cache.cached_workers import Server, Worker
from unit.cache.test_cached_tables import TABLES, ask, cluster, facts_of, flush
from unit.client.test_sharded_tables import batch_of
from unit.worker.embedding_threads import give_gradients

pytestmark = pytest.mark.usefixtures("row_memory")

SILENT = PeerLost("shard 0", "tcp://127.0.0.1:1", 60.0, "silent")


def tables_of(policy: str) -> dict[str, Table]:
    """Every row is written back before it is used again."""
    cache = hr.Cache(capacity=9, staleness=0, policy=policy)
    return {**TABLES, "a": TABLES["a"].model_copy(update={"cache": cache})}


def train(there: CachedTables, number: int) -> None:
    handle = ask(there, number).handle()
    give_gradients(handle, number)
    there.push(there.gradients(handle, facts_of(number))).taken()


def refusing(there: CachedTables, kind: type, patched: pytest.MonkeyPatch, name: str = "shard 0") -> None:
    """Requests of a kind to a shard cannot be sent."""
    send = there.exchanges.shards.wire.request

    def request(peer: str, message: Any, *rest: Any, **options: Any) -> "Future[Answer]":
        if peer == name and isinstance(message, kind):
            raise SILENT
        return send(peer, message, *rest, **options)

    patched.setattr(there.exchanges.shards.wire, "request", request)


def check_idle(there: CachedTables) -> None:
    cache = there.caches["a"]
    sent = there.exchanges
    left = len(cache._batches), len(sent.unread), len(sent.in_flight), len(sent.waiting), len(cache._announced)
    assert left == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("policy", ["lru", "ahead"])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_request_that_cannot_be_sent_fails_its_batch_and_its_changes_are_counted(policy: str, shards: int) -> None:
    with cluster(shards, tables=tables_of(policy)) as ((there,), cores):
        train(there, 0)
        changed = there.changed_rows
        with pytest.MonkeyPatch.context() as patched:
            refusing(there, CacheExchange, patched)
            sent = ask(there, 1)
            assert sent.wait(10)
            with pytest.raises(PeerLost, match="silent"):
                sent.handle()
        if shards == 2:  # the other shard gets its request
            sent.rows[1].result(10)
        check_idle(there)
        written = sum(core.counts["cache_written"] for core in cores)
        dropped = there.figures()["cache_dropped.a"]
        assert dropped > 0
        assert written + dropped + there.changed_rows == changed
        batch = ask(there, 1).handle().batches["a"]
        read = np.empty((len(batch.keys), 4), np.float32)
        there.caches["a"].read(batch, read)
        for number, core in enumerate(cores):
            mine = shard_of(batch.keys, shards) == number
            assert mine.any()
            np.testing.assert_array_equal(read[mine], core.tables.tiers["a"].whole_rows(batch.keys[mine]).values)


def test_tables_without_a_cache_that_cannot_be_sent_fail_the_batch_and_the_push() -> None:
    with cluster(1) as ((there,), _):
        handle = ask(there, 0).handle()
        give_gradients(handle, 0)
        push = there.gradients(handle, facts_of(0))
        lookup = there.prepare_lookup(batch_of(9, 1), learn=True, place=LookupStep(2, 1, ahead=False))
        with pytest.MonkeyPatch.context() as patched:
            refusing(there, Exchange, patched)
            both = there.exchange(push, lookup)
        for result in (both.handle, both.taken, both.asked[0].result):
            with pytest.raises(PeerLost, match="silent"):
                result()
        check_idle(there)
        train(there, 2)


def broken_reply(sent: Any, patched: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise InputError("a reply to another request came")

    patched.setattr(shard_requests, "joined_reply", refuse)


def broken_plain(sent: Any, patched: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise InputError("a reply to another request came")

    patched.setattr(sent.plain, "handle", refuse)


@pytest.mark.parametrize("broken", [broken_reply, broken_plain])
def test_a_reply_that_cannot_be_read_leaves_no_batch_in_use(broken: Callable[[Any, pytest.MonkeyPatch], None]) -> None:
    with cluster(2) as ((there,), _):
        train(there, 0)
        sent = ask(there, 1)
        with pytest.MonkeyPatch.context() as patched:
            broken(sent, patched)
            for _ in range(2):
                with pytest.raises(InputError, match="a reply to another request came"):
                    sent.handle()
        check_idle(there)
        train(there, 2)
        flush(there)
        assert there.changed_rows == 0


@pytest.mark.parametrize("error", [SILENT, InputError("too large"), RemoteFault("lost", "rows", "shard 0"), None])
def test_changes_of_every_request_that_failed_are_counted(error: Exception | None) -> None:
    with cluster(1, tables=tables_of("lru")) as ((there,), _):
        train(there, 0)
        sent = ask(there, 0)
        changes = len(sent.shares["a"][0].request.changes)
        assert changes > 0
        dropped, reply = DroppedChanges(), Future[Answer]()
        dropped.watch([reply], sent.shares)
        if error is None:
            reply.set_result(sent.rows[0].result())
        else:
            reply.set_exception(error)
        assert dropped.rows["a"] == (0 if error is None else changes)


def test_gradients_of_a_row_whose_reply_did_not_come_are_counted() -> None:
    """Its shard came back without rows, and then came the gradients of a batch that was read before."""
    worker = Worker(Server(TABLES["a"].model_copy(update={"name": "a"})))
    rows, keys = worker.rows, np.arange(5, dtype=np.uint64)
    worker.ask(keys, 0)
    read, reply, _ = worker.asked.popleft()
    rows.receive(read, reply)
    rows.drop(lambda keys: np.ones(len(keys), np.bool_))
    again = rows.begin(keys, samples=0)
    ones = np.ones((5, TABLES["a"].dim), np.float32)
    weights = np.array([1, 1, 1, 0, 0], np.float32)
    assert rows.apply(read, ones, weights, samples=0).rows == 0
    rows.finish(read)
    rows.finish(again)
    assert (rows.counts.dropped, rows.counts.unadmitted) == (3, 0)
    assert rows.changed_rows == 0
