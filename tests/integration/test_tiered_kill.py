"""A table in two tiers whose process is killed has all its rows, those on their way to the disk among them."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

import hotrow as hr
from hotrow.store import RamTier
from hotrow.store.tiered import TieredTier

STEPS, KEYS, BATCH = 40, 3000, 150


def table(folder: Path) -> hr.Table:
    segment = hr.Segment(run="killed", directory=folder)
    return hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.5), capacity=400, disk="8MB", path=folder, segment=segment)


def train(tier: RamTier, steps: int) -> None:
    for step in range(steps):
        draw = np.random.default_rng(step)
        keys = draw.integers(0, KEYS, BATCH).astype(np.uint64)
        plan = tier.find_or_init(keys, samples=step)
        tier.apply(plan, draw.standard_normal((BATCH, 4)).astype(np.float32), step=step, samples=step)


CHILD = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_tiered_kill import STEPS, TieredTier, table, train
tier = TieredTier(table(Path(sys.argv[1])))
train(tier, STEPS)
assert tier.disk.stats().staged_rows > 0
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_rows_that_were_not_written_yet_outlive_a_killed_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path), str(Path(__file__).parent)]
    child = subprocess.run(command, check=False, timeout=120, capture_output=True, text=True)
    assert child.returncode == -signal.SIGKILL, child.stderr
    memory = RamTier(hr.Table(dim=4, optimizer=hr.Adagrad(lr=0.5)))
    train(memory, STEPS)
    tier = TieredTier(table(tmp_path))
    assert tier.attached is not None
    assert tier.attached.rows == len(memory)
    keys = np.arange(KEYS, dtype=np.uint64)
    ours, theirs = tier.whole_rows(keys), memory.whole_rows(keys)
    assert np.array_equal(ours.fields["version"], theirs.fields["version"])
    assert np.array_equal(ours.values, theirs.values)
    assert np.array_equal(ours.state, theirs.state)
    train(tier, 3)  # it goes on
    assert tier.verify() == []
    tier.close()
    memory.close()
    assert [path.name for path in tmp_path.glob("hotrow-*")] == []
