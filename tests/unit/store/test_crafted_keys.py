"""Ids chosen to collide under the public hash, which anybody can invert, cost no more than any others."""

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hotrow import SGD, AtLeast, Table
from hotrow.store import RamTier
from hotrow.store.kernels import unique
from oracles.life import hash_key

FACTOR_INVERSE = pow(0xD6E8FEB86659FD93, -1, 2**64)
HIGH_BITS = np.uint64(0x123456789 << 24)
SLOWER_MOST = 8.0  # than random ids; collisions made it 40 to 1,000 times

Ids = NDArray[np.uint64]


def keys_with_hashes(hashes: Ids) -> Ids:
    """The inverse of hash_key: a shift by half the bits undoes itself."""
    for _ in range(2):
        hashes = (hashes ^ hashes >> np.uint64(32)) * np.uint64(FACTOR_INVERSE)
    return hashes ^ hashes >> np.uint64(32)


def crafted(count: int, *, first: int = 0) -> Ids:
    """Keys whose public hashes share all but their lowest 24 bits: one shard, one partition, one run of hash bits."""
    return keys_with_hashes(HIGH_BITS | np.arange(first, first + count, dtype=np.uint64))


def random_ids(count: int, seed: int) -> Ids:
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def times_slower(act: Callable[[Ids], object], crafted_ids: list[Ids], others: list[Ids]) -> float:
    """Ratio of the smallest times, measured in turns: what other processes take only adds to a time."""
    taken: list[list[float]] = [[], []]
    for pair in zip(crafted_ids, others, strict=True):
        for ids, into in zip(pair, taken, strict=True):
            began = time.perf_counter()
            act(ids)
            into.append(time.perf_counter() - began)
    return min(taken[0]) / min(taken[1])


def test_the_inverse_used_here_is_that_of_the_public_hash() -> None:
    keys = crafted(50)
    assert [hash_key(int(key)) for key in keys] == [int(HIGH_BITS) | low for low in range(50)]


@pytest.mark.parametrize("capacity", [None, 100_000])
def test_a_table_takes_any_number_of_crafted_ids(capacity: int | None) -> None:
    tier = RamTier(Table(dim=4, optimizer=SGD(), capacity=capacity))
    ids = crafted(20_000)
    for part in np.split(ids, 10):
        tier.find_or_init(part)
    assert tier.verify() == []
    kept = 20_000 if capacity is None else capacity // 32  # they share one of 32 partitions
    assert len(tier) == pytest.approx(kept, abs=1)
    assert tier.find(ids[-1_000:]).absent == 0


def test_lookups_of_absent_crafted_ids_are_as_fast_as_of_others() -> None:
    tier = RamTier(Table(dim=4, optimizer=SGD()))
    tier.find_or_init(crafted(1_400))  # nearly as many as one segment of the index holds
    absent = [crafted(5_000, first=1_000_000 + 5_000 * turn) for turn in range(5)]
    assert times_slower(tier.find, absent, [random_ids(5_000, turn) for turn in range(5)]) < SLOWER_MOST


def test_duplicates_of_crafted_ids_are_folded_as_fast_as_of_others() -> None:
    rounds = [crafted(20_000, first=20_000 * turn) for turn in range(5)]
    assert times_slower(unique, rounds, [random_ids(20_000, turn) for turn in range(5)]) < SLOWER_MOST


def test_crafted_ids_that_wait_for_admission_are_counted_as_fast_as_others() -> None:
    tier = RamTier(Table(dim=4, optimizer=SGD(), admission=AtLeast(count=2)), partitions=1)
    # The exact counts were placed by the public hash of key XOR a constant.
    hidden = [crafted(20_000, first=20_000 * turn) ^ np.uint64(0x9E3779B97F4A7C15) for turn in range(5)]
    assert times_slower(tier.find_or_init, hidden, [random_ids(20_000, turn) for turn in range(5)]) < SLOWER_MOST
    assert len(tier) == 0


def history() -> str:
    """A digest of what a full table gives, keeps and lists, in its order, after many batches."""
    tier = RamTier(Table(dim=2, optimizer=SGD(), capacity=2_000, admission=AtLeast(count=2)))
    digest = hashlib.sha256()
    for turn in range(20):
        ids = np.random.default_rng(turn).zipf(1.3, 2_000).astype(np.uint64)
        out = np.empty((len(ids), 2), np.float32)
        tier.find_or_init(ids, out)
        tier.apply(ids, np.ones_like(out), step=turn, samples=turn)
        digest.update(out.tobytes())
    for rows in tier.export():
        digest.update(rows.keys.tobytes() + rows.values.tobytes())
    return digest.hexdigest()


def test_the_secret_of_a_process_shows_in_no_result() -> None:
    told = "import sys; sys.path.insert(0, sys.argv[1]); from unit.store.test_crafted_keys import history; "
    tests = str(Path(__file__).parents[2])
    other = subprocess.run([sys.executable, "-c", told + "print(history())", tests], capture_output=True, check=True)
    assert other.stdout.decode().strip() == history()
