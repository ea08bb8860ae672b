"""Typical mistakes: each is refused before training with a sentence, or is a warning, and leaves nothing behind."""

import json
import random
from pathlib import Path

import pytest

from unit.cli.conftest import Command

CONFIG = """
[data]
train = "rows.csv"
label = "y"
ids = ["user", "item"]
split = { by = "fraction", test = 0.2 }

[model]
name = "lr"

[tables.default]
dim = 1

[run]
global_batch = 64
threads = 1
tensorboard = false
"""
TIME = "time = 'when'\nsplit = { by = 'time', test = 2025-01-01 }\n"


def write_rows(
    rows: int = 300, *, labels: tuple[int, ...] = (0, 1), delimiter: str = ",", encoding: str = "utf-8", extra: str = ""
) -> None:
    """rows.csv with 100 users and 10 items; `extra` is the text of a further column, "when"."""
    rng = random.Random(0)
    drawn = [[str(rng.choice(labels)), f"ü{rng.randrange(100)}", str(rng.randrange(10)), extra] for _ in range(rows)]
    width = 4 if extra else 3
    lines = [delimiter.join(row[:width]) for row in [["y", "user", "item", "when"], *drawn]]
    Path("rows.csv").write_text("\n".join(lines) + "\n", encoding=encoding)


@pytest.fixture
def config(hotrow: Command) -> Path:
    """A config for rows.csv, in the folder of the command."""
    assert hotrow is not None
    Path("a.toml").write_text(CONFIG)
    return Path("a.toml")


def test_a_test_part_without_rows_is_refused_before_training(hotrow: Command, config: Path) -> None:
    write_rows(2)
    done = hotrow("train", config)
    assert done.exit_code == 2
    assert done.stderr == (
        "hotrow: the test part of the data holds no rows: change data.split or data.test, or leave the test out\n"
    )
    assert not Path("runs").exists()


def test_a_test_period_without_rows_is_refused_before_training(hotrow: Command, config: Path) -> None:
    write_rows(extra="2024-03-01T00:00:00")
    config.write_text(CONFIG.replace('split = { by = "fraction", test = 0.2 }\n', TIME))
    done = hotrow("train", config)
    assert done.exit_code == 2
    assert "no row from 2025-01-01 00:00:00 UTC on" in done.stderr
    assert done.stderr.endswith("; this is the test part of the data\n")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("rows", "labels", "told"),
    [
        (300, (1, 2), "hotrow: a label is 2: must be from 0 to 1"),
        (0, (0, 1), "hotrow: the train part of the data holds"),
    ],
)
def test_data_that_cannot_be_trained_on_leave_no_run(
    rows: int, labels: tuple[int, ...], told: str, hotrow: Command, config: Path
) -> None:
    write_rows()
    assert hotrow("train", config, "--set", "run.name=good").exit_code == 0
    write_rows(rows, labels=labels)
    done = hotrow("train", config)
    assert done.exit_code == 2
    assert told in done.stderr
    assert "resume" not in done.stderr
    assert [folder.name for folder in Path("runs").iterdir()] == ["good"]
    write_rows()
    assert hotrow("evaluate").stderr.startswith("run runs/good, on its test data\n")


def test_a_resume_that_trains_nothing_says_nothing_of_a_resume(hotrow: Command, config: Path) -> None:
    write_rows()
    hotrow("train", config)
    before = Path("runs/a/config.toml").read_text()
    done = hotrow("train", config, "--resume", "--set", "run.global_batch=128")
    assert done.exit_code == 2
    assert "stopped:" not in done.stderr
    assert Path("runs/a/config.toml").read_text() == before


def test_a_resume_with_another_seed_names_the_setting_with_both_values(hotrow: Command, config: Path) -> None:
    write_rows()
    hotrow("train", config)
    done = hotrow("train", config, "--resume", "--set", "run.seed=1000")
    assert done.exit_code == 2
    assert done.stderr == (
        "hotrow: run.seed=1,000: the run in runs/a was trained with run.seed=0: set it back, or start another run with "
        "--set run.name=NAME\n"
    )


def test_a_finished_run_that_is_resumed_says_how_to_train_more(hotrow: Command, config: Path) -> None:
    write_rows()
    hotrow("train", config)
    done = hotrow("train", config, "--resume")
    assert done.exit_code == 0
    assert "note: the run is finished: run.epochs=1 is trained; raise run.epochs to train more" in done.stderr
    more = hotrow("train", config, "--resume", "--set", "run.epochs=2", "--json", "more.json")
    assert "finished" not in more.stderr
    assert json.loads(Path("more.json").read_text())["samples"] > 400


