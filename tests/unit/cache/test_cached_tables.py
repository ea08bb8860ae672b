"""A trainer with caches trains as with rows in its process; changes arrive once, and a flush leaves none behind."""

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

import hotrow as hr
from hotrow.cache import shard_requests
from hotrow.cache.client import CachedTables
from hotrow.cache.exchange import CacheRequest
from hotrow.cache.requests import PendingCacheExchange
from hotrow.client import LocalTables
from hotrow.client.sharded import LookupStep, PushFacts
from hotrow.config import Table
from hotrow.errors import InputError
from hotrow.server.cache_service import CacheService
from hotrow.server.process import ShardServer
from hotrow.server.pushes import GRANTS_KEPT
from hotrow.server.shard import Shard
from hotrow.store.shards import shard_of
from hotrow.transport.cache_frames import pack_request
from hotrow.transport.client import RpcClient
from hotrow.transport.errors import PeerLost, RemoteFault
from hotrow.transport.limits import Limits, RetryPolicy
from hotrow.transport.messages import Arrival, CacheExchange, Fault, ResumeShard
from hotrow.transport.request import Request
from hotrow.transport.server import RpcServer
from unit.cache.cached_workers import Server, Worker
from unit.client.test_sharded_tables import batch_of
from unit.worker.embedding_threads import give_gradients, rows_of

pytestmark = pytest.mark.usefixtures("row_memory")

FLUSHES = count(1, 64)
CACHE = hr.Cache(capacity=9, staleness=3)
TABLES = {
    "a": hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.5), cache=CACHE),
    "b": hr.Table(dim=3, optimizer=hr.SGD(lr=0.5)),
}


def with_policy(policy: str, **cache: object) -> dict[str, Table]:
    settings = CACHE.model_copy(update={"policy": policy, **cache})
    return {**TABLES, "a": TABLES["a"].model_copy(update={"cache": settings})}


@contextmanager
def cluster(
    shards: int, clients: int = 1, tables: Mapping[str, Table] = TABLES
) -> Iterator[tuple[list[CachedTables], list[Shard]]]:
    """Shards behind real sockets, each in a thread, and clients of theirs."""
    with ExitStack() as stack:
        cores = [Shard(tables, number=number, shards=shards) for number in range(shards)]
        addresses = {}
        for number, core in enumerate(cores):
            server = stack.enter_context(RpcServer(security="off"))
            thread = threading.Thread(target=ShardServer(core, server).serve)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.stop)
            addresses[f"shard {number}"] = server.address
        made = []
        for _ in range(clients):
            wire = stack.enter_context(RpcClient(security="off"))
            for name, address in addresses.items():
                wire.connect(name, address)
            made.append(CachedTables(tables, wire, list(addresses), threads=1))
        yield made, cores


def ask(there: CachedTables, number: int, samples: int = 9) -> PendingCacheExchange:
    place = LookupStep(number + 1, number, ahead=False)
    return there.exchange(None, there.prepare_lookup(batch_of(samples, number), learn=True, place=place))


def flush(there: CachedTables) -> int:
    rows, whole = there.flush(next(FLUSHES), 64)
    assert whole
    return rows


def facts_of(number: int, samples: int = 9) -> PushFacts:
    return PushFacts(number + 1, 0, number, number, Arrival(samples * (number + 1), 1.0, 1.0))


