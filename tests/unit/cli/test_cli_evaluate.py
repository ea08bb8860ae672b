"""`hotrow evaluate`: the newest run unless told else, its test data unless told else, and it says which."""

import json
import os
import shutil
from pathlib import Path

import pytest

from small_run import clicks, write_csv
from unit.cli.conftest import Command


def figures(text: str) -> dict[str, str]:
    return {line.rsplit(None, 1)[0].strip(): line.rsplit(None, 1)[1] for line in text.splitlines()}


def test_the_newest_run_and_its_test_data_are_taken_and_named(hotrow: Command, finished: Path) -> None:
    os.chdir(finished.parent.parent)
    done = hotrow("evaluate")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("run runs/small, on its test data\n")
    found = figures(done.stdout)
    assert list(found) == ["AUC", "logloss", "normalised entropy", "calibration", "rows"]
    assert found["rows"] == "1,000"
    told = json.loads((finished / "evaluation.json").read_text())["test"]["metrics"]["auc"]
    assert found["AUC"] == f"{told:.4f}"


def test_other_files_are_evaluated_and_written_down(hotrow: Command, finished: Path, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write_csv(tmp_path / name, clicks(200, seed=9)[0])
    done = hotrow("evaluate", "--run", finished, "--on", "a.csv", "--on", "b.csv", "--json", "found.json")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith(f"run {finished}, on a.csv, b.csv\n")
    found = json.loads(Path("found.json").read_text())
    assert (found["run"], found["on"], found["rows"], found["malformed"]) == (str(finished), ["a.csv", "b.csv"], 400, 0)
    assert 0.7 < found["auc"] < 1
    assert 0.2 < found["logloss"] < 0.69


def test_one_class_alone_has_no_auc_and_says_so(hotrow: Command, finished: Path, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [["1", *row[1:]] for row in clicks(50, seed=9)[0]])
    done = hotrow("evaluate", "--run", finished, "--on", "a.csv", "--json", "found.json")
    assert figures(done.stdout)["AUC"] == "unknown"
    assert json.loads(Path("found.json").read_text())["auc"] is None


def test_malformed_lines_are_told(hotrow: Command, finished: Path, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", [*clicks(500, seed=9)[0], ["perhaps", "u", "i", "1"]])
    done = hotrow("evaluate", "--run", finished, "--on", "a.csv")
    assert "1 malformed line was left out; the first: a.csv line 502: clicked? 'perhaps' is no number" in done.stderr
    assert figures(done.stdout)["rows"] == "500"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "there is no run with a checkpoint in"),
        (("--run", "nothing"), "hotrow: nothing: there is no checkpoint in it: name the folder of a run"),
        (("--run", "RUN", "--on", "no.csv"), "hotrow: no.csv: there is no such file"),
        (("--run", "RUN", "--json", "no/a.json"), "hotrow: --json no/a.json: the folder no does not exist"),
    ],
)
def test_faults_are_sentences(arguments: tuple[str, ...], told: str, hotrow: Command, finished: Path) -> None:
    done = hotrow("evaluate", *(str(finished) if each == "RUN" else each for each in arguments))
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr


def test_a_damaged_checkpoint_is_told(hotrow: Command, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copy")
    rows = tmp_path / "copy/checkpoint/000001/tables/0/0-of-1.arrow"
    rows.write_bytes(rows.read_bytes()[:-10])
    done = hotrow("evaluate", "--run", "copy")
    assert done.exit_code == 2
    assert "tables/0/0-of-1.arrow" in done.stderr
