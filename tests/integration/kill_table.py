"""The script of test_table_kill.py: children that train a table are killed, and what they leave is checked.

Arguments: kills, seed, directory of the segment, settings of the table as JSON. A child adds one to every row of a
batch and then says which batch is done; after the kill every row must hold what the finished batches added to it, or
that and what the next one adds.
"""

import json
import os
import random
import signal
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotrow import SGD, Constant, Segment, Table
from hotrow.store import RamTier

KEYS, BATCH, DIM = 3000, 400, 4
Values = NDArray[np.float64]


def batch_keys(number: int) -> NDArray[np.uint64]:
    return np.random.default_rng(number).integers(0, KEYS, BATCH).astype(np.uint64)


def train(table: Table, first: int, pipe: int) -> None:
    tier = RamTier(table, threads=2)
    gradients = -np.ones((BATCH, DIM), np.float32)
    number = first
    while True:
        keys = batch_keys(number)
        assert tier.pushes.begin(number + 1) == "fresh"
        tier.apply(tier.find_or_init(keys), gradients, step=number)
        tier.pushes.finish(number + 1)
        os.write(pipe, number.to_bytes(8, "little"))
        number += 1


def killed_after(table: Table, first: int, seconds: float) -> int:
    """The last batch that a child said was done before it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        train(table, first, writing)
    os.close(writing)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    done = first - 1
    while word := os.read(reading, 8):
        done = int.from_bytes(word, "little")
    os.close(reading)
    return done


def added(first: int, end: int) -> NDArray[np.int64]:
    """What the batches [first, end) add to each key."""
    keys = [batch_keys(number).astype(np.int64) for number in range(first, end)]
    return np.bincount(np.concatenate([np.empty(0, np.int64), *keys]), minlength=KEYS)[:, None]


def check(table: Table, first: int, done: int, before: Values) -> tuple[Values, int]:
    """Values after the kill, from those before it; and which batch comes next."""
    tier = RamTier(table)
    assert tier.verify() == [], tier.verify()
    found = tier.attached
    if found is None:  # killed before there was a file
        assert done < first == 0
        tier.close()
        return before, 0
    assert found.dropped == 0
    # The mark in the segment is made before the word: a batch that is marked and was not told is done.
    while tier.pushes.begin(done + 2) == "done":
        done += 1
    low = before + added(first, done + 1)
    high = low + added(done + 1, done + 2)
    now = np.zeros((KEYS, DIM))
    for chunk in tier.export():
        now[chunk.keys.astype(np.int64)] = chunk.values - 1
        assert (chunk.values >= 1).all(), "a row is half made"
        assert (chunk.fields["version"] >= 1).all()
    if table.capacity is None:
        assert (now >= low).all(), "lost more than the batch in flight"
        there = np.flatnonzero(low[:, 0]).astype(np.uint64)
        assert (tier.versions(there) > 0).all(), "lost a row"
    else:
        assert len(tier) <= tier.capacity_rows
        assert len(tier.eviction_order(0)) <= tier.capacity_rows
    assert (now <= high).all(), "a batch was applied twice"
    assert found.partly_applied in ([], [done + 2]) or first > 0
    tier.close()
    return now, done + 2


def main(kills: int, seed: int, directory: str, settings: dict[str, Any]) -> None:
    segment = Segment(run=f"kill{seed}", directory=directory, keep=True)
    # Rows start at 1: one that was half made would show 0.
    table = Table(dim=DIM, optimizer=SGD(lr=1.0), init=Constant(value=1.0), segment=segment, **settings)
    generator = random.Random(seed)
    values, position, attaches = np.zeros((KEYS, DIM)), 0, 0
    for _ in range(kills):
        done = killed_after(table, position, generator.uniform(0.002, 0.06))
        values, position = check(table, position, done, values)
        attaches += position > 0
    print(f"{kills} kills, {attaches} attaches, {position} batches")
    assert attaches > kills // 2


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
