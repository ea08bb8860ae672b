"""Cuts of a table while other threads train on it: the rows of one moment, whole, each once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hotrow import SGD, AtLeast, Constant, Table
from hotrow.store import RamTier
from oracles.cuts import Reader, assert_same_rows, joined, paused

DIM, KEYS, BATCH = 4, 3000, 600

TABLES: dict[str, dict[str, Any]] = {
    "plain": {},
    "lru": {"capacity": 1500, "eviction": "lru"},
    "lfu, expiry, admission": {
        "capacity": 1500,
        "eviction": "lfu",
        "expiry": 20_000,
        "admission": AtLeast(count=2),
        "type": "bfloat16",
    },
}


def new_tier(**settings: Any) -> RamTier:
    table = Table(dim=DIM, optimizer=SGD(lr=1.0), init=Constant(value=0.0), **settings)
    return RamTier(table, partitions=8, threads=2)


class Training:
    """Threads that train, erase and put until they are stopped; `pause` holds them between two calls."""

    def __init__(self, tier: RamTier, threads: int) -> None:
        self.tier = tier
        self._turns = [threading.Lock() for _ in range(threads)]
        self._stop = threading.Event()
        self._samples = 0
        self._stepped = threading.Event()
        self._pool = ThreadPoolExecutor(threads)
        self._running = [self._pool.submit(self._train, seed) for seed in range(threads)]

    def _train(self, seed: int) -> None:
        random, ones = np.random.default_rng(seed), np.ones((BATCH, DIM), np.float32)
        step = 0
        while not self._stop.is_set():
            keys = random.integers(0, KEYS, BATCH).astype(np.uint64)
            self._samples += BATCH
            step += 1
            with self._turns[seed]:
                plan = self.tier.find_or_init(keys, samples=self._samples)
            with self._turns[seed]:  # a cut may come between a lookup and its update
                self.tier.apply(plan, ones, step=step, samples=self._samples)
                if step % 5 == 0:
                    self.tier.erase(keys[:50])
                if step % 7 == 0:
                    fresh = np.unique(keys)[:50]
                    self.tier.put(fresh, ones[: len(fresh)])
            self._stepped.set()

    def wait_for_step(self) -> None:
        """Return after a step that ended later than this call began."""
        self._stepped.clear()
        assert self._stepped.wait(timeout=60)

    @contextmanager
    def pause(self) -> Iterator[None]:
        for turn in self._turns:
            turn.acquire()
        try:
            yield
        finally:
            for turn in self._turns:
                turn.release()

    def end(self) -> None:
        self._stop.set()
        for running in self._running:
            running.result()
        self._pool.shutdown()


@pytest.mark.parametrize("name", TABLES)
def test_cuts_beside_threads_that_train_rebuild_the_table(name: str) -> None:
    tier = new_tier(**TABLES[name])
    tier.track_changes()
    training = Training(tier, threads=3)
    reader, copied = Reader(new_tier(**TABLES[name])), 0
    try:
        training.wait_for_step()
        for number in range(6):
            with training.pause():
                expected = paused(tier)
                cut = tier.begin_cut(changed_only=number > 0)
            saved = number != 2  # one save fails
            training.wait_for_step()
            chunks = []
            for chunk in cut.chunks(rows=500):
                chunks.append(chunk)
                training.wait_for_step()
            copied += cut.copied_bytes
            if number == 0:
                assert_same_rows(joined(chunks, tier), expected)
            if saved:
                reader.read(cut, chunks)
                reader.assert_is(expected)
            cut.close(saved=saved)
    finally:
        training.end()
    assert tier.verify() == []
    assert copied > 0


def test_a_cut_in_the_middle_of_calls_is_one_moment_for_all_partitions() -> None:
    """Each call raises every row's version by one, so the versions of one moment are at most one apart."""
    tier = new_tier()
    keys = np.arange(200, dtype=np.uint64)  # few: calls are short beside the time in which a lock changes hands
    plan, ones, stop = tier.find_or_init(keys), np.ones((len(keys), DIM), np.float32), threading.Event()

    def train() -> None:
        while not stop.is_set():
            tier.apply(plan, ones)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for _ in range(300):
            with tier.begin_cut() as cut:
                rows = joined(cut.chunks(rows=50), tier)
            versions = rows.fields["version"]
            assert sorted(rows.keys.tolist()) == keys.tolist()
            assert versions.max() - versions.min() <= 1
            np.testing.assert_array_equal(rows.values, 1.0 - versions[:, None].astype(np.float32).repeat(DIM, 1))
    finally:
        stop.set()
        thread.join()
