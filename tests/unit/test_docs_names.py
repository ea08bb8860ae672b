"""Names in the documentation exist: commands with their options, and dotted names of the package."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hotrow.cli import app, load

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"(?<![\w./-])(?<!import )(?<!from )hotrow((?: +[^\s`|;&#]+)+)")
DOTTED = re.compile(r"(?<![\w./-])(?:hotrow|hr)(?:\.[A-Za-z_]\w*)+")
NOT_CODE = re.compile(r"\.(?:toml|py|md|svg|json|key|csv|rows)$")


def commands() -> dict[tuple[str, ...], set[str]]:
    """The options of every command and subcommand, by its words."""

    def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], set[str]]]:
        options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        yield words, {"--help", "-h", *(option for option in options if option.startswith("-"))}
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner if words else load(name), (*words, name))

    return dict(walk(typer.main.get_command(app), ()))


def command_faults(text: str, known: dict[tuple[str, ...], set[str]]) -> list[str]:
    """Commands and options in code of a page that the command line does not have."""
    found = []
    for line in code_of(text):
        for match in COMMAND.finditer(line):
            words = match[1].split()
            command: tuple[str, ...] = ()
            while len(command) < len(words) and (*command, words[len(command)]) in known:
                command = (*command, words[len(command)])
            if not command and re.fullmatch(r"[a-z]+", words[0]):
                found.append(f"hotrow {words[0]}: there is no such command")
                continue
            options = [word.split("=")[0].rstrip(",.:") for word in words if word.startswith("--")]
            found += [
                f"hotrow {' '.join(command)} {option}: there is no such option"
                for option in options
                if option not in known[command] | known[()]
            ]
    return found


def dotted_faults(text: str) -> list[str]:
    """Dotted names in code of a page that do not import."""
    names = {match[0] for line in code_of(text) for match in DOTTED.finditer(line) if not NOT_CODE.search(match[0])}
    return [f"{name}: cannot be imported" for name in sorted(names) if not importable(name)]


def importable(name: str) -> bool:
    parts = name.replace("hr.", "hotrow.", 1).split(".") if name.startswith("hr.") else name.split(".")
    value: object = importlib.import_module("hotrow")
    for place, part in enumerate(parts[1:], 2):
        if hasattr(value, part):
            value = getattr(value, part)
            continue
        try:
            value = importlib.import_module(".".join(parts[:place]))
        except ImportError:
            return False
    return True


def code_of(text: str) -> Iterator[str]:
    """Lines of code blocks, and code between backticks."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line
        else:
            yield from re.findall(r"`([^`]+)`", line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_on_a_page_exist(page: Path) -> None:
    assert command_faults(page.read_text(encoding="utf-8"), commands()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_dotted_names_on_a_page_import(page: Path) -> None:
    assert dotted_faults(page.read_text(encoding="utf-8")) == []


def test_names_that_do_not_exist_are_found() -> None:
    text = "`hotrow tarin a.toml`, `hotrow train a.toml --rezume`, `hotrow.nn.EmbedingBag`, `hr.Trianer`, `hotrow.toml`"
    assert command_faults(text, commands()) == [
        "hotrow tarin: there is no such command",
        "hotrow train --rezume: there is no such option",
    ]
    assert dotted_faults(text) == ["hotrow.nn.EmbedingBag: cannot be imported", "hr.Trianer: cannot be imported"]
