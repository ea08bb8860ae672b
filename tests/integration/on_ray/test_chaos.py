"""`hotrow chaos`: a cluster under random kills and cut links loses nothing silently, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def chaos(folder: Path, minutes: float, seed: int, timeout_s: float) -> dict[str, Any]:
    """Run the command; its document, where everything agreed."""
    file = folder / "chaos.json"
    command = [str(Path(sys.executable).with_name("hotrow")), "chaos", "--minutes", str(minutes), "--seed", str(seed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--json", str(file)], capture_output=True, text=True, timeout=timeout_s, env=environment, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def check(found: dict[str, Any], kills: int) -> None:
    killed = [each for each in found["injected"] if each["kind"] == "kill" and each["role"] is not None]
    assert len(killed) >= kills
    assert found["agrees"]
    assert found["faults"] == []
    assert found["counts"]["trainers_lost"] >= 1
    assert all(each["samples"] for each in found["ledger"])
    assert all(abs(each["gap"]) <= 0.002 for each in found["auc"])


@pytest.mark.timeout(600)
def test_a_run_under_faults_agrees_with_the_ledger(tmp_path: Path) -> None:
    """A quarter of a minute under faults, and the start of Ray and of two clusters, and training without faults."""
    found = chaos(tmp_path, 0.25, 11, timeout_s=560)
    check(found, kills=2)
    assert {each["mode"] for each in found["ledger"]} == {"gba", "async", "sync", "hybrid"}
    assert len(found["auc"]) == 1


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_twenty_minutes_under_faults_agree_with_the_ledger(tmp_path: Path) -> None:
    found = chaos(tmp_path, 20, 12, timeout_s=3_500)
    check(found, kills=60)
    assert {each["mode"] for each in found["ledger"]} == {"gba", "async", "sync", "hybrid", "k_step"}
    assert len(found["auc"]) == 5
    (cached,) = found["cached"]
    assert cached["samples"] > 10_000
