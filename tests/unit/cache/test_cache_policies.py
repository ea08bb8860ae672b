"""Which row a cache evicts, compared with a slow twin; and how many lookups each policy saves."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hotrow as hr
from hotrow.bench.cache.oracles import saved_ahead, saved_by_static, saved_by_unlimited
from hotrow.cache.cache import Announced, CachedBatch, RowCache
from hotrow.cache.exchange import read_rows
from hotrow.cache.rows import CachedRows
from hotrow.store import LookupPlan, RamTier
from oracles.cached_order import TwinOrder
from profiles import examples
from unit.cache.cached_workers import inspected

POLICIES = ["lru", "lfu", "light_lfu", "ahead"]
Batches = list[list[int]]
BATCHES = st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=5, unique=True), min_size=1, max_size=25)


def keys_of(batch: list[int]) -> NDArray[np.uint64]:
    return np.array(batch, np.uint64)


class Pair:
    """A cache's rows and their twin, told the same."""

    def __init__(self, policy: str, capacity: int, hot: int) -> None:
        cache = hr.Cache(capacity=capacity, policy=policy, hot=hot)
        self.tier = CachedRows(hr.Table(dim=1, optimizer=hr.SGD(lr=1.0), clock=True, capacity=capacity), cache, 1)
        self.twin = TwinOrder(policy, capacity, hot)
        self.in_use: list[tuple[LookupPlan, list[int]]] = []
        self.announced: dict[int, tuple[LookupPlan, list[int]]] = {}

    def announce(self, batch: list[int]) -> None:
        plan = self.tier.batch(keys_of(batch))
        number = self.tier.announce(plan)
        assert self.twin.announce(batch) == number
        self.announced[number] = plan, batch
        self.check()

    def withdraw(self, number: int) -> None:
        plan, batch = self.announced.pop(number)
        self.tier.withdraw(plan, number)
        self.twin.withdraw(number, batch)
        self.check()

    def place(self, batch: list[int], number: int = 0) -> None:
        plan = self.announced.pop(number)[0] if number else self.tier.batch(keys_of(batch))
        before = set(self.twin.rows)
        found = self.tier.place(plan, use=number, pinned=[each for each, _ in self.in_use])
        pinned = {key for _, keys in self.in_use for key in keys}
        self.twin.place(batch, number, pinned)
        assert found.created.tolist() == [key for key in batch if key not in before]
        assert found.beyond == self.twin.beyond
        assert set(batch) <= set(self.twin.rows)
        assert pinned & before <= set(self.twin.rows)
        assert len(self.tier) <= self.twin.capacity + len(pinned | set(batch))
        self.in_use.append((plan, batch))
        self.check()

    def finish(self, most: int, which: int = 0) -> None:
        """The oldest batches, or others."""
        while len(self.in_use) > most:
            self.in_use.pop(which % len(self.in_use))

    def check(self) -> None:
        assert self.tier.eviction_order(0).tolist() == self.twin.order()
        assert not self.tier.verify()


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None, max_examples=examples(60))
@given(batches=BATCHES, capacity=st.integers(1, 9), hot=st.integers(1, 4), in_use=st.integers(0, 2))
def test_rows_go_in_the_order_of_the_twin(policy: str, batches: Batches, capacity: int, hot: int, in_use: int) -> None:
    pair = Pair(policy, capacity, hot)
    for batch in batches:
        pair.place(batch)
        pair.finish(in_use)


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None, max_examples=examples(60))
@given(
    batches=BATCHES,
    capacity=st.integers(1, 9),
    in_use=st.integers(1, 4),
    finished=st.lists(st.integers(0, 4), min_size=25, max_size=25),
)
def test_rows_go_in_the_order_of_the_twin_where_batches_finish_in_another_order(
    policy: str, batches: Batches, capacity: int, in_use: int, finished: list[int]
) -> None:
    pair = Pair(policy, capacity, hot=2)
    for batch, which in zip(batches, finished, strict=False):
        pair.place(batch)
        pair.finish(in_use, which)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_batch_that_does_not_finish_keeps_its_own_rows_alone(policy: str, threads: int) -> None:
    there = TraceCache(policy, 100, threads=threads)
    slow, rows = there.begin(np.arange(10, dtype=np.uint64)), inspected(there.rows)
    for number in range(1, 50):
        there.rows.finish(there.begin(np.arange(100 * number, 100 * number + 100, dtype=np.uint64)))
        assert len(rows) <= 100 + 110
        assert (rows.versions(slow.keys) > 0).all()
    assert not rows.verify()


