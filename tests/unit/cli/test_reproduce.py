"""`hotrow reproduce`: the list, a run, and what is told where a name or a file is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from hotrow.reproduce.registry import EXPERIMENTS, Experiment
from hotrow.reproduce.results import Tell, promise, promise_lines
from unit.cli.conftest import Command


def counted(quick: bool, *, tell: Tell) -> dict[str, Any]:
    """Counts, and is done."""
    tell("counted to 3")
    return {"settings": {"to": 3}, "promises": [promise("three", True, "3")], "quick_size": quick, "gap": float("nan")}


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small experiment beside the real ones."""
    monkeypatch.setitem(EXPERIMENTS, "counting", Experiment("Counting to three", counted, promise_lines, 0.1))


def test_the_list_names_every_experiment_with_its_title_and_minutes(hotrow: Command) -> None:
    done = hotrow("reproduce", "--list")
    assert done.exit_code == 0
    shown = done.stdout.splitlines()
    assert [line.split()[0] for line in shown] == list(EXPERIMENTS)
    assert {"asgd-figure-3", "gba-table-5.2", "auto-day"} <= set(EXPERIMENTS)
    for line, experiment in zip(shown, EXPERIMENTS.values(), strict=True):
        assert f"{experiment.title} ({experiment.minutes:g} min)" in line


@pytest.mark.usefixtures("counting")
def test_a_run_shows_its_table_and_tells_how_far_it_is_on_standard_error(hotrow: Command) -> None:
    done = hotrow("reproduce", "counting")
    assert (done.exit_code, done.stdout) == (0, "holds  three: 3\n")
    assert done.stderr == "0 s of about 0.1 min: counted to 3\n"


@pytest.mark.usefixtures("counting")
def test_a_result_is_kept_as_json(hotrow: Command) -> None:
    done = hotrow("reproduce", "counting", "--quick", "--json", "kept.json")
    assert (done.exit_code, done.stdout) == (0, "small sizes: promises are not judged\n")
    kept = json.loads(Path("kept.json").read_text())
    assert (kept["name"], kept["title"], kept["quick"]) == ("counting", "Counting to three", True)
    assert (kept["quick_size"], kept["gap"], kept["promises"][0]["holds"]) == (True, None, True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gba-table-5.3"], "gba-table-5.3: there is no such experiment; did you mean gba-table-5.2?"),
        (["zzz"], "zzz: there is no such experiment; there are asgd-figure-3, "),
        ([], "NAME is missing: give the name of an experiment, --list shows them"),
        (
            ["auto-day", "--json", "none/kept.json"],
            "--json none/kept.json: the folder none does not exist, make it first",
        ),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(hotrow: Command, arguments: list[str], sentence: str) -> None:
    done = hotrow("reproduce", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"hotrow: {sentence}")


def test_every_experiment_can_be_run_quickly_and_shown() -> None:
    for name, experiment in EXPERIMENTS.items():
        assert name == name.lower()
        assert callable(experiment.run)
        assert callable(experiment.table)
        assert experiment.minutes > 0
