"""Names and lines of files may hold a terminal's commands: none is printed raw, and none is read as markup."""

import json
from pathlib import Path

import pytest
from typer.testing import Result

from small_run import CONFIG, NAMES, clicks, write_data
from unit.cli.conftest import Command

ESCAPE = "\x1b]0;owned\x07\x1b[31m"
MARKUP = "[bold]x[/nothing]"
COLUMN = f"user{ESCAPE}{MARKUP}\x9b2J"
NAME = f"data {ESCAPE}.csv"


def hostile(folder: Path) -> Path:
    """A data set whose header and file names hold sequences, and a config that names them."""
    lines = [f"{clicked},{user}{ESCAPE},{item},{price}" for clicked, user, item, price in clicks(400, seed=1)[0]]
    header = ",".join([NAMES[0], COLUMN, *NAMES[2:]])
    bad = f"1,{ESCAPE},3,no number{ESCAPE}"
    (folder / NAME).write_text("\n".join([header, *lines, bad]) + "\n", encoding="utf-8")
    config = write_data(folder, CONFIG)
    text = CONFIG.replace('"train.csv"', json.dumps(NAME)).replace('"test.csv"', json.dumps(NAME))
    config.write_text(text.replace('"user id"', json.dumps(COLUMN).replace("\\u009b", "\\u009B")), encoding="utf-8")
    return config


def check_plain(done: Result, code: int = 0, shown: str = "\\x1b]0;owned") -> None:
    text = done.stdout + done.stderr
    assert done.exit_code == code, text
    assert not [each for each in text if each != "\n" and (ord(each) < 32 or 127 <= ord(each) < 160)], text
    assert shown in text
    assert "Traceback" not in text


@pytest.fixture
def run(hotrow: Command, tmp_path: Path) -> Path:
    done = hotrow("train", hostile(tmp_path), "--set", "run.epochs=1", "--set", "data.malformed=1")
    check_plain(done, shown="test  AUC")
    return tmp_path / "runs" / "small"


def test_data_describe(hotrow: Command, tmp_path: Path) -> None:
    done = hotrow("data", "describe", hostile(tmp_path))
    check_plain(done)
    assert f"user\\x1b]0;owned\\x07\\x1b[31m{MARKUP}\\x9b2J" in done.stdout  # whole, and not taken for markup
    assert "1 malformed line was left out" in done.stderr


def test_train_and_what_it_leaves(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "\x1b" not in page
    assert "data \\x1b]0;owned\\x07" in page  # of the line that was left out


def test_evaluate_and_predict(hotrow: Command, run: Path, tmp_path: Path) -> None:
    check_plain(hotrow("evaluate", "--on", NAME))
    check_plain(hotrow("predict", NAME, f"out{ESCAPE}.csv"))


def test_faults_of_files_and_columns(hotrow: Command, tmp_path: Path) -> None:
    config = hostile(tmp_path)
    check_plain(hotrow("train", config, "--set", "data.malformed=0"), 2)
    check_plain(hotrow("train", config, "--set", 'data.label="other"'), 2)
    check_plain(hotrow("train", f"no{ESCAPE}\nhotrow: all is well.toml"), 2, "\\nhotrow: all is well")
    check_plain(hotrow("train", config, "--set", f"run.name={ESCAPE}"), 2)
    check_plain(hotrow("evaluate", "--run", f"no{ESCAPE}"), 2)
    check_plain(hotrow("predict", f"no{ESCAPE}.csv", "out.csv"), 2, "hotrow: ")
    check_plain(hotrow("evaluate", f"one{ESCAPE}", f"more{ESCAPE}"), 2)


def test_segments(hotrow: Command, tmp_path: Path) -> None:
    (tmp_path / f"hotrow-{ESCAPE}-x.rows").write_bytes(b"no segment")
    check_plain(hotrow("segments", "--directory", tmp_path))
    check_plain(hotrow("segments", "rm", f"no{ESCAPE}"), 2)
    check_plain(hotrow("segments", "rm", tmp_path / f"hotrow-{ESCAPE}-x.rows"))
    assert not list(tmp_path.glob("*.rows"))


def test_a_name_that_is_no_utf8_is_told_and_ends_no_command(hotrow: Command, tmp_path: Path) -> None:
    check_plain(hotrow("train", "caf\udce9.toml"), 2, "caf\\udce9.toml")