def check_rows(cores: Sequence[Shard], here: LocalTables, tables: Mapping[str, Table] = TABLES) -> None:
    for table in tables:
        spread = rows_of([core.tables for core in cores], table)
        torch.testing.assert_close(spread, rows_of([here], table), rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("policy", ["lru", "light_lfu", "ahead"])
@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("shards", [1, 3])
def test_one_trainer_trains_as_with_rows_in_its_process(shards: int, ahead: int, policy: str) -> None:
    here = LocalTables(TABLES, threads=1)
    tables = with_policy(policy)
    with cluster(shards, tables=tables) as ((there,), cores):
        asked: deque[PendingCacheExchange] = deque()
        begun = 0
        for number in range(12):
            while begun < 12 and begun <= number + ahead:
                asked.append(ask(there, begun))
                begun += 1
            local, remote = here.lookup(batch_of(9, number), learn=True), asked.popleft().handle()
            unused = [(), (1,), (0, 2)][number % 3]  # the last: no feature of the cached table
            for ours, theirs in zip(remote.outputs, local.outputs, strict=True):
                if ahead == 0 or ours.part.table == "a":  # rows without a cache miss the batches in between
                    torch.testing.assert_close(ours.rows, theirs.rows, rtol=1e-5, atol=1e-6)
            give_gradients(local, number, unused)
            give_gradients(remote, number, unused)
            here.push(local, step=number, samples=9 * (number + 1))
            there.push(there.gradients(remote, facts_of(number))).taken()
        assert sum(core.counts["cache_checks"] for core in cores) > 50
        assert there.changed_rows > 0
        assert flush(there) > 0
        assert there.changed_rows == 0
        assert flush(there) == 0
        check_rows(cores, here)
        figures = there.figures()
        assert min(figures[f"cache_{name}.a"] for name in ("hits", "misses", "ahead", "written", "overflowed")) > 0
        assert figures["cache_bytes.a"] > 0


def test_a_push_is_seen_by_the_lookup_that_is_sent_with_it() -> None:
    with cluster(2) as ((there,), _):
        handle = ask(there, 0).handle()
        give_gradients(handle, 0)
        place = LookupStep(2, 1, ahead=False)
        both = there.exchange(
            there.gradients(handle, facts_of(0)), there.prepare_lookup(batch_of(9, 0), learn=True, place=place)
        )
        here = LocalTables(TABLES, threads=1)
        local = here.lookup(batch_of(9, 0), learn=True)
        give_gradients(local, 0)
        here.push(local, step=0, samples=9)
        for ours, theirs in zip(both.handle().outputs, here.lookup(batch_of(9, 0), learn=True).outputs, strict=True):
            torch.testing.assert_close(ours.rows, theirs.rows, rtol=1e-5, atol=1e-6)


def test_replies_may_be_read_in_any_order() -> None:
    with cluster(2) as ((there,), _):
        first, second = ask(there, 0), ask(there, 0)
        later, earlier = second.handle(), first.handle()
        for ours, theirs in zip(later.outputs, earlier.outputs, strict=True):
            torch.testing.assert_close(ours.rows, theirs.rows, rtol=0, atol=0)


def test_two_trainers_lose_no_update() -> None:
    """With SGD and given gradients the rows do not depend on the order of the updates."""
    tables = {name: table.model_copy(update={"optimizer": hr.SGD(lr=0.5)}) for name, table in TABLES.items()}
    here = LocalTables(tables, threads=1)
    with cluster(2, clients=2, tables=tables) as (clients, cores):
        for number in range(20):
            there = clients[number % 2]
            local, remote = here.lookup(batch_of(9, number), learn=True), ask(there, number).handle()
            give_gradients(local, number)
            give_gradients(remote, number)
            here.push(local, step=number, samples=9)
            there.push(there.gradients(remote, facts_of(number))).taken()
        for there in clients:
            flush(there)
        check_rows(cores, here, tables)


def exchange_of(request: CacheRequest, grant: int, flush: int = 0) -> tuple[CacheExchange, list[memoryview]]:
    head, frames = pack_request("a", request)
    return CacheExchange(1, grant, 0, (head,), flush), [memoryview(frame) for frame in frames]


def changes_of_five_rows(table: Table) -> CacheRequest:
    worker = Worker(Server(table))
    worker.ask(np.arange(5, dtype=np.uint64), 0)
    worker.compute()
    (request,) = worker.rows.take_all_changes(samples=0)
    return request


@pytest.mark.parametrize("number", [(2, 0), (0, 2)], ids=["lookup", "flush"])
def test_changes_of_a_request_that_arrives_again_are_added_once(number: tuple[int, int]) -> None:
    table = TABLES["a"].model_copy(update={"name": "a"})
    request, keys = changes_of_five_rows(table), np.arange(5, dtype=np.uint64)
    shard = Shard({"a": table}, number=0, shards=1)
    tier, service = shard.tables.tiers["a"], CacheService(shard)
    tier.find_or_init(keys)
    before = tier.whole_rows(request.changes.keys).values
    again = [service.answer(*exchange_of(request, *number))[0].taken.again for _ in range(2)]
    assert again == [False, True]
    assert shard.counts["cache_written"] == 5
    after = tier.whole_rows(request.changes.keys).values
    np.testing.assert_allclose(after - before, request.changes.values, rtol=1e-5)


@pytest.mark.parametrize("number", [(2, 0), (0, 2)], ids=["lookup", "flush"])
def test_a_shard_that_restarts_knows_from_its_segment_which_changes_it_added(
    tmp_path: Path, number: tuple[int, int]
) -> None:
    segment = hr.Segment(run="again", directory=tmp_path, keep=True)
    table = TABLES["a"].model_copy(update={"name": "a", "segment": segment})
    request = changes_of_five_rows(TABLES["a"].model_copy(update={"name": "a"}))
    written = []
    for _ in range(2):
        shard = Shard({"a": table}, number=0, shards=1)
        shard.tables.tiers["a"].find_or_init(request.changes.keys)
        CacheService(shard).answer(*exchange_of(request, *number))
        written.append(shard.counts["cache_written"])
        assert shard.pushes.newest == 2, "another run numbers its own from there on"
        shard.close()
    assert written == [5, 0]


def test_grants_and_flushes_of_the_same_number_are_different_requests(tmp_path: Path) -> None:
    segment = hr.Segment(run="both", directory=tmp_path)
    table = TABLES["a"].model_copy(update={"name": "a", "segment": segment})
    request = changes_of_five_rows(TABLES["a"].model_copy(update={"name": "a"}))
    shard = Shard({"a": table}, number=0, shards=1)
    shard.tables.tiers["a"].find_or_init(request.changes.keys)
    service = CacheService(shard)
    for number in ((2, 0), (0, 2), (40_000, 0), (0, 3), (0, 2)):  # a grant far ahead does not make a flush old
        service.answer(*exchange_of(request, *number))
    assert (shard.counts["cache_written"], shard.counts["forgotten"]) == (20, 0)
    for neither in ((0, 0), (4, 4)):
        with pytest.raises(InputError, match=r"cache: grant=., flush=.: give one of them"):
            service.answer(*exchange_of(request, *neither))
    shard.close()


@pytest.mark.parametrize(
    ("numbers", "added"),
    [
        ([(1, 0), (600_000, 0), (0, 65)], 3),
        ([(4, 0), (0, 600_000), (5, 0)], 3),
        ([(2**40, 0), (0, 1), (0, 2**41), (2**40 + 1, 0)], 4),
    ],
    ids=["grants far ahead", "flushes far ahead", "further than any log"],
)
@pytest.mark.parametrize("restarts", [False, True], ids=["", "started again before each"])
def test_grants_and_flushes_are_numbered_independently(
    tmp_path: Path, numbers: list[tuple[int, int]], added: int, restarts: bool
) -> None:
    request = changes_of_five_rows(TABLES["a"].model_copy(update={"name": "a"}))
    segment = hr.Segment(run="apart", directory=tmp_path) if restarts else None
    table = TABLES["a"].model_copy(update={"name": "a", "segment": segment})
    counts: Counter[str] = Counter()
    shard = Shard({"a": table}, number=0, shards=1)
    shard.tables.tiers["a"].find_or_init(request.changes.keys)
    service = CacheService(shard)
    for number in numbers:
        if restarts:
            counts += shard.counts
            shard.close(leave=True)
            shard = Shard({"a": table}, number=0, shards=1, restarted=True)
            service = CacheService(shard)
        assert not service.answer(*exchange_of(request, *number))[0].taken.again
    counts += shard.counts
    shard.close()
    assert [counts[name] for name in ("cache_written", "again", "forgotten")] == [5 * added, 0, 0]


@pytest.mark.parametrize("place", [0, 1], ids=["grants", "flushes"])
def test_a_request_too_old_to_tell_whether_it_was_added_is_counted(place: int) -> None:
    table = TABLES["a"].model_copy(update={"name": "a"})
    request = changes_of_five_rows(table)
    shard = Shard({"a": table}, number=0, shards=1)
    shard.tables.tiers["a"].find_or_init(request.changes.keys)
    service = CacheService(shard)
    for number in (GRANTS_KEPT + 1, 2, 2, 1):  # the third is a copy, the last is too old
        service.answer(*exchange_of(request, *((number, 0) if place == 0 else (0, number))))
    assert [shard.counts[name] for name in ("cache_written", "again", "forgotten")] == [10, 1, 1]


class DeafServer(RpcServer):
    """Handles requests; no reply arrives while it is mute."""

    mute = False

    def _send(self, frames: Sequence[bytes | memoryview]) -> bool:
        return True if self.mute else super()._send(frames)


def test_a_flush_is_added_once_where_the_shard_is_started_again_before_its_reply(tmp_path: Path) -> None:
    table = TABLES["a"].model_copy(update={"segment": hr.Segment(run="flush", directory=tmp_path)})
    here = LocalTables({"a": TABLES["a"]}, threads=1)
    parts = replace(batch_of(9, 0), parts=tuple(part for part in batch_of(9, 0).parts if part.table == "a"))
    with ExitStack() as stack:
        wire = stack.enter_context(RpcClient(security="off"))

        def start(*, restarted: bool) -> tuple[Shard, DeafServer, threading.Thread]:
            core = Shard({"a": table}, number=0, shards=1, restarted=restarted)
            server = DeafServer(security="off")
            stack.enter_context(server)
            thread = threading.Thread(target=ShardServer(core, server, restarted=restarted).serve)
            thread.start()
            return core, server, thread

        core, server, thread = start(restarted=False)
        wire.connect("shard 0", server.address)
        there = CachedTables({"a": table}, wire, ["shard 0"], threads=1)
        place = LookupStep(1, 0, ahead=False)
        remote = there.exchange(None, there.prepare_lookup(parts, learn=True, place=place)).handle()
        local = here.lookup(parts, learn=True)
        for handle in (remote, local):
            give_gradients(handle, 0)
        here.push(local, step=0, samples=9)
        there.push(there.gradients(remote, facts_of(0))).taken()
        server.mute, changed = True, there.changed_rows
        flushing = threading.Thread(target=flush, args=(there,))
        flushing.start()
        while core.counts["cache_written"] < changed:  # a flush may have several requests
            assert flushing.is_alive()
        server.stop()
        thread.join()
        core.close(leave=True)
        again, server, thread = start(restarted=True)
        stack.callback(thread.join)
        stack.callback(server.stop)
        wire.reconnect("shard 0", server.address)
        wire.request("shard 0", ResumeShard(0)).result(20)
        flushing.join(20)
        assert not flushing.is_alive()
        assert again.counts["cache_written"] == 0
        check_rows([again], here, {"a": table})
        again.close()


def test_rows_of_a_shard_that_lost_its_own_are_dropped_and_those_of_others_are_written_back() -> None:
    tables = {"a": TABLES["a"].model_copy(update={"cache": hr.Cache(capacity=1_000, staleness=100)})}
    with cluster(2, tables=tables) as ((there,), cores):
        batch = batch_of(9, 0)
        keys = np.unique(np.concatenate([part.keys for part in batch.parts if part.table == "a"])).view(np.uint64)
        parts = replace(batch, parts=tuple(part for part in batch.parts if part.table == "a"))

        def lookup(number: int) -> PendingCacheExchange:
            place = LookupStep(number, number, ahead=False)
            return there.exchange(None, there.prepare_lookup(parts, learn=True, place=place))

        handle = lookup(1).handle()
        give_gradients(handle, 0)
        there.push(there.gradients(handle, facts_of(0))).taken()
        computing, waits = lookup(2).handle(), lookup(3)
        before = rows_of([core.tables for core in cores], "a").nan_to_num()
        cores[1].incarnation = 2
        there.set_incarnation("shard 1", 2)
        with pytest.raises(RemoteFault, match="shard 1 was started again, and has lost rows that were cached"):
            waits.handle()
        mine = shard_of(keys, 2) == 1
        assert 0 < mine.sum() < len(keys)
        assert there.changed_rows == (~mine).sum()
        assert there.figures()["cache_dropped.a"] == mine.sum()
        give_gradients(computing, 0)
        there.push(there.gradients(computing, facts_of(1))).taken()  # of its dropped rows nothing is left to update
        assert there.figures()["cache_dropped.a"] == 2 * mine.sum()
        assert flush(there) == (~mine).sum()
        assert sum(core.counts["cache_written"] for core in cores) == (~mine).sum()
        after = rows_of([core.tables for core in cores], "a").nan_to_num()
        assert int((after != before).any(1).sum()) == (~mine).sum()
        lookup(4).handle()  # and it goes on


def test_changes_that_a_shard_refuses_because_it_lost_its_rows_are_counted() -> None:
    tables = {"a": TABLES["a"].model_copy(update={"cache": hr.Cache(capacity=1_000, staleness=100)})}
    with cluster(2, tables=tables) as ((there,), cores):
        batch = batch_of(9, 0)
        parts = replace(batch, parts=tuple(part for part in batch.parts if part.table == "a"))
        place = LookupStep(1, 0, ahead=False)
        handle = there.exchange(None, there.prepare_lookup(parts, learn=True, place=place)).handle()
        give_gradients(handle, 0)
        there.push(there.gradients(handle, facts_of(0))).taken()
        changed, core = there.changed_rows, cores[1]
        core.incarnation = 2  # and the trainer does not know it yet
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ShardServer, "_is_meant", _refuses_as_lost)
            assert flush(there) == changed
        written = sum(each.counts["cache_written"] for each in cores)
        assert written + there.figures()["cache_dropped.a"] == changed
        assert 0 < written < changed


