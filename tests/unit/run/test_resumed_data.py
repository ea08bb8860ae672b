"""A resume trains what is left of the same data or says why not; other data take a new run that starts from it."""

import json
import tomllib
from pathlib import Path

import pytest

import hotrow as hr
from hotrow.obs.events import read_events
from hotrow.run import Run, load_config
from hotrow.trainer import Evaluated, Remark, Report
from small_run import CONFIG, clicks, write_csv, write_data

STOPS = "early_stopping = { patience = 1, least = 0.5 }\n"  # no gain is large enough: it stops after two epochs


def newest_manifest(run: Path) -> Path:
    return max((run / "checkpoint").glob("*/manifest.json"))


def config_in(folder: Path, more: str = "") -> Path:
    config = CONFIG.replace('test = "test.csv"', 'test = "test.csv"\nvalid = "test.csv"')
    path = write_data(folder, f'{config}folder = "{folder / "runs"}"\n{more}')
    write_csv(folder / "april.csv", clicks(1000, seed=3)[0])
    return path


def finish(config: Path, *changes: str, **how: object) -> tuple[Run, list[Report]]:
    with Run(load_config(config, changes), **how) as run:  # type: ignore[arg-type]
        reports = list(run)
    return run, reports


def notes(reports: list[Report]) -> list[str]:
    return [report.sentence for report in reports if isinstance(report, Remark)]


@pytest.mark.parametrize(
    "files", ["april.csv", '["train.csv", "april.csv"]', '["april.csv", "train.csv"]'], ids=["other", "more", "first"]
)
def test_a_resume_on_other_files_is_refused_and_changes_nothing(files: str, tmp_path: Path) -> None:
    config = config_in(tmp_path, STOPS)
    run, _ = finish(config)
    before = (run.folder / "config.toml").read_text()
    sentence = r"data.train is .*april.csv.* was trained on .*train.csv: .*--from .*small"
    with pytest.raises(hr.ConfigError, match=sentence):
        finish(config, f"data.train={files}", "run.epochs=5", resume=True)
    assert (run.folder / "config.toml").read_text() == before


