"""Cached rows: one worker trains as without a cache, several lose no update and stay within the bound."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hotrow as hr
from hotrow.cache.cache import RowCache
from hotrow.config import Table
from profiles import examples
from unit.cache import cached_workers
from unit.cache.cached_workers import PlainWorker, Server, Worker, all_rows, inspected

pytestmark = pytest.mark.usefixtures("row_memory")

POLICIES = ["lru", "lfu", "light_lfu", "ahead"]
SWAP = hr.Swap(period=16, decay=0.5)
# With SWAP states begin at 0: a row that is requested a period early is made there, and a first state would decay.
OPTIMIZERS: dict[str, Callable[[], object]] = {
    "sgd": lambda: hr.SGD(lr=0.1),
    "adagrad": lambda: hr.Adagrad(lr=0.1, initial=0.1),
    "rowwise": lambda: hr.RowwiseAdagrad(lr=0.1, initial=0.1),
    "adagrad with swap": lambda: hr.Adagrad(lr=0.1, swap=SWAP),
    "rowwise with swap": lambda: hr.RowwiseAdagrad(lr=0.1, swap=SWAP),
}


def table_of(optimizer: str, capacity: int = 8, staleness: int = 2, **cache: object) -> Table:
    settings = hr.Cache(capacity=capacity, staleness=staleness, **cache)
    return hr.Table(dim=3, optimizer=OPTIMIZERS[optimizer](), cache=settings)


def check_equal(server: Server, plain: PlainWorker, swap: bool) -> None:
    here, there = all_rows(server.tier), all_rows(plain.tier)
    assert here.keys() == there.keys()
    for key, (value, state, period) in here.items():
        expected, expected_state, expected_period = there[key]
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
        last = max(period, expected_period)
        state, expected_state = (
            each * (SWAP.decay ** (last - at) if swap else 1)
            for each, at in ((state, period), (expected_state, expected_period))
        )
        np.testing.assert_allclose(state, expected_state, rtol=1e-5, atol=1e-6)


BATCHES = st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=6, unique=True), min_size=1, max_size=15)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@settings(deadline=None, max_examples=examples(30))
@given(
    batches=BATCHES,
    capacity=st.integers(1, 12),
    staleness=st.sampled_from([0, 1, 3, 1000]),
    policy=st.sampled_from(POLICIES),
    clock=st.sampled_from(["max", "additive"]),
    ahead=st.integers(0, 2),
    window=st.integers(0, 3),
)
def test_one_worker_trains_as_without_a_cache(
    optimizer: str,
    batches: list[list[int]],
    capacity: int,
    staleness: int,
    policy: str,
    clock: str,
    ahead: int,
    window: int,
) -> None:
    table = table_of(optimizer, capacity, staleness, policy=policy, clock=clock, hot=2)
    server, plain = Server(table), PlainWorker(table)
    worker = Worker(server)
    lists = [np.array(batch, np.uint64) for batch in batches]
    asked = 0
    for number, keys in enumerate(lists):
        while asked < len(lists) and asked <= number + ahead:
            worker.announce(lists[asked : asked + window])
            worker.ask(lists[asked], seed=asked)
            asked += 1
        np.testing.assert_allclose(worker.compute(), plain.compute(keys, number), rtol=1e-5, atol=1e-6)
    server.flush(worker)
    assert server.absent == 0
    check_equal(server, plain, swap="swap" in optimizer)
    assert worker.rows.changed_rows == 0
    assert not inspected(worker.rows).verify()
    in_use = lists[-1 - ahead :]  # when the last one began
    assert len(worker.rows.tier) <= capacity + len(np.unique(np.concatenate(in_use)))


def interleaved(
    server: Server, workers: int, batches: int, seed: int, rows: int = 12, most_in_use: int = 3
) -> list[Worker]:
    """Workers that request and compute in an order of the seed; all their batches are computed, nothing is flushed."""
    chance = np.random.default_rng(seed)
    crew = [Worker(server) for _ in range(workers)]
    begun = 0
    while begun < batches or any(worker.asked for worker in crew):
        worker = crew[chance.integers(workers)]
        if begun < batches and len(worker.asked) < most_in_use and chance.random() < 0.6:
            keys = chance.permutation(rows)[: chance.integers(1, 6)].astype(np.uint64)
            worker.ask(keys, seed=begun)
            begun += 1
        elif worker.asked:
            worker.compute()
    return crew


@pytest.mark.parametrize("clock", ["max", "additive"])
@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_every_check_that_passes_is_within_the_bound(staleness: int, clock: str) -> None:
    server = Server(table_of("adagrad", capacity=8, staleness=staleness, clock=clock))
    interleaved(server, workers=4, batches=200, seed=staleness)
    assert len(server.checks) > 5
    assert all(there - staleness <= here <= there + staleness for there, here in server.checks)
    apart = [there - here for there, here in server.checks]
    assert staleness == 0 or (min(apart) < 0 < max(apart))  # both sides of the bound were in reach


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("capacity", [1, 3, 8, 12])
def test_no_update_is_lost_after_a_flush(capacity: int, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With SGD and gradients that do not depend on values the rows are sums, whatever the order."""
    monkeypatch.setattr(cached_workers, "gradients", lambda keys, values, seed: np.full_like(values, seed % 7 - 2.5))
    server = Server(table_of("sgd", capacity, staleness=3, policy=policy))
    first = np.empty((12, 3), np.float32)
    server.tier.first_values(np.arange(12, dtype=np.uint64), first)
    crew = interleaved(server, workers=3, batches=150, seed=capacity)
    expected = first.astype(np.float64)
    for worker in crew:
        server.flush(worker)
        assert worker.rows.changed_rows == 0
    for seed, keys in (each for worker in crew for each in worker.computed):
        expected[keys.astype(np.int64)] -= 0.1 * (seed % 7 - 2.5)
    rows = all_rows(server.tier)
    np.testing.assert_allclose([rows[key][0] for key in range(12)], expected, rtol=1e-4, atol=1e-4)
    assert server.absent == 0


