"""Commands find a run by its name, also where a folder of that name holds its config."""

import shutil
from pathlib import Path

import pytest

from unit.cli.conftest import Command


@pytest.mark.parametrize(
    "given",
    [
        ("vectors", "small", "out.csv"),
        ("evaluate", "--run", "small"),
        ("predict", "{data}", "out.csv", "--run", "small"),
    ],
    ids=["vectors", "evaluate", "predict"],
)
def test_the_folder_of_a_config_does_not_hide_the_run_of_its_name(
    given: tuple[str, ...], hotrow: Command, finished: Path
) -> None:
    shutil.copytree(finished, "runs/small")
    Path("small").mkdir()  # as `hotrow new small` makes it
    Path("small/train.toml").touch()
    done = hotrow(*(each.format(data=finished.parents[1] / "test.csv") for each in given))
    assert done.exit_code == 0, done.stderr
    assert "run runs/small" in done.stderr


def test_a_folder_without_a_checkpoint_is_named_where_there_is_no_run_of_its_name(hotrow: Command) -> None:
    Path("small").mkdir()
    done = hotrow("evaluate", "--run", "small")
    assert done.exit_code == 2
    assert "small: there is no checkpoint in it: name the folder of a run, as runs/NAME" in done.stderr
