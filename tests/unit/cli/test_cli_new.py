"""`hotrow new`: a file to start from, and nothing is written over."""

from pathlib import Path

from hotrow.run.starter import named_starter
from unit.cli.conftest import Command


def test_a_starter_is_written_and_the_next_step_is_told(hotrow: Command, tmp_path: Path) -> None:
    done = hotrow("new", "mine/first")
    assert done.exit_code == 0
    assert Path("mine/first/train.toml").read_text() == named_starter(Path("first"))
    assert done.stdout.splitlines()[0] == "mine/first/train.toml"
    assert "hotrow train mine/first/train.toml" in done.stdout
    assert [path.name for path in Path("mine/first").iterdir()] == ["train.toml"]


def test_a_second_one_is_refused(hotrow: Command) -> None:
    hotrow("new", "mine")
    Path("mine/train.toml").write_text("edited")
    done = hotrow("new", "mine")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "hotrow: mine/train.toml: exists: name another folder, or move the file away first\n"
    assert Path("mine/train.toml").read_text() == "edited"


def test_all_commands_are_named_with_what_they_do(hotrow: Command) -> None:
    shown = hotrow("--help").stdout
    for name in ("new", "data", "train", "evaluate", "predict", "bench", "segments", "--install-completion"):
        assert name in shown
    for name in ("train", "evaluate", "predict", "new", "data describe"):
        told = hotrow(*name.split(), "--help")
        assert told.exit_code == 0
        assert "Usage: " in told.stdout
