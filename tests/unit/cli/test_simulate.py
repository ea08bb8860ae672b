"""`hotrow simulate`: figures on standard output, progress on standard error, everything else in files."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from hotrow.cli.simulate import SimulationBar, tables
from hotrow.sim.study.file import preset_names
from hotrow.sim.study.study import Calibrated, ModeProgress, Report, Simulation
from simulations import config, outcomes
from unit.cli.conftest import Command

SMALL = """
[run]
samples = 2_000
[cluster]
workers = 4
local_batch = 10
speeds = { sample_s = 0.1, stragglers = [{ workers = [0], factor = 3.0 }] }
[modes.sync]
[modes.gba]
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_the_modes_stand_side_by_side(hotrow: Command, small: Path) -> None:
    done = hotrow("simulate", small)
    assert done.exit_code == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["sync", "gba"]
    cells = {row[:20].strip(): row[20:].split() for row in rows}
    assert cells["mode"] == ["sync", "gba"]
    assert cells["samples applied"] == ["2,000", "2,000"]
    assert cells["steps"] == ["50", "50"]
    assert "sync: 13.3 samples/s over 2 min 30 s of virtual time" in done.stderr


def test_one_mode_alone_and_changed_settings(hotrow: Command, small: Path) -> None:
    done = hotrow("simulate", small, "--mode", "gba", "--set", "run.samples=400", "--set", "modes.gba.tolerance=2")
    assert done.stdout.splitlines()[0].split() == ["gba"]
    assert "tolerance 2" in done.stdout


def test_the_json_file_has_everything(hotrow: Command, small: Path) -> None:
    done = hotrow("simulate", small, "--json", "figures.json")
    assert done.exit_code == 0, done.stderr
    figures = json.loads(Path("figures.json").read_text())
    assert (figures["complete"], list(figures["modes"])) == (True, ["sync", "gba"])
    sync = figures["modes"]["sync"]
    assert sync["qps"] == pytest.approx(40 / 3)
    assert sync["statistics"]["gradient"] == {
        "total": 200, "mean": 0, "variance": 0, "largest": 0, "values": [0], "counts": [200]}  # fmt: skip
    assert sync["workers"]["0"]["batches"] == 50
    assert (sync["metrics"], sync["began"][0]["title"]) == (None, "sync")
    assert figures["config"]["cluster"]["speeds"]["stragglers"][0]["factor"] == 3.0


@pytest.mark.parametrize("name", ["small.html", "small.svg"])
def test_the_picture_is_written_and_its_path_is_the_last_line(hotrow: Command, small: Path, name: str) -> None:
    done = hotrow("simulate", small, "--picture", name)
    assert done.stdout.splitlines()[-1] == name
    assert "Activity of the first workers at the start" in Path(name).read_text()


def test_presets_are_listed_shown_and_run(hotrow: Command) -> None:
    listed = hotrow("simulate", "--list").stdout
    assert [line.split()[0] for line in listed.splitlines()] == preset_names()
    shown = hotrow("simulate", "gba-criteo", "--show").stdout
    Path("mine.toml").write_text(shown)
    own = hotrow("simulate", "mine.toml", "--set", "run.samples=4_000_000")
    preset = hotrow("simulate", "gba-criteo", "--set", "run.samples=4_000_000")
    assert own.exit_code == 0, own.stderr
    assert own.stdout == preset.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "FILE.toml is missing: name a config, or a preset that --list shows"),
        (["gba-crit"], "gba-crit: there is no such file, and no preset of this name: did you mean gba-criteo?"),
        (["small.toml", "--mode", "async"], "mode 'async': the file has no such label; it has sync, gba"),
        (["small.toml", "--picture", "x.png"], "--picture x.png: is drawn as .html or .svg: give it such a name"),
        (["small.toml", "--picture", "no/x.svg"], "--picture no/x.svg: the folder no does not exist"),
        (["small.toml", "--json", "no/x"], "--json no/x: the folder no does not exist"),
        (["small.toml", "--set", "run.samples=0"], "small.toml: run.samples=0: Input should be greater"),
        (["small.toml", "--show"], "small.toml: there is no such file, and no preset of this name"),
    ],
)
def test_trouble_is_one_sentence_with_exit_code_2(
    hotrow: Command, small: Path, arguments: list[str], sentence: str
) -> None:
    done = hotrow("simulate", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"hotrow: {sentence}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_ctrl_c_shows_the_modes_that_are_done(hotrow: Command, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Simulation.__iter__

    def broken(self: Simulation) -> Iterator[Report]:
        for report in whole(self):
            if isinstance(report, ModeProgress) and report.place == 2:
                raise KeyboardInterrupt
            yield report

    monkeypatch.setattr(Simulation, "__iter__", broken)
    done = hotrow("simulate", small, "--json", "figures.json", "--picture", "x.svg")
    assert done.exit_code == 130
    assert "interrupted: 1 of 2 modes are done" in done.stderr
    assert done.stdout.splitlines()[0].split() == ["sync"]
    figures = json.loads(Path("figures.json").read_text())
    assert (figures["complete"], list(figures["modes"])) == (False, ["sync"])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(*reports: Report, every_s: float = 6.0) -> list[str]:
    text, clock = io.StringIO(), Clock()
    with SimulationBar(2, console=Console(file=text, width=200), clock=clock) as bar:
        for report in reports:
            clock.now += every_s
            bar.report(report)
    return text.getvalue().splitlines()


def test_the_bar_tells_samples_rate_and_virtual_time() -> None:
    by_samples = ModeProgress("gba", 2, seconds=90.0, samples=600, seconds_total=None, samples_total=1_800)
    assert shown(by_samples) == ["600 of 1,800 samples  100/s  virtual 1 min 30 s  gba 2/2"]
    by_time = ModeProgress("gba", 1, seconds=60.0, samples=600, seconds_total=180.0, samples_total=None)
    assert shown(by_time) == ["60 of 180 s of virtual time  10/s  600 samples  gba 1/2"]
    unknown = ModeProgress("gba", 1, seconds=60.0, samples=600, seconds_total=None, samples_total=None)
    assert shown(unknown) == ["600 samples  100/s  virtual 1 min  gba 1/2"]


def test_the_rate_of_a_mode_is_its_own() -> None:
    (outcome,) = outcomes(config(), "sync").values()
    then = ModeProgress("gba", 2, seconds=1.0, samples=600, seconds_total=None, samples_total=None)
    assert shown(outcome, then)[-1] == "600 samples  100/s  virtual 1.0 s  gba 2/2"


def test_what_was_measured_is_told_as_options() -> None:
    told = shown(Calibrated({"cluster.network.calibrate": False, "cluster.network.latency_s": 1e-05}))
    assert told == [
        "measured on this machine: --set cluster.network.calibrate=false --set cluster.network.latency_s=1e-05"
    ]


def test_modes_that_do_not_fit_beside_the_others_follow_below() -> None:
    found = list(outcomes(config(modes={"async": {}})).values())
    assert [len(table.columns) - 1 for table in tables(found, 200)] == [3]
    assert [len(table.columns) - 1 for table in tables(found, 50)] == [2, 1]
    assert [len(table.columns) - 1 for table in tables(found, 10)] == [1, 1, 1]
    for table in tables(found, 50):
        text = io.StringIO()
        Console(file=text, width=50).print(table)
        assert len(text.getvalue().splitlines()) == table.row_count + 1  # no cell is broken
    assert list(tables([], 80)) == []
