"""A run's folder may come from anywhere: the Python code that it names as its model runs only when it is trusted."""

import shutil
from pathlib import Path

import pytest

from small_run import CONFIG, write_data
from unit.cli.conftest import Command

OWN = """
from pathlib import Path

from torch import nn

Path("RAN").touch()


class Mine(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.top = nn.Linear(shape.numbers, 1)

    def forward(self, x):
        return self.top(x.numbers).squeeze(1)
"""


@pytest.fixture
def own(hotrow: Command, tmp_path: Path) -> Path:
    """The folder of a run with a model of its own; the mark that its code has run is gone."""
    write_data(tmp_path, CONFIG.replace('"lr"', '"own.py:Mine"'))
    (tmp_path / "own.py").write_text(OWN)
    done = hotrow("train", "small.toml", "--set", "run.epochs=1")  # named on the command line: the user's own
    assert done.exit_code == 0, done.stderr
    Path("RAN").unlink()
    return tmp_path / "runs" / "small"


def test_code_that_a_folder_names_runs_only_when_it_is_trusted(hotrow: Command, own: Path, tmp_path: Path) -> None:
    commands = [
        ("evaluate", "--run", own),
        ("evaluate",),
        ("predict", "test.csv", "out.csv", "--run", own),
        ("train", own / "config.toml", "--resume", "--set", "run.epochs=2"),
        ("train", own / "config.toml"),
    ]
    for command in commands:
        done = hotrow(*command)
        assert (done.exit_code, done.stdout) == (2, ""), command
        assert f"runs the Python file {tmp_path / 'own.py'}" in done.stderr
        assert "--trust" in done.stderr
        assert not Path("RAN").exists(), command
        done = hotrow(*command, "--trust")
        assert done.exit_code == 0, done.stderr
        assert Path("RAN").exists()
        Path("RAN").unlink()


def test_a_module_is_code_too(hotrow: Command, own: Path) -> None:
    text = (own / "config.toml").read_text()
    (own / "config.toml").write_text(text.replace(f'"{own.parents[1] / "own.py"}:Mine"', '"os.path:join"'))
    done = hotrow("evaluate", "--run", own)
    assert done.exit_code == 2
    assert "runs the Python module os.path" in done.stderr


def test_the_models_of_the_zoo_need_no_trust(hotrow: Command, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "copied")
    assert hotrow("evaluate", "--run", "copied").exit_code == 0
