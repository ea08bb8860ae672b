"""A disk tier whose process is killed at any moment has every row that was flushed, and no row that was erased."""

import subprocess
import sys
from pathlib import Path

import pytest


def run_kills(kills: int, seed: int, directory: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("kill_ssd.py")), str(kills), str(seed), str(directory)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert run.returncode == 0, f"to replay: {' '.join(command)}\n{run.stdout}{run.stderr}"


def test_killed_at_random_moments_a_disk_tier_has_what_was_flushed(tmp_path: Path) -> None:
    run_kills(12, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_twenty_minutes_of_kills(tmp_path: Path) -> None:
    run_kills(2000, 2, tmp_path)