def test_a_file_that_a_glob_has_gained_is_refused(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    finish(config, "data.train=tr*.csv")
    write_csv(tmp_path / "tr2.csv", clicks(100, seed=4)[0])
    with pytest.raises(hr.ConfigError, match=r"data.train is .*tr2.csv, .*train.csv: the run in"):
        finish(config, "data.train=tr*.csv", resume=True)


def test_a_folder_of_data_may_move_and_a_changed_file_is_told(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    finish(config)
    (tmp_path / "moved").mkdir()
    (tmp_path / "train.csv").rename(tmp_path / "moved" / "train.csv")
    run, _ = finish(config, "data.train=moved/train.csv", "run.epochs=3", resume=True)
    assert run.summary["samples"] == 9000
    with (tmp_path / "moved" / "train.csv").open("a") as file:
        file.write("1,ü1,1,1.0\n")
    _, reports = finish(config, "data.train=moved/train.csv", "run.epochs=3", resume=True)
    assert "train.csv has changed since the checkpoint (" in notes(reports)[0]


def test_another_split_is_refused(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    finish(config)
    with pytest.raises(hr.ConfigError, match=r"data.split=\{'by': 'fraction', .*\}: the run .* with data.split=none"):
        finish(config, "data.test=none", 'data.split={ by = "fraction", test = 0.5 }', resume=True)
    with pytest.raises(
        hr.ConfigError, match=r"data.test=\{'next': 'day'\}: the run .* with data.test=none: set it back"
    ):
        finish(config, "data.valid=none", 'data.test={ next = "day" }', resume=True)


def test_a_new_run_from_a_trained_one_learns_on_with_other_data(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    first, _ = finish(config)
    schedule = 'run.schedule={ decay = "linear", over = 1000 }'
    run, reports = finish(config, "data.train=april.csv", "run.epochs=1", schedule, start_from=first.folder)
    assert run.folder == tmp_path / "runs" / "small-2"
    assert run.summary["samples"] == 7000, "samples count on from those of the first run"
    assert run.summary["rows"] == first.summary["rows"]
    first_valid = next(report for report in reports if isinstance(report, Evaluated))
    assert first_valid.metrics["auc"] == pytest.approx(first.summary["test_auc"], abs=0.02)
    lr = [event["lr"] for event in read_events(run.folder / "events.jsonl").events if event["kind"] == "progress"]
    assert 0 < lr[0] < 0.02, "the schedule begins with the new run"
    manifest = json.loads(newest_manifest(run.folder).read_text())
    assert manifest["about"]["began"] == 6000
    more, _ = finish(config, "data.train=april.csv", "run.epochs=2", "run.name=small-2", resume=True)
    assert more.summary["samples"] == 8000


def test_a_run_starts_from_another_with_its_network_rows_and_optimizer_state(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    first, _ = finish(config)
    with Run(load_config(config, ["data.train=april.csv"]), start_from=first.folder) as run:
        assert run.trainer.position is None
        (table,) = run.trainer.tables.tiers.values()
        assert len(table) == first.summary["rows"]["default"]
        assert run.trainer.optimizer is not None
        assert run.trainer.optimizer.state_dict()["state"]
        list(run)


@pytest.mark.parametrize("option", [{"resume": True}, {"day": "next"}, {"attach": True}])
def test_from_does_not_go_with_options_that_continue_a_run(option: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(hr.ConfigError, match=r"--from .*: starts a new run, --\w+ does not go with it"):
        finish(config_in(tmp_path), start_from=tmp_path, **option)


def test_from_a_folder_without_a_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hr.ConfigError, match=r"--from .*: there is no checkpoint in it: name a run, as runs/NAME"):
        finish(config_in(tmp_path), start_from=tmp_path)


def test_a_run_that_early_stopping_ended_says_so_and_trains_on_without_it(tmp_path: Path) -> None:
    config = config_in(tmp_path, STOPS)
    run, _ = finish(config, "run.epochs=5")
    assert run.summary["samples"] == 6000
    settings = (run.folder / "config.toml").read_text()
    again, reports = finish(config, "run.epochs=20", resume=True)
    assert again.summary["samples"] == 6000
    assert notes(reports) == [
        "the run is finished: early stopping ended it after epoch 2; to train more, "
        "raise run.early_stopping.patience=1, or set run.early_stopping=none"
    ]
    assert (run.folder / "config.toml").read_text() == settings, "nothing was trained with the new settings"
    onward, reports = finish(config, "run.epochs=3", "run.early_stopping=none", resume=True)
    assert onward.summary["samples"] == 9000
    assert notes(reports) == []
    assert "early_stopping" not in tomllib.loads((run.folder / "config.toml").read_text())["run"]
    assert tomllib.loads((run.folder / "config.toml").read_text())["run"]["epochs"] == 3


def test_a_checkpoint_that_does_not_name_its_data_is_not_resumed(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    run, _ = finish(config, "run.epochs=1")
    path = newest_manifest(run.folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"about": {}}))
    with pytest.raises(
        hr.InputError, match=r"does not say which data it was trained on: start a new run .* --from RUN"
    ):
        finish(config, resume=True)


def test_missing_values_count_once_for_each_epoch_that_is_trained(tmp_path: Path) -> None:
    config = config_in(tmp_path, STOPS)
    lines = (tmp_path / "train.csv").read_text().splitlines()
    lines[1:31] = [f"{line.rsplit(',', 1)[0]}," for line in lines[1:31]]
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n")
    run, _ = finish(config, "run.epochs=5")
    assert run.summary["samples"] == 6000
    assert [count for name, count in run.summary["counts"].items() if "missing" in name and count] == [30 * 2]
    again, _ = finish(config, "run.epochs=5", resume=True)
    assert not any("missing" in name and count for name, count in again.summary["counts"].items())