@settings(deadline=None, max_examples=examples(150))
@given(
    batches=BATCHES,
    capacity=st.integers(1, 9),
    window=st.integers(1, 6),
    in_use=st.integers(0, 2),
    strays=st.sets(st.integers(0, 24)),
    withdrawn=st.sets(st.integers(0, 24)),
    swapped=st.sets(st.integers(0, 24)),
)
def test_ahead_evicts_as_the_twin_whatever_is_announced_and_withdrawn(
    batches: Batches,
    capacity: int,
    window: int,
    in_use: int,
    strays: set[int],
    withdrawn: set[int],
    swapped: set[int],
) -> None:
    pair = Pair("ahead", capacity, 10)
    waiting: list[int] = []  # numbers, in order
    for at, batch in enumerate(batches):
        if at in strays:
            pair.place(batch)  # never announced
            pair.finish(in_use)
            continue
        pair.announce(batch)
        waiting.append(max(pair.announced))
        if at in withdrawn:
            pair.withdraw(waiting.pop(len(waiting) // 2))
        if len(waiting) > window:
            number = waiting.pop(1 if at in swapped else 0)
            pair.place(pair.announced[number][1], number)
            pair.finish(in_use)


def test_a_window_of_more_batches_than_there_are_lists_still_evicts_every_row() -> None:
    pair = Pair("ahead", capacity=4, hot=10)
    for number in range(200):
        plan = pair.tier.batch(keys_of([number]))
        pair.tier.place(plan)
        pair.tier.announce(plan)
    assert len(pair.tier) == 4 + 1  # the last one goes first, and is in use until another batch begins
    assert not pair.tier.verify()


def test_hot_rows_of_light_lfu_neither_move_nor_count_and_go_last_the_first_one_first() -> None:
    pair = Pair("light_lfu", capacity=3, hot=2)
    for batch in ([1], [2], [2], [1], [2], [2], [3]):
        pair.place(batch)
        pair.finish(0)
    assert pair.tier.eviction_order(0).tolist() == [3, 2, 1]
    assert pair.tier.read(keys_of([1, 2, 3]), "frequency").tolist() == [2, 2, 1]
    pair.place([3])
    pair.finish(0)
    pair.place([4])  # all others are hot: it goes first itself, once it is not in use
    assert pair.tier.eviction_order(0).tolist() == [4, 2, 1, 3]
    pair.finish(0)
    pair.place([4])  # hot as well: the one that became so first goes
    assert pair.tier.eviction_order(0).tolist() == [1, 3, 4]


class TraceCache:
    """A cache in front of a server that never changes a row: counts of lookups."""

    def __init__(self, policy: str, capacity: int, window: int = 4, threads: int = 1) -> None:
        cache = hr.Cache(capacity=capacity, policy=policy, staleness=10**6, window=window)
        self.table = hr.Table(dim=1, optimizer=hr.SGD(lr=1.0), cache=cache)
        self.rows, self.server = RowCache(self.table, cache, threads=threads), RamTier(self.table)
        self.cache, self.window = cache, window

    def begin(self, keys: NDArray[np.uint64], announced: Announced | None = None) -> CachedBatch:
        batch = self.rows.begin(keys, samples=0, announced=announced)
        self.rows.receive(batch, read_rows(self.server, batch.request, self.cache, samples=0))
        return batch

    def run(self, trace: list[NDArray[np.uint64]]) -> int:
        """Batch n begins when those to n + window are known."""
        told: deque[Announced] = deque()
        for number, keys in enumerate(trace):
            while self.rows.window_left and number + len(told) < len(trace):
                told.append(self.rows.announce(trace[number + len(told)]))
            self.rows.finish(self.begin(keys, told.popleft() if told else None))
        return self.rows.counts.hits


def zipf_trace(skew: float, ids: int, batches: int, size: int, seed: int = 0) -> list[NDArray[np.uint64]]:
    chance = np.random.default_rng(seed)
    mass = np.cumsum(np.arange(1, ids + 1) ** -skew)
    draws = np.searchsorted(mass / mass[-1], chance.random((batches, size))).astype(np.uint64)
    return [np.unique(batch) for batch in draws]


@pytest.mark.parametrize("skew", [0.9, 1.1, 1.3])
def test_each_policy_saves_its_part_of_what_offline_oracles_save(skew: float) -> None:
    trace = zipf_trace(skew, ids=20_000, batches=150, size=416)
    static, window = saved_by_static(trace, 2_000), saved_ahead(trace, 2_000, 4)
    saved = {policy: TraceCache(policy, 2_000).run(trace) for policy in POLICIES}
    assert saved["lfu"] >= 0.85 * static
    assert saved["light_lfu"] >= 0.85 * static
    assert saved["ahead"] >= 0.95 * window
    assert saved["ahead"] > saved["lfu"]
    assert max(saved.values()) <= saved_by_unlimited(trace)


def test_a_longer_window_saves_more() -> None:
    trace = zipf_trace(0.9, ids=20_000, batches=100, size=416)
    saved = [TraceCache("ahead", 2_000, window).run(trace) for window in (1, 8, 64)]
    assert saved == sorted(saved)
    assert saved[0] < saved[-1]


def test_no_more_batches_are_announced_than_the_window_has() -> None:
    rows = TraceCache("ahead", 4, window=2).rows
    first, second, _ = (rows.announce(keys_of([key])) for key in (1, 2, 3))
    assert rows.window_left == 0
    rows.withdraw(second)
    assert rows.window_left == 1
    rows.begin(keys_of([1]), samples=0, announced=first)
    assert rows.window_left == 2
    assert TraceCache("lfu", 4).rows.window_left == 0
