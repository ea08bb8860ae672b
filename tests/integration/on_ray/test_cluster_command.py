"""The command on a cluster: train, look at it, interrupt, go on with other numbers of roles, lose one of them."""

import json
import os
import signal
import stat
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hotrow.cli import app
from hotrow.run import Run
from hotrow.run.cluster_file import read_cluster
from hotrow.trainer import Progress, Report
from hotrow.types import RoleId
from small_run import CONFIG, write_data

pytestmark = pytest.mark.usefixtures("one_ray")

TWO_TRAINERS = ("--engine", "ray", "--trainers", "2", "--shards", "1")
TWO_SHARDS = ("--engine", "ray", "--trainers", "1", "--shards", "2")


@pytest.fixture
def hotrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """The command, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Result:
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])

    return run


def at_first_progress(monkeypatch: pytest.MonkeyPatch, act: Callable[[Run], None]) -> None:
    """Do something while a run goes on, once."""
    iterate = Run.__iter__

    def watched(run: Run) -> Iterator[Report]:
        seen = False
        for report in iterate(run):
            if isinstance(report, Progress) and not seen:
                seen = True
                act(run)
            yield report

    monkeypatch.setattr(Run, "__iter__", watched)


def test_a_run_is_looked_at_interrupted_and_goes_on_with_other_roles(
    hotrow: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_data(tmp_path, CONFIG + "local_batch = 64\n")
    looks: list[Result] = []

    def look(run: Run) -> None:
        kept = run.folder / "cluster.key"
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert kept.read_text().strip() not in (run.folder / "cluster.json").read_text()
        looks.append(hotrow("cluster", "status", "--over", "0.1", "--json", "status.json"))
        looks.append(hotrow("cluster", "join", "trainer"))
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patched:
        at_first_progress(patched, look)
        done = hotrow("train", config, *TWO_TRAINERS)
    assert done.exit_code == 130, done.stderr
    assert "starting 1 shard and 2 trainers on " in done.stderr

    seen, joined = looks
    assert joined.exit_code == 2
    assert "run: trainers=3: in sync every trainer takes a share of the 2 local batches" in joined.stderr
    assert seen.exit_code == 0, seen.stderr
    roles = json.loads(Path("status.json").read_text())["roles"]
    assert list(roles) == ["shard 0", "trainer 0", "trainer 1"]
    assert all(not role["trouble"] for role in roles.values())
    assert 0 < sum(role["rows"] or 0 for role in roles.values()) <= 70
    assert all(roles[name]["batches"] > 0 for name in ("trainer 0", "trainer 1"))
    assert [line.split()[:2] for line in seen.stdout.splitlines()[1:]] == [name.split() for name in roles]

    assert not Path("runs/small/cluster.json").exists()
    assert not Path("runs/small/cluster.key").exists()
    assert hotrow("cluster", "status").exit_code == 2
    told = done.stderr.splitlines()[-1]
    assert told == f"resume with: hotrow train {config} {' '.join(TWO_TRAINERS)} --resume"

    again = hotrow("train", config, "--engine", "ray", "--trainers", 1, "--shards", 2, "--resume", "--json", "all.json")
    assert again.exit_code == 0, again.stderr
    assert json.loads(Path("all.json").read_text())["samples"] == 6000
    engine = tomllib.loads(Path("runs/small/config.toml").read_text())["run"]["engine"]
    assert (engine["name"], engine["trainers"], engine["shards"]) == ("ray", 1, 2)
    assert "on ray (2 shards and 1 trainer)" in Path("runs/small/report.html").read_text()

    alone = hotrow("evaluate", "--json", "alone.json")  # in this process
    assert alone.exit_code == 0, alone.stderr
    found = json.loads(Path("all.json").read_text()), json.loads(Path("alone.json").read_text())
    assert found[1]["auc"] == pytest.approx(found[0]["test_auc"], abs=1e-6)

    local = hotrow("train", config, "--set", "run.name=local", "--json", "local.json")
    assert local.exit_code == 0, local.stderr
    assert keys_of(Path("runs/local")) == keys_of(Path("runs/small"))
    assert json.loads(Path("local.json").read_text()).keys() == found[0].keys()
    assert found[0]["test_auc_error"] == 0.0, "few samples: all of them are kept"


def keys_of(folder: Path) -> dict[str, set[str]]:
    """The figures of progress and evaluations that a run has written."""
    found: dict[str, set[str]] = {}
    for line in (folder / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["kind"] in ("progress", "evaluation"):
            mine = {name for name in event if event[name] is not None and name != "staleness"}
            found[event["kind"]] = found.get(event["kind"], set()) | mine | set(event.get("metrics", ()))
    assert {"auc", "auc_error", "logloss", "calibration"} <= found["progress"] & found["evaluation"]
    pictures = json.loads((folder / "evaluation.json").read_text())["test"]
    return found | {"pictures": set(pictures), "figures": set(pictures["metrics"])}


@pytest.mark.usefixtures("quick_stop")
def test_a_role_that_is_lost_ends_the_run_with_its_name_and_the_checkpoint_stays(
    hotrow: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_data(tmp_path, CONFIG.replace("epochs = 2", "epochs = 200\ncheckpoint_every = 100"))

    def kill(run: Run) -> None:
        assert run.saved  # waits for the checkpoint that is being written
        os.kill(read_cluster(run.folder).facts.roles[RoleId("shard", 1)].pid, signal.SIGKILL)

    with monkeypatch.context() as patched:
        at_first_progress(patched, kill)
        done = hotrow("train", config, *TWO_SHARDS, "--set", "run.engine.replace_lost=0")
    assert done.exit_code == 2, done.stderr
    assert "a role of the cluster is lost, resume from the last checkpoint with: hotrow train" in done.stderr
    assert "shard 1" in done.stderr.splitlines()[-1]
    assert not Path("runs/small/cluster.json").exists()
    assert not Path("runs/small/cluster.key").exists()
    assert "since the last checkpoint is not kept" in Path("runs/small/report.html").read_text()
    assert hotrow("evaluate").exit_code == 0