def _refuses_as_lost(server: ShardServer, request: Request, incarnation: int) -> bool:
    if incarnation == server._shard.incarnation:
        return True
    request.reply(Fault("lost", "its rows are lost"))
    return False


def test_a_request_with_a_fault_changes_nothing() -> None:
    table = TABLES["a"].model_copy(update={"name": "a"})
    worker = Worker(Server(table))
    batch = worker.rows.begin(np.arange(5, dtype=np.uint64), samples=0)
    shard = Shard({"a": table, "b": TABLES["b"]}, number=0, shards=1)
    service = CacheService(shard)
    exchange, frames = exchange_of(batch.request, 1)
    with pytest.raises(InputError, match="keys are 40 bytes, 39 came"):
        service.answer(exchange, [frames[0][:-1], *frames[1:]])
    with pytest.raises(InputError, match="4 frames came for 1 tables"):
        service.answer(exchange, frames[1:])
    twice = CacheRequest(batch.request.changes, 0, batch.request.fetched, np.zeros(5, np.uint32), batch.request.fetched)
    with pytest.raises(InputError, match="occur twice"):
        service.answer(*exchange_of(twice, 1))
    head, plain = pack_request("b", batch.request)
    with pytest.raises(InputError, match="table 'b' has no cache"):
        service.answer(CacheExchange(1, 1, 0, (head,)), plain)
    assert len(shard.tables.tiers["a"]) == 0
    service.answer(exchange, frames)  # the grant is not used up
    assert len(shard.tables.tiers["a"]) == 5


