"""The table of commands in cli/__init__.py stands for files that are imported when a command runs."""

from inspect import cleandoc

import pytest

from hotrow.cli import COMMANDS, load
from unit.cli.conftest import Command


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_all_commands_says_what_the_command_s_own_help_says(name: str) -> None:
    own = cleandoc(load(name).help).partition("\n\n")[0]
    assert " ".join(own.split()) == COMMANDS[name]


def test_a_command_gets_its_own_options_and_none_of_the_table_s(hotrow: Command) -> None:
    done = hotrow("train", "--help")
    assert done.exit_code == 0
    assert "--resume" in done.output
    assert "--install-completion" not in hotrow("data", "--help").output


@pytest.mark.parametrize("command", [(), ("train",), ("predict",), ("data", "describe"), ("bench", "store")])
def test_help_shows_a_switch_without_a_value(command: tuple[str, ...], hotrow: Command) -> None:
    assert "<bool>" not in hotrow(*command, "--help").output


def test_a_group_finds_its_commands(hotrow: Command) -> None:
    assert "--rounds" in hotrow("bench", "store", "--help").output


@pytest.mark.parametrize(("typed", "code"), [("trian", 2), ("train", 2)])
def test_a_wrong_command_line_is_refused(typed: str, code: int, hotrow: Command) -> None:
    done = hotrow(typed)
    assert done.exit_code == code
    assert typed in done.stderr


def test_control_characters_of_a_wrong_command_line_are_not_printed(hotrow: Command) -> None:
    done = hotrow("new", "a", "b\x1b[31m\x07")
    assert done.exit_code == 2
    assert "\x1b" not in done.stderr
    assert "\\x1b[31m" in done.stderr
