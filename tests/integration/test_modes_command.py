"""`hotrow train` in every mode with two workers, from a config to the page; and as a program of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotrow.cli import app
from hotrow.modes import MODES
from hotrow.obs.events import read_events
from small_run import CONFIG, write_data

ROWS, EPOCHS, BATCH, WORKERS = 3000, 2, 128, 2
LOCAL = BATCH // WORKERS


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"), CONFIG)


def arguments(config: Path, folder: Path, *changes: str) -> list[str]:
    given = (f"run.folder={folder}", f"run.workers={WORKERS}", *changes)
    return ["train", str(config), *(part for change in given for part in ("--set", change)), "--json"]


@pytest.mark.parametrize("name", MODES)
def test_every_mode_trains_all_data_and_learns(name: str, config: Path, tmp_path: Path) -> None:
    changes = [f"run.mode={name}"]
    if name == "k_step":
        changes = ["run.mode={name='k_step', k=5, warmup=1500}", "dense.optimizer={name='kstepadam', lr=0.02}"]
    if name == "bulk_sync":
        changes = ["run.mode={name='bulk_sync', bulk=3}"]
    done = CliRunner().invoke(app, [*arguments(config, tmp_path, *changes), str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.stderr
    figures = json.loads((tmp_path / "out.json").read_text())
    told = figures["statistics"]
    assert figures["mode"] == name
    assert figures["test_auc"] > 0.8
    dropped = told["samples_dropped"].get("late", 0)
    assert told["samples_applied_rows"] + dropped == EPOCHS * ROWS
    assert figures["samples"] == told["samples_applied_rows"]
    assert told["granted"] == told["applied_rows"] + sum(told["dropped"].values()) == EPOCHS * -(-ROWS // LOCAL)
    if name in ("sync", "backup_workers", "k_step"):
        assert told["gradient"]["largest"] == told["ids"]["largest"] == 0
    assert figures["counts"].get("short_steps", 0) == told["short_steps"]
    page = Path(figures["report"]).read_text(encoding="utf-8")
    assert f"Trained in {name} by 2 workers: batches of 64 samples each, 128 in a global batch." in page


def test_the_program_runs_from_a_shell_and_says_what_a_mode_does(config: Path, tmp_path: Path) -> None:
    given = arguments(config, tmp_path, "run.mode=async", "run.epochs=1")
    command = [sys.executable, "-c", "from hotrow.cli import main; main()", *given, str(tmp_path / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "note: async applies 64 samples a step, the global batch is 128" in done.stderr
    assert "short step" not in done.stderr, "the last step of an epoch may be short"
    assert "note" not in done.stdout
    kinds = [event["kind"] for event in read_events(tmp_path / "small" / "events.jsonl").events]
    assert kinds[:3] == ["start", "mode", "remark"]


def test_sync_with_two_workers_is_one_worker_with_the_whole_batch(config: Path, tmp_path: Path) -> None:
    losses = []
    for workers in (1, 2):
        out = tmp_path / f"{workers}.json"
        given = [*arguments(config, tmp_path, f"run.workers={workers}", f"run.name=w{workers}"), str(out)]
        assert CliRunner().invoke(app, given).exit_code == 0
        losses.append(json.loads(out.read_text())["test_logloss"])
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


def test_auto_begins_in_sync_and_keeps_what_it_was_asked(config: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*arguments(config, tmp_path, "run.mode=auto"), str(tmp_path / "out.json")])
    assert done.exit_code == 0, done.stderr
    begun = next(event for event in read_events(tmp_path / "small" / "events.jsonl").events if event["kind"] == "mode")
    assert (begun["mode"], begun["chosen"]) == ("sync", "auto")
    assert 'name = "auto"' in (tmp_path / "small" / "config.toml").read_text()
