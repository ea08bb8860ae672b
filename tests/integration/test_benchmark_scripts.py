"""The scripts in benchmarks/ run as they stand, on a slice of their job."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / name), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


def test_row_types_prints_a_line_for_each_type_and_keeps_every_auc(tmp_path: Path) -> None:
    kept = tmp_path / "row_types.json"
    done = run("row_types.py", "--samples", "16000", "--test-samples", "5000", "--seeds", "2", "--json", str(kept))
    assert done.returncode == 0, done.stderr
    _, _, *lines = done.stdout.splitlines()
    assert [line.split(" | ")[0] for line in lines] == ["| float32", "| float16", "| bfloat16"]
    result = json.loads(kept.read_text())
    aucs = {(line["seed"], line["type"]): line["auc"] for line in result["runs"]}
    assert len(aucs) == 6
    for seed in (0, 1):  # paired: the types differ by their rounding only
        assert aucs[seed, "float16"] == pytest.approx(aucs[seed, "float32"], abs=0.01)
        assert aucs[seed, "bfloat16"] == pytest.approx(aucs[seed, "float32"], abs=0.01)
    assert len(set(aucs.values())) == 6  # and rounding there was
    assert result["command"].startswith("python benchmarks/row_types.py --samples 16000")


def test_row_types_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    done = run("row_types.py", "--json", str(tmp_path / "nowhere" / "row_types.json"))
    assert done.returncode == 2
    assert "make it first" in done.stderr


@pytest.mark.slow
def test_accuracy_runs_its_jobs_and_says_what_was_reached(tmp_path: Path, data_dir: Callable[[str], Path]) -> None:
    data_dir("movielens_100k")
    kept = tmp_path / "accuracy.json"
    done = run("accuracy.py", "--only", "movielens one pass", "--seeds", "1", "--json", str(kept))
    assert done.returncode == 0, done.stderr
    found = json.loads(kept.read_text())["results"]["movielens one pass"]
    assert found["reached"] == (found["auc"] >= 0.71)
    assert 0.7 < found["auc"] < 0.75
    assert ("reached" if found["reached"] else "MISSED") in done.stdout


def test_accuracy_needs_to_know_where_the_samples_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOTROW_DATA", raising=False)
    done = run("accuracy.py", "--only", "criteo lr")
    assert done.returncode == 1
    assert "HOTROW_DATA is not set" in done.stderr
