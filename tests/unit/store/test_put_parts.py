"""Rows that are put in several parts at once: the same bits as one `put` for each part, on any number of threads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from hotrow import SGD, Adagrad, Swap, Table
from hotrow.errors import InputError
from hotrow.store import RamTier
from hotrow.store.rows import RowsToPut

ROWS = 6000

TABLES: Mapping[str, dict[str, Any]] = {
    "no limit": {},
    "16-bit rows": {"type": "bfloat16"},
    "SWAP": {"optimizer": Adagrad(lr=0.1, swap=Swap(period=100, decay=0.5))},
    "LRU with room": {"capacity": 3 * ROWS},
    "LRU that evicts": {"capacity": ROWS // 3},
    "LFU that evicts": {"capacity": ROWS // 3, "eviction": "lfu"},
    "without eviction, full": {"capacity": ROWS // 3, "eviction": "refuse"},
    "expiry": {"expiry": 500},
    "expiry, LRU that evicts": {"expiry": 500, "capacity": ROWS // 3},
    "expiry, LFU that evicts": {"expiry": 500, "capacity": ROWS // 3, "eviction": "lfu"},
}


def made(settings: Mapping[str, Any], threads: int = 1) -> RamTier:
    return RamTier(Table(**{"dim": 3, "optimizer": Adagrad(lr=0.1)} | dict(settings)), partitions=4, threads=threads)


def parts_for(tier: RamTier, seed: int, *, state: bool = True) -> list[RowsToPut]:
    """Parts of odd sizes, one of them empty, with keys of random partitions; some keys come in two parts."""
    random = np.random.default_rng(seed)
    keys = random.permutation(ROWS).astype(np.uint64)
    keys = np.concatenate([keys, keys[:500]])
    parts = []
    for number, each in enumerate(np.split(keys, [1, 700, 700, 3100, 4444, 6000])):
        count = len(each)
        fields = {name: random.integers(1, 1000, count, np.uint32) for name in tier.fields}
        if "last_seen" in fields:  # later from part to part, so that rows of the first ones expire
            fields["last_seen"] = random.integers(300 * number, 300 * number + 400, count, np.uint32)
        values = random.normal(size=(count, 3)).astype(np.float32)
        squares = random.random((count, tier.state_dim), np.float32) if state else None
        parts.append(RowsToPut(each, values, squares, fields))
    return parts


def same(left: RamTier, right: RamTier) -> None:
    """Rows with their slots, the order of eviction, counts and the clock are equal."""
    for ours, theirs in zip(left.export(), right.export(), strict=True):
        np.testing.assert_array_equal(ours.keys, theirs.keys)
        np.testing.assert_array_equal(ours.values, theirs.values)
        np.testing.assert_array_equal(ours.state, theirs.state)
        for name, column in ours.fields.items():
            np.testing.assert_array_equal(column, theirs.fields[name], err_msg=name)
    for partition in range(left.partitions if left.table.policy in ("lru", "lfu") else 0):
        np.testing.assert_array_equal(left.eviction_order(partition), right.eviction_order(partition))
    counts = ("rows", "created", "evicted", "expired", "turned_away", "saturated")
    for name in counts:
        assert getattr(left.stats(), name) == getattr(right.stats(), name), name
    assert left.samples == right.samples
    assert left.verify() == right.verify() == []


def one_by_one(tier: RamTier, parts: Sequence[RowsToPut]) -> int:
    return sum(tier.put(*part).turned_away for part in parts)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", TABLES)
def test_parts_give_the_bits_of_one_put_after_the_other(kind: str, threads: int) -> None:
    alone, together = made(TABLES[kind]), made(TABLES[kind], threads)
    for seed, state in ((1, True), (2, False)):  # into an empty table, then over rows that are there
        parts = parts_for(alone, seed, state=state)
        assert together.put_parts(parts) == one_by_one(alone, parts)
        same(alone, together)


def test_reserved_rows_give_the_same_bits() -> None:
    tiers = [made({}), made({}, 3)]
    parts = parts_for(tiers[0], 3)
    one_by_one(tiers[0], parts)
    tiers[1].reserve(ROWS)
    handed_out = tiers[1].stats().bytes
    tiers[1].put_parts(parts)
    same(*tiers)
    assert tiers[1].stats().bytes <= 1.1 * handed_out  # there was room for all but what one partition has above others


def test_the_row_of_the_last_part_counts() -> None:
    tier = RamTier(Table(dim=1, optimizer=SGD(lr=1.0)))
    first, last = np.array([[1.0]], np.float32), np.array([[2.0]], np.float32)
    key = np.array([7], np.uint64)
    assert tier.put_parts([RowsToPut(key, first), RowsToPut(key, last)]) == 0
    out = np.empty((1, 1), np.float32)
    tier.find(key, out)
    assert out.item() == 2.0
    assert tier.put_parts([]) == 0


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (RowsToPut(np.array([4, 5, 4], np.uint64), np.ones((3, 1), np.float32)), "keys: 1 of them occur twice"),
        (RowsToPut(np.array([4], np.uint64), np.full((1, 1), np.nan, np.float32)), "values holds NaN or infinity"),
        (RowsToPut(np.array([4], np.uint64), np.ones((2, 1), np.float32)), r"values is \(2, 1\), expected \(1, 1\)"),
        (
            RowsToPut(np.array([4], np.uint64), np.ones((1, 1), np.float32), None, {"clock": np.ones(1, np.uint32)}),
            "'clock': rows of table 'default' carry only",
        ),
    ],
)
def test_a_part_that_is_refused_leaves_the_table_as_it_was(bad: RowsToPut, sentence: str) -> None:
    tier = RamTier(Table(dim=1, optimizer=SGD(lr=1.0)), threads=2)
    good = RowsToPut(np.array([1, 2], np.uint64), np.ones((2, 1), np.float32))
    with pytest.raises(InputError, match=sentence):
        tier.put_parts([good, bad])
    assert len(tier) == 0
    tier.put_parts([good])
    assert len(tier) == 2
