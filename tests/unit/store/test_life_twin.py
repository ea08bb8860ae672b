"""Random histories of a row's life: every call to a small table and to its slow twin, compared after each.

Tables hold few rows and few keys come, so rows are evicted, expire and come back all the time.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

from hotrow import AtLeast
from hotrow.store import LookupPlan
from oracles.life import partitions_for
from oracles.life_pair import DIM, Pair, life_table
from profiles import examples

F32 = NDArray[np.float32]
POOL = [*range(14), 2**32, 3 << 52, 5 << 52, 2**63, 2**64 - 2, 2**64 - 1]

keys_of = st.lists(st.sampled_from(POOL), max_size=14)
seeds = st.integers(0, 2**32 - 1)
flags = st.booleans()
gaps = st.integers(0, 12)  # samples between two calls, in 24ths of the expiry
pers = st.sampled_from(["key", "unique"])


def eighths(seed: int, count: int) -> F32:
    return (np.random.default_rng(seed).integers(-24, 25, (count, DIM)) / 8).astype(np.float32)


class Lives(RuleBasedStateMachine):
    pair: Pair

    @initialize(
        capacity=st.none() | st.integers(1, 9) | st.sampled_from([13, 40]),
        policy=st.sampled_from(["lru", "lfu", "lru", "lfu", "refuse"]),
        expiry=st.sampled_from([None, None, 1, 4, 100, 65_536, 65_537, 200_001]),
        count=st.sampled_from([None, None, 2, 3, 5]),
        partitions=st.sampled_from([1, 1, 2, 4]),
        threads=st.sampled_from([1, 2]),
    )
    def start(
        self, capacity: int | None, policy: str, expiry: int | None, count: int | None, partitions: int, threads: int
    ) -> None:
        if policy == "refuse":
            count = None  # whether a key that reached its count before a full table starts anew is not promised
        table = life_table(
            capacity=capacity,
            eviction=None if capacity is None else policy,
            expiry=expiry,
            admission=None if count is None else AtLeast(count=count),
            default=0.0 if count is None and (capacity is None or policy != "refuse") else -7.5,
        )
        partitions = min(partitions, 1 << ((capacity or 4).bit_length() - 1))  # a partition holds one row or more
        self.pair = Pair(table, partitions=partitions, threads=threads)
        self.kept: list[tuple[LookupPlan, list[int], set[int]]] = []
        self.samples = 0

    # Lookups

    @rule(keys=keys_of, per=pers, timed=flags, gap=gaps, seen=st.sampled_from([True, True, True, False]), keep=flags)
    def find_or_init(self, keys: list[int], per: Any, timed: bool, gap: int, seen: bool, keep: bool) -> None:
        batch, done = self.pair.find_or_init(keys, samples=self._time(timed, gap), seen=seen, per=per)
        if keep:
            self.kept.append((batch, keys, done.turned_away))

    @rule(keys=keys_of, timed=flags, gap=gaps, seed=seeds, added=flags)
    def train(self, keys: list[int], timed: bool, gap: int, seed: int, added: bool) -> None:
        batch, done = self.pair.find_or_init(keys, samples=self._time(timed, gap))
        change = self.pair.add if added else self.pair.apply
        change(keys, eighths(seed, len(keys)), batch, done.turned_away)

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), timed=flags, gap=gaps)
    def look_up_again(self, data: st.DataObject, timed: bool, gap: int) -> None:
        place = data.draw(st.integers(0, len(self.kept) - 1))
        batch, keys, _ = self.kept[place]
        done = self.pair.look_up(batch, keys, samples=self._time(timed, gap))
        self.kept[place] = batch, keys, done.turned_away

    @rule(keys=keys_of)
    def find(self, keys: list[int]) -> None:
        self.pair.find(keys)

    # Changes

    @rule(keys=keys_of, seed=seeds)
    def apply(self, keys: list[int], seed: int) -> None:
        self.pair.apply(keys, eighths(seed, len(keys)))

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), seed=seeds)
    def apply_late(self, data: st.DataObject, seed: int) -> None:
        """To rows that may have gone, or come anew, since the batch was looked up."""
        batch, keys, turned = data.draw(st.sampled_from(self.kept))
        if not turned & self.pair.twin.keys():  # whether a key let in since then is found is not promised
            self.pair.apply(keys, eighths(seed, len(keys)), batch, turned)

    @precondition(lambda self: self.can_be_touched)
    @rule(keys=keys_of, timed=flags, gap=gaps)
    def touch(self, keys: list[int], timed: bool, gap: int) -> None:
        self.pair.touch(keys, samples=self._time(timed, gap))

    @rule(keys=st.lists(st.sampled_from(POOL), max_size=4))
    def erase(self, keys: list[int]) -> None:
        self.pair.erase(keys)

    @rule(keys=st.lists(st.sampled_from(POOL), max_size=8, unique=True), seed=seeds)
    def put(self, keys: list[int], seed: int) -> None:
        self.pair.put(keys, eighths(seed, len(keys)))

    @precondition(lambda self: hasattr(self, "pair") and self.pair.table.expiry is not None)
    @rule(timed=flags, gap=gaps)
    def expire(self, timed: bool, gap: int) -> None:
        samples = self._time(timed, gap)
        swept = self.pair.tier.expire(samples)
        assert self.pair.twin.expire(samples) <= swept <= self.pair.twin.counts.expired
        self.pair.settle()

    @rule()
    def take(self) -> None:
        self.pair.take()

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "pair"):
            self.pair.check(POOL)

    def teardown(self) -> None:
        if hasattr(self, "pair"):
            self.pair.settle()

    @property
    def can_be_touched(self) -> bool:
        return hasattr(self, "pair") and "last_seen" in self.pair.tier.fields

    def _time(self, timed: bool, gap: int) -> int | None:
        if not timed:
            return None
        self.samples += -(-(self.pair.table.expiry or 50_000) * gap // 24)
        return self.samples


def test_random_lives_are_the_same_in_both() -> None:
    run_state_machine_as_test(Lives, settings=settings(max_examples=examples(150), stateful_step_count=30))


@pytest.mark.slow
def test_many_long_lives_are_the_same_in_both() -> None:
    run_state_machine_as_test(Lives, settings=settings(max_examples=examples(2000), stateful_step_count=60))


@pytest.mark.parametrize("policy", ["lru", "lfu"])
@pytest.mark.parametrize(("capacity", "threads"), [(513, 1), (600, 2), (1027, 2)])
def test_larger_tables_of_several_partitions_keep_the_same_rows(capacity: int, threads: int, policy: str) -> None:
    pair = Pair(life_table(capacity=capacity, eviction=policy, expiry=9000), partitions=None, threads=threads)
    assert pair.tier.partitions == partitions_for(capacity)
    generator = np.random.default_rng(capacity)  # batches large enough for two threads
    for call in range(12):
        keys = [int(key) for key in generator.zipf(1.3, 2200) % 5000]
        batch, _ = pair.find_or_init(keys, samples=call * 2200)
        pair.apply(keys, eighths(call, len(keys)), batch)
    pair.check(list(range(5000)))
    pair.settle()
    assert pair.twin.counts.evicted > 100