def test_a_batch_that_is_not_trained_under_a_grant_is_refused() -> None:
    with cluster(1) as ((there,), _), pytest.raises(InputError, match="looked up to be trained, under a grant"):
        there.prepare_lookup(batch_of(3, 1), learn=False)


def test_reset_forgets_rows_and_changes() -> None:
    with cluster(1) as ((there,), _):
        handle = ask(there, 0).handle()
        give_gradients(handle, 0)
        there.push(there.gradients(handle, facts_of(0)))
        ask(there, 1)
        counted = there.take_counts()
        there.reset()
        assert there.changed_rows == 0
        assert flush(there) == 0
        assert counted["cache_misses.a"] > 0
        assert not any(there.take_counts().values())
        ask(there, 0).handle()
        assert there.take_counts()["cache_hits.a"] == 0


def test_a_flush_takes_all_changes_while_batches_are_in_use_and_in_flight() -> None:
    tables = {name: table.model_copy(update={"optimizer": hr.SGD(lr=0.5)}) for name, table in TABLES.items()}
    here = LocalTables(tables, threads=1)
    with cluster(2, tables=tables) as ((there,), cores):
        handles = [ask(there, number).handle() for number in range(2)]
        give_gradients(handles[0], 0)
        there.push(there.gradients(handles[0], facts_of(0))).taken()
        in_flight = ask(there, 2)
        assert flush(there) > 0  # the second batch is in use
        assert there.changed_rows == 0
        for number, handle in ((1, handles[1]), (2, in_flight.handle())):
            give_gradients(handle, number)
            there.push(there.gradients(handle, facts_of(number))).taken()
        flush(there)
        for number in range(3):
            local = here.lookup(batch_of(9, number), learn=True)
            give_gradients(local, number)
            here.push(local, step=number, samples=9)
        check_rows(cores, here, tables)


