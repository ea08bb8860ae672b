"""The script of test_table_kill.py: children that put rows into a table are killed, and what they leave is checked.

Arguments: kills, seed, directory of the segment. Rows are large, so that most kills come while one is written.
"""

import os
import random
import signal
import sys
import time

import numpy as np

from hotrow import Adagrad, Segment, Table
from hotrow.store import RamTier

ROWS, DIM = 200, 4096
VALUE, STATE, VERSION = 1, 7, 3


def put(table: Table, pipe: int) -> None:
    tier = RamTier(table, threads=2)
    values = np.full((ROWS, DIM), VALUE, np.float32)
    state = np.full((ROWS, tier.state_dim), STATE, np.float32)
    versions = np.full(ROWS, VERSION, np.uint32)
    keys = np.arange(ROWS, dtype=np.uint64)
    tier.put(keys, values, state, {"version": versions})
    os.write(pipe, b"1")
    while True:
        keys += ROWS
        tier.erase(keys - ROWS)  # the file stays small
        tier.put(keys, values, state, {"version": versions})


def killed_after(table: Table, seconds: float) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        put(table, writing)
    os.close(writing)
    assert os.read(reading, 1), "the child ended before it was ready"
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)


def check(table: Table) -> None:
    tier = RamTier(table)
    assert tier.verify() == [], tier.verify()
    assert tier.attached is not None
    for chunk in tier.export():
        whole = (chunk.values == VALUE).all(1) & (chunk.state == STATE).all(1) & (chunk.fields["version"] == VERSION)
        assert whole.all(), f"keys {chunk.keys[~whole]}: rows are half written"
    tier.clear()
    tier.close()


def main(kills: int, seed: int, directory: str) -> None:
    segment = Segment(run=f"puts{seed}", directory=directory, keep=True)
    table = Table(dim=DIM, optimizer=Adagrad(lr=0.1), segment=segment)
    generator = random.Random(seed)
    for _ in range(kills):
        killed_after(table, generator.uniform(0, 0.02))
        check(table)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
