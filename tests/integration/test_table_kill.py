"""A table in a segment outlives its process: killed at any moment, the next one attaches and has lost at most the batch
in flight. The kills are in kill_table.py and kill_puts.py, which run alone so that forks start from a small process."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TABLES: list[dict[str, Any]] = [
    {},
    {"capacity": 1500},
    {"capacity": 1500, "eviction": "lfu", "type": "float16"},  # holds whole numbers to 2048
]


def run_kills(kills: int, seed: int, directory: Path, settings: dict[str, Any]) -> None:
    run_script("kill_table.py", str(kills), str(seed), str(directory), json.dumps(settings))


def run_script(name: str, *arguments: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name(name)), *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert run.returncode == 0, f"to replay: {' '.join(command)}\n{run.stdout}{run.stderr}"


@pytest.mark.parametrize("settings", TABLES)
def test_killed_at_random_moments_a_table_loses_the_batch_in_flight_at_most(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    run_kills(12, 1, tmp_path, settings)


def test_killed_during_put_a_table_has_no_row_that_is_half_written(tmp_path: Path) -> None:
    run_script("kill_puts.py", "12", "3", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("settings", TABLES)
def test_a_hundred_kills_each(settings: dict[str, Any], tmp_path: Path) -> None:
    run_kills(100, 2, tmp_path, settings)
