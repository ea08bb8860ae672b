"""A table in two tiers whose rows move, go and come again uses the same memory and space late as early."""

import subprocess
import sys
from pathlib import Path

import pytest


def churn(rounds: int, directory: Path, leak: str = "nothing") -> "subprocess.CompletedProcess[str]":
    script = Path(__file__).with_name("churn_tiers.py")
    command = [sys.executable, str(script), str(rounds), str(directory), leak]
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)


def test_memory_and_space_stay_the_same_while_rows_move(tmp_path: Path) -> None:
    run = churn(700, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(("leak", "grew"), [("memory", "heap"), ("space", "extents")])
def test_what_a_round_would_leak_is_noticed(leak: str, grew: str, tmp_path: Path) -> None:
    run = churn(700, tmp_path, leak)
    assert run.returncode != 0
    assert grew in run.stderr.rpartition("grew: ")[2], run.stdout + run.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_minutes_of_moving_rows(tmp_path: Path) -> None:
    run = churn(100_000, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
