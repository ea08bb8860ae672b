"""The examples run as they stand, on a slice of their data."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)


def test_click_model_learns_from_a_slice_and_says_how_well() -> None:
    done = run("click_model.py", "--samples", "60000", "--test-samples", "20000", "--dim", "8", "--batch", "1024")
    assert done.returncode == 0, done.stderr
    found = re.search(r"^AUC +(\S+) on 20,000 held-out samples; the teacher .* has (\S+)$", done.stdout, re.M)
    assert found, done.stdout
    ours, best = map(float, found.groups())
    assert 0.65 < ours < best < 0.95
    assert "60,000 samples in" in done.stdout
    assert "samples/s  loss" in done.stderr  # plain lines: this is no terminal
    assert "\r" not in done.stdout + done.stderr


def test_own_mode_runs_in_the_simulator_and_in_a_trainer() -> None:
    done = run("own_mode.py")
    assert done.returncode == 0, done.stderr
    *simulated, trained = done.stdout.splitlines()
    assert len(simulated) == 3
    assert all("dropped as late" in line for line in (*simulated, trained))


def test_click_model_refuses_what_it_cannot_do() -> None:
    done = run("click_model.py", "--dim", "1")
    assert done.returncode == 2
    assert "--dim" in done.stderr


def test_movielens_days_prints_a_table_and_draws_it(tmp_path: Path, data_dir: Callable[[str], Path]) -> None:
    picture = tmp_path / "days.svg"
    ratings = str(data_dir("movielens_100k") / "ml-100k.inter.gz")
    done = run("movielens_days.py", ratings, "--last", "4", "--picture", str(picture))
    assert done.returncode == 0, done.stderr
    head, *days, total = done.stdout.splitlines()
    assert head.split() == ["day", "ratings", "means", "one", "pass", "replay"]
    assert len(days) == 4
    assert int(total.split()[1].replace(",", "")) == sum(int(day.split()[1].replace(",", "")) for day in days)
    assert all(0.6 < float(area) < 0.85 for area in total.split()[2:])
    drawn = ElementTree.fromstring(picture.read_text())
    assert len(drawn.findall(".//{*}polyline")) == 3
