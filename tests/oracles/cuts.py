"""Random calls on a table, its state while nothing runs, and a reader that rebuilds it from cuts."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from hotrow import FTRL, SGD, Adagrad, Adam, AtLeast, Swap, Table
from hotrow.store import RamTier, Rows, TableCut
from hotrow.store.saved import eviction_order

DIM = 2
KEYS = 40  # few, so that calls meet

TABLES: dict[str, dict[str, Any]] = {
    "plain": {"optimizer": Adagrad(lr=0.5)},
    "clock": {"optimizer": SGD(lr=0.5), "clock": True, "last_seen": True},
    "swap": {"optimizer": Adam(lr=0.5, swap=Swap(period=100, decay=0.5))},
    "ftrl": {"optimizer": FTRL(lr=0.5)},
    "bfloat16": {"optimizer": Adagrad(lr=0.5), "type": "bfloat16"},
    "lru": {"optimizer": Adagrad(lr=0.5), "capacity": 16, "eviction": "lru"},
    "lfu": {"optimizer": SGD(lr=0.5), "capacity": 16, "eviction": "lfu"},
    "refuse": {"optimizer": SGD(lr=0.5), "capacity": 16, "eviction": "refuse"},
    "expiry": {"optimizer": SGD(lr=0.5), "expiry": 300},
    "lru expiry": {"optimizer": SGD(lr=0.5), "capacity": 16, "eviction": "lru", "expiry": 300},
    "lfu expiry": {"optimizer": SGD(lr=0.5), "capacity": 16, "eviction": "lfu", "expiry": 300},
    "exact counts": {"optimizer": SGD(lr=0.5), "admission": AtLeast(count=3), "capacity": 16, "eviction": "lru"},
    "filter": {"optimizer": SGD(lr=0.5), "admission": AtLeast(count=3, filter="1KB")},
}

CALLS = ["look", "look", "look ahead", "train", "train", "apply", "add", "put", "touch", "erase", "expire", "clear"]
calls = st.tuples(st.sampled_from(CALLS), st.integers(0, 2**32 - 1))


def new_tier(name: str) -> RamTier:
    return RamTier(Table(dim=DIM, **TABLES[name]), partitions=2)


class History:
    """Calls on a tier; each is a name and the seed of its arguments."""

    def __init__(self, tier: RamTier) -> None:
        self.tier = tier
        self.samples = 0
        self.step = 0

    def perform(self, name: str, seed: int) -> None:
        tier, random = self.tier, np.random.default_rng(seed)
        keys = random.integers(0, KEYS, random.integers(1, 14)).astype(np.uint64)
        changes = random.integers(-8, 9, (len(keys), DIM)).astype(np.float32) / 8
        self.samples += int(random.integers(0, 60))
        self.step += 1
        when: dict[str, Any] = {"step": self.step, "samples": self.samples}
        match name:
            case "look" | "look ahead":
                tier.find_or_init(keys, samples=self.samples, seen=name == "look")
            case "train":
                tier.apply(tier.find_or_init(keys, samples=self.samples), changes, **when)
            case "apply":
                tier.apply(keys, changes, **when)
            case "add":
                clocks = random.integers(0, 99, len(keys)).astype(np.uint32) if "clock" in tier.fields else None
                tier.add(keys, changes, clocks=clocks, **when)
            case "put":
                keys = np.unique(keys)
                tier.put(keys, changes[: len(keys)])
            case "touch" if "last_seen" in tier.fields:
                tier.touch(keys, samples=self.samples)
            case "erase":
                tier.erase(keys)
            case "expire":
                tier.expire(self.samples)
            case "clear" if seed % 4 == 0:
                tier.clear()


def joined(chunks: Iterable[Rows], tier: RamTier) -> Rows:
    parts = [tier._empty_rows(0), *chunks]
    return Rows(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.state for part in parts]),
        {name: np.concatenate([part.fields[name] for part in parts]) for name in tier.fields},
    )


def taken(rows: Rows, at: Any) -> Rows:
    return Rows(rows.keys[at], rows.values[at], rows.state[at], {name: c[at] for name, c in rows.fields.items()})


def paused(tier: RamTier) -> Rows:
    """All rows, in the order of eviction where there is one: only while no other call runs."""
    rows = joined(tier.export(), tier)
    return taken(rows, eviction_order(tier, rows.keys))


def assert_same_rows(ours: Rows, theirs: Rows) -> None:
    assert ours.keys.tolist() == theirs.keys.tolist()
    np.testing.assert_array_equal(ours.values, theirs.values)
    np.testing.assert_array_equal(ours.state, theirs.state)
    assert {name: c.tolist() for name, c in ours.fields.items()} == {n: c.tolist() for n, c in theirs.fields.items()}


def counts_of(cut: TableCut) -> tuple[list[tuple[list[int], list[int]]], list[NDArray[np.uint8]]]:
    return [(keys.tolist(), counts.tolist()) for keys, counts in cut.waiting()], list(cut.filters())


class Reader:
    """Rebuilds a table from a cut of all rows and the cuts of changes after it: remove first, then put."""

    def __init__(self, tier: RamTier) -> None:
        self.tier = tier

    def read(self, cut: TableCut, chunks: Iterable[Rows]) -> None:
        if not cut.changed_only:
            self.tier.clear()
        self.tier.erase(cut.removed)
        for chunk in chunks:
            self.tier.erase(chunk.keys)  # one call puts rows that are there before those that are new
            self.tier.put(chunk.keys, chunk.values, chunk.state if self.tier.state_dim else None, chunk.fields)

    def assert_is(self, expected: Rows) -> None:
        found = paused(self.tier)
        if self.tier.table.policy not in ("lru", "lfu"):
            found, expected = (taken(rows, np.argsort(rows.keys)) for rows in (found, expected))
        assert_same_rows(found, expected)