def test_a_checkpoint_of_another_version_is_named_with_both_versions(hotrow: Command, config: Path) -> None:
    write_rows()
    hotrow("train", config)
    manifest = Path("runs/a/checkpoint/000001/manifest.json")
    manifest.write_text(manifest.read_text().replace('"version": 3', '"version": 7'))
    for given in ((), ("--run", "runs/a")):
        done = hotrow("evaluate", *given)
        assert done.exit_code == 2
        assert (
            "checkpoint runs/a/checkpoint/000001: its version is 7 and this Hotrow reads 3: use the Hotrow"
            in done.stderr
        )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("dense.optimizer=adma", "there is no such optimizer (did you mean adam?); there are adadelta, "),
        ("tables.default.optimizer={name='adagard'}", "(did you mean adagrad?): must be one of 'sgd', "),
        ("model.name=deepmf", "model='deepmf': there is no such model (did you mean deepfm?); there are lr, fm, "),
        ("run.local_batch=2000000", "local_batch=2,000,000: must be from 1 to 64"),
    ],
)
def test_wrong_values_come_with_the_nearest_right_one(change: str, told: str, hotrow: Command, config: Path) -> None:
    write_rows()
    done = hotrow("train", config, "--set", change)
    assert done.exit_code == 2
    assert told in done.stderr


def test_a_file_of_another_dialect_names_the_setting(hotrow: Command, config: Path) -> None:
    write_rows(delimiter=";")
    assert "the columns look separated by ';': set data.delimiter = \";\"\n" in hotrow("train", config).stderr
    assert hotrow("train", config, "--set", 'data.delimiter=";"').exit_code == 0
    write_rows(encoding="latin-1")
    assert hotrow("train", config).stderr.endswith(
        "; set data.encoding to the encoding of the file, as data.encoding = 'latin-1'\n"
    )
    assert hotrow("train", config, "--set", "data.encoding=latin-1").exit_code == 0


def test_names_of_columns_in_another_encoding_name_the_setting(hotrow: Command, config: Path) -> None:
    Path("rows.csv").write_bytes("y,user,artikelgröße\n1,a,b\n".encode("latin-1"))
    told = hotrow("train", config).stderr
    assert told.endswith("; they are not utf-8 text: set data.encoding, as data.encoding = 'latin-1'\n")


WARNINGS = {
    "few rows": (20, (0, 1), (), "the training data hold 17 rows, less than one step of run.global_batch=64: lower it"),
    "a small capacity": (300, (0, 1), ("tables.default.capacity=10",), "rows were evicted, its capacity is 10 rows"),
    "divergence": (300, (0, 1), ("tables.default.optimizer={name='sgd', lr=1e12}",),
                   "training diverges, lower the learning rate (tables.default.optimizer.lr=1,000,000,000,000, dense."),
    "one class": (300, (1,), (), "the test AUC is unknown: all 53 test rows have the label 1, and an AUC needs both"),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "labels", "changes", "told"), WARNINGS.values(), ids=WARNINGS)
def test_what_makes_a_result_worthless_is_a_warning_once(
    rows: int, labels: tuple[int, ...], changes: tuple[str, ...], told: str, hotrow: Command, config: Path
) -> None:
    write_rows(rows, labels=labels)
    done = hotrow("train", config, *(part for change in changes for part in ("--set", change)))
    assert done.exit_code == 0, done.stderr
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("note: ")]
    assert told in line
    assert "counted" not in done.stderr, "the last step of an epoch may be short"
    warned = [json.loads(each) for each in Path("runs/a/events.jsonl").read_text().splitlines()]
    assert [each["text"] for each in warned if each["kind"] == "warning"] == [line.removeprefix("note: ")]


def test_evaluate_says_why_there_is_no_auc(hotrow: Command, config: Path) -> None:
    write_rows()
    hotrow("train", config)
    write_rows(labels=(0,))
    done = hotrow("evaluate", "--on", "rows.csv")
    assert "note: the test AUC is unknown: all 300 test rows have the label 0, and an AUC needs both" in done.stderr


def test_predict_needs_the_columns_of_the_features_alone(hotrow: Command, config: Path) -> None:
    write_rows(extra="2024-03-01T00:00:00")
    config.write_text(CONFIG.replace("[model]", "time = 'when'\ngroup = 'y'\n[model]"))
    assert hotrow("train", config).exit_code == 0
    Path("new.csv").write_text("item,user\n3,ü1\n")
    done = hotrow("predict", "new.csv", "out.csv")
    assert done.exit_code == 0, done.stderr
    assert Path("out.csv").read_text().startswith("row,probability\n0,0.")


def test_the_best_state_that_comes_back_creates_no_rows(hotrow: Command, config: Path) -> None:
    write_rows(600)
    split = 'split = { by = "fraction", valid = 0.2, test = 0.2 }'
    config.write_text(CONFIG.replace('split = { by = "fraction", test = 0.2 }', split))
    changes = [
        "run.epochs=9",
        "run.early_stopping={metric='logloss', patience=1}",
        "tables.default.optimizer={name='sgd', lr=5.0}",
    ]
    done = hotrow("train", config, *(part for change in changes for part in ("--set", change)))
    assert "back to the state of epoch" in done.stderr
    table = json.loads(Path("runs/a/tables.json").read_text())["default"]
    assert table["created"] == table["rows"] > 100
