"""Commands run in this process, in a folder with a small data set and a finished run."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hotrow.cli import app
from small_run import trained, write_data

Command = Callable[..., Result]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """runs/small, beside the config and the data it was trained on."""
    return trained(write_data(tmp_path_factory.mktemp("cli")))


@pytest.fixture
def hotrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> Result:
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, [str(argument) for argument in arguments])

    return run
