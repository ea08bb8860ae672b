"""A process that is killed while it saves leaves a checkpoint that loads: the newest one that was finished.

The kills are in kill_saves.py, which runs alone so that its forks start from a process without threads.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TABLES: list[dict[str, Any]] = [{}, {"capacity": 1500}]


def run_kills(kills: int, seed: int, folder: Path, settings: dict[str, Any]) -> None:
    script = Path(__file__).with_name("kill_saves.py")
    command = [sys.executable, str(script), str(kills), str(seed), str(folder), json.dumps(settings)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert run.returncode == 0, f"to replay: {' '.join(command)}\n{run.stdout}{run.stderr}"


@pytest.mark.parametrize("settings", TABLES)
def test_killed_during_saves_a_run_has_its_newest_checkpoint_whole(settings: dict[str, Any], tmp_path: Path) -> None:
    run_kills(15, 1, tmp_path, settings)


@pytest.mark.slow
@pytest.mark.parametrize("settings", TABLES)
def test_a_hundred_kills_during_saves(settings: dict[str, Any], tmp_path: Path) -> None:
    run_kills(100, 2, tmp_path, settings)
