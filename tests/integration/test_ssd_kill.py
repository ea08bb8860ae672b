"""A disk tier whose process is killed at any moment has every row that was flushed, and no row that was erased.

Neither kills nor rounds of writes and erasures make its memory or its file grow.
"""

import subprocess
import sys
from pathlib import Path

import pytest


def run_kills(kills: int, seed: int, directory: Path, io: str, index: str, rounds: int) -> None:
    script = Path(__file__).with_name("kill_ssd.py")
    command = [sys.executable, str(script), str(kills), str(seed), str(directory), io, index, str(rounds)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert run.returncode == 0, f"to replay: {' '.join(command)}\n{run.stdout}{run.stderr}"


@pytest.mark.parametrize("index", ["memory", "disk"])
def test_killed_at_random_moments_a_disk_tier_has_what_was_flushed(index: str, tmp_path: Path) -> None:
    run_kills(8, 1, tmp_path, "auto", index, 600)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("index", ["memory", "disk"])
@pytest.mark.parametrize("io", ["auto", "threads"])  # auto: io_uring, whose writes may outlive their process
def test_ten_minutes_of_kills(io: str, index: str, tmp_path: Path) -> None:
    """Without a lock against late writes an erased row came back in 1 of 900 kills; with tombstones that are counted
    where they were first, the file was full for ever after 530."""
    run_kills(1200, 2, tmp_path, io, index, 40_000)