def test_eight_workers_under_swap_never_make_an_accumulator_negative() -> None:
    server = Server(table_of("adagrad with swap", capacity=6, staleness=5))
    crew = interleaved(server, workers=8, batches=400, seed=8)
    for worker in crew:
        assert all((chunk.state >= 0).all() for chunk in inspected(worker.rows).export())
        server.flush(worker)
        assert all((state >= 0).all() for _, state, _ in all_rows(server.tier).values())


def test_a_worker_sees_its_own_updates_before_the_server_does() -> None:
    server = Server(table_of("sgd", capacity=4, staleness=100))
    worker = Worker(server)
    keys = np.array([5], np.uint64)
    read = []
    for seed in range(3):
        worker.ask(keys, seed)
        read.append(worker.compute())
    assert not np.array_equal(read[0], read[1])
    assert server.applied == 0
    assert (worker.rows.counts.misses, worker.rows.counts.hits) == (1, 2)


def test_a_row_that_others_changed_too_often_comes_from_the_server_and_keeps_the_unsent_change() -> None:
    server = Server(table_of("sgd", capacity=4, staleness=1))
    here, there = Worker(server), Worker(server)
    keys = np.array([5], np.uint64)
    here.ask(keys, 0)
    fetched = here.compute()  # one update that the server does not know
    mine = next(iter(inspected(here.rows).export())).values - fetched
    for seed in range(1, 8):
        there.ask(keys, seed)
        there.compute()
    server.flush(there)
    here.ask(keys, 9)
    read = here.compute()
    np.testing.assert_allclose(read, all_rows(server.tier)[5][0][None] + mine, rtol=1e-6)
    assert here.rows.counts.invalid == 1


@pytest.mark.parametrize("asked", [[5, 6, 7, 8], [8, 7, 6, 5], [6, 5, 8, 7]])
def test_rows_that_are_invalid_and_rows_that_are_absent_come_together_each_to_its_key(asked: list[int]) -> None:
    server = Server(table_of("sgd", capacity=8, staleness=1))
    here, there = Worker(server), Worker(server)
    old, keys = np.array([5, 7], np.uint64), np.array(asked, np.uint64)
    here.ask(old, 0)
    fetched = here.compute()
    mine = {
        key: now - then
        for key, now, then in zip((5, 7), inspected(here.rows).whole_rows(old).values, fetched, strict=True)
    }
    for seed in range(1, 8):
        there.ask(old, seed)
        there.compute()
    server.flush(there)
    here.ask(keys, 9)
    rows = all_rows(server.tier)
    np.testing.assert_allclose(here.compute(), [rows[key][0] + mine.get(key, 0) for key in asked], rtol=1e-6)
    assert (here.rows.counts.invalid, here.rows.counts.misses) == (2, 4)