def trained(there: CachedTables, samples: int) -> int:
    """The rows that one large batch has changed."""
    handle = ask(there, 0, samples).handle()
    give_gradients(handle, 0)
    there.push(there.gradients(handle, facts_of(0, samples))).taken()
    return there.changed_rows


@pytest.mark.parametrize("capacity", [1_000, 9], ids=["in the cache", "beside the cache"])
def test_requests_of_a_flush_fit_in_a_frame_whatever_the_number_of_changes(capacity: int) -> None:
    tables = with_policy("lru", capacity=capacity, staleness=100)
    tables["a"] = tables["a"].model_copy(update={"dim": 50})
    here = LocalTables(tables, threads=1)
    with cluster(1, tables=tables) as ((there,), cores):
        changed = trained(there, 50)
        local = here.lookup(batch_of(50, 0), learn=True)
        give_gradients(local, 0)
        here.push(local, step=0, samples=50)
        assert changed * 4 * 50 > 2 * 1024, "all of them in one frame are too large"
        there.exchanges.shards.wire.limits = Limits(frame_bytes=1024)
        assert flush(there) == changed
        assert there.changed_rows == 0
        keys = np.arange(20, dtype=np.uint64)
        ours, theirs = (of.tiers["a"].whole_rows(keys).values for of in (cores[0].tables, here))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_flush_with_too_few_numbers_leaves_the_other_changes_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = with_policy("lru", capacity=1_000, staleness=100)
    tables["b"] = tables["a"]
    row = 16 + 2 * 4 * TABLES["a"].dim
    monkeypatch.setattr(shard_requests, "FLUSH_BYTES", 3 * row)
    with cluster(2, tables=tables) as ((there,), cores):
        changed = trained(there, 9)
        requests = sum(-(-cache.changed_rows // 3) for cache in there.caches.values())
        rows, whole = there.flush(1, 2)
        assert (rows, whole) == (6, False)
        assert there.changed_rows == changed - 6
        assert sum(core.counts["cache_written"] for core in cores) == 6
        for first, most, complete in ((3, requests - 3, False), (requests, 1, True), (requests + 1, 1, True)):
            rows, whole = there.flush(first, most)
            assert whole == complete
        assert (rows, there.changed_rows) == (0, 0)
        assert sum(core.counts["cache_written"] for core in cores) == changed
        assert not any(core.counts["again"] for core in cores)


def test_a_trainer_whose_shard_is_gone_fails_with_its_name_and_never_reads_rows_that_did_not_come() -> None:
    with ExitStack() as stack:
        core = Shard(TABLES, number=0, shards=1)
        server = stack.enter_context(RpcServer(security="off"))
        thread = threading.Thread(target=ShardServer(core, server).serve)
        thread.start()
        wire = stack.enter_context(
            RpcClient(security="off", retry=RetryPolicy(first_s=0.05, most_s=0.1, give_up_s=0.5))
        )
        wire.connect("shard 0", server.address)
        there = CachedTables(TABLES, wire, ["shard 0"], threads=1)
        ask(there, 0).handle()
        server.stop()
        thread.join()
        first, second = ask(there, 1), ask(there, 1)
        for lookup in (second, first, ask(there, 2)):
            with pytest.raises(PeerLost, match="shard 0"):
                lookup.handle()


def test_lookups_that_wait_are_announced_as_far_as_the_window_goes_and_begin_in_any_order() -> None:
    with cluster(2, tables=with_policy("ahead", window=2)) as ((there,), _):
        cache = there.caches["a"]
        places = [LookupStep(number + 1, number, ahead=False) for number in range(5)]
        lookups = [
            there.prepare_lookup(batch_of(9, number), learn=True, place=place) for number, place in enumerate(places)
        ]
        assert ["a" in lookup.announced for lookup in lookups] == [True, True, True, False, False]
        second = there.exchange(None, lookups[1])
        assert ["a" in lookup.announced for lookup in lookups] == [True, False, True, True, False]
        first = there.exchange(None, lookups[0])
        assert ["a" in lookup.announced for lookup in lookups] == [False, False, True, True, True]
        assert cache.window_left == 0
        for asked, number in ((second, 1), (first, 0)):
            handle = asked.handle()
            give_gradients(handle, number)
            there.push(there.gradients(handle, facts_of(number))).taken()
        there.reset()
        assert there.caches["a"].window_left == 3


@pytest.mark.parametrize("policy", ["lru", "ahead"])
def test_a_lookup_of_a_mode_that_ended_does_not_enter_the_caches_of_the_next(policy: str) -> None:
    with cluster(2, tables=with_policy(policy)) as ((there,), _):
        before = there.epoch
        place = LookupStep(1, 0, ahead=False, epoch=before)
        prepared = there.prepare_lookup(batch_of(9, 0), learn=True, place=place)
        there.reset()
        with pytest.raises(InputError, match="grant=1: its mode ended before it was looked up"):
            there.exchange(None, prepared)
        with pytest.raises(InputError, match="grant=1: its mode ended before it was looked up"):
            there.prepare_lookup(batch_of(9, 0), learn=True, place=place)
        cache = there.caches["a"]
        assert (len(cache.tier), len(cache._batches), len(cache._announced), len(there.exchanges.waiting)) == (
            0,
            0,
            0,
            0,
        )
        place = replace(place, epoch=there.epoch)
        there.exchange(None, there.prepare_lookup(batch_of(9, 0), learn=True, place=place)).handle()


def test_a_reply_that_comes_after_its_mode_does_not_enter_the_caches_of_the_next() -> None:
    with cluster(1) as ((there,), _):
        sent = ask(there, 0)
        in_flight = list(there.exchanges.in_flight)
        there.reset()
        for each in in_flight:  # as a flush that began before
            there.exchanges.receive(each)
        assert len(there.caches["a"].tier) == 0
        assert not sent.received