def test_a_gradient_that_is_not_finite_or_has_no_weight_changes_nothing() -> None:
    server = Server(table_of("adagrad", capacity=4, staleness=0))
    rows = Worker(server).rows
    keys = np.arange(3, dtype=np.uint64)
    for _ in range(2):
        batch = rows.begin(keys, samples=0)
        assert not len(batch.request.changes)
        rows.receive(batch, server.answer(batch))
        given = np.ones((3, 3), np.float32)
        given[0, 0] = np.inf
        applied = rows.apply(batch, given, np.array([1, 0, 0], np.float32), samples=3)
        assert (applied.rows, applied.refused, applied.weightless) == (0, 1, 2)
        rows.finish(batch)
    assert not any(len(request.changes) for request in rows.take_all_changes(samples=3))
    assert rows.changed_rows == 0


def test_a_key_that_the_server_does_not_admit_gets_the_default_row_and_no_update() -> None:
    table = hr.Table(dim=3, admission=hr.AtLeast(count=3), default=0.25, cache=hr.Cache(capacity=4, staleness=0))
    server = Server(table)
    worker = Worker(server)
    for seed in range(2):
        worker.ask(np.array([7], np.uint64), seed)
        np.testing.assert_array_equal(worker.compute(), np.full((1, 3), 0.25, np.float32))
    server.flush(worker)
    assert len(server.tier) == 0
    worker.ask(np.array([7], np.uint64), 2)
    assert (worker.compute() != 0.25).all()
    server.flush(worker)
    assert (server.applied, server.absent) == (1, 0)


def test_a_row_that_the_server_evicted_begins_again() -> None:
    table = table_of("sgd", capacity=8, staleness=5).model_copy(update={"capacity": 1})
    server = Server(table)
    worker = Worker(server)
    first = np.array([1], np.uint64)
    worker.ask(first, 0)
    worker.compute()
    worker.ask(np.array([2], np.uint64), 1)  # the server has room for one row
    worker.compute()
    worker.ask(first, 2)
    worker.compute()
    assert worker.rows.counts.invalid == 1
    assert worker.rows.counts.lost == 0


def test_a_request_without_a_reply_leaves_no_row_behind() -> None:
    server = Server(table_of("sgd", capacity=4))
    rows = Worker(server).rows
    batch = rows.begin(np.arange(6, dtype=np.uint64), samples=0)
    rows.finish(batch)
    assert len(rows.tier) == 0
    again = rows.begin(np.arange(6, dtype=np.uint64), samples=0)
    assert len(again.request.fetched) == 6


def test_a_capacity_in_bytes_holds_rows_and_their_bases() -> None:
    table = hr.Table(dim=16, cache=hr.Cache(capacity="1MB"))
    server = Server(table)
    worker = Worker(server)
    for start in range(0, 40_000, 2_000):
        worker.ask(np.arange(start, start + 2_000, dtype=np.uint64), start)
        worker.compute()
    kept = inspected(worker.rows)
    assert 1_000 < len(kept) < 1_000_000 / (2 * 16 * 4 * 2)
    assert kept.stats().bytes <= 1_000_000


@pytest.mark.parametrize("threads", [1, 2])
def test_a_key_that_stands_in_a_batch_twice_makes_no_row(threads: int) -> None:
    table = table_of("sgd", capacity=4)
    assert table.cache is not None
    rows = RowCache(table, table.cache, threads=threads)
    rows.begin(np.array([7, 8], np.uint64), samples=0)
    tier = inspected(rows)
    order = [tier.eviction_order(partition).tolist() for partition in range(tier.partitions)]
    for keys in ([1, 1, 2], [2, 3, 4, 5, 6, 2]):
        with pytest.raises(ValueError, match=f"key {keys[-1] if len(keys) > 3 else 1} stands in the batch twice"):
            rows.begin(np.array(keys, np.uint64), samples=0)
        assert [tier.eviction_order(each).tolist() for each in range(tier.partitions)] == order
        assert not tier.verify()
    assert rows.batches_in_use == 1
    assert len(rows.begin(np.array([1, 2], np.uint64), samples=0).created) == 2
