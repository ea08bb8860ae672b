"""Text from files shows what is in it and commands nothing."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from hotrow.printable import one_line, printable

CLI = Path(__file__).parents[2] / "src" / "hotrow" / "cli"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("a\rb\x07\x08\x00\x7f", "a\\x0db\\x07\\x08\\x00\\x7f"),
        ("\x9b31m", "\\x9b31m"),  # the one-byte beginning of a sequence
        ("gpj\u202etxt", "gpj\\u202etxt"),
        ("\u2066\u2029\u200f", "\\u2066\\u2029\\u200f"),
        ("caf\udce9", "caf\\udce9"),  # a byte of a file's name that is no UTF-8
        ("preis in €, ü, 日本, \\x1b", "preis in €, ü, 日本, \\x1b"),
    ],
)
def test_what_commands_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
    shown.encode()


def test_lines_and_tabs_stay_unless_one_line_is_wanted() -> None:
    assert printable("a\n\tb") == "a\n\tb"
    assert one_line("a\n\tb") == "a\\n\\tb"


def test_commands_reach_the_terminal_in_no_other_way() -> None:
    """`echo` and `Screen` of screen.py make text printable; another way would print control characters of a file."""
    direct = {"Console", "Text", "print", "secho"}
    for path in CLI.glob("*.py"):
        if path.name == "screen.py":
            continue
        tree = ast.parse(path.read_text())
        ours = any(isinstance(node, ast.ImportFrom) and node.module == "hotrow.cli.screen" for node in ast.walk(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name, of_module = _called(node.func)
                assert name not in direct, f"{path.name} line {node.lineno}"
                assert name != "echo" or (ours and not of_module), f"{path.name} line {node.lineno}"


def _called(function: ast.expr) -> tuple[str, bool]:
    """The name of a function that is called, and whether it is called as that of a module, as typer.echo."""
    match function:
        case ast.Name(name):
            return name, False
        case ast.Attribute(ast.Name("typer" | "click" | "rich"), name):
            return name, True
        case _:
            return "", False


def test_log_lines_warnings_and_tracebacks_of_the_command_are_printable() -> None:
    program = (
        "import logging, threading, warnings\n"
        "from hotrow.cli.screen import make_faults_printable\n"
        "make_faults_printable()\n"
        "logging.getLogger('hotrow.run').warning('role %s', '\\x1b[2J')\n"
        "warnings.warn('column \\x1b[3J')\n"
        "thread = threading.Thread(target=lambda: int('\\x1b[32m'), name='\\x1b[33m')\n"
        "thread.start(); thread.join()\n"
        "raise RuntimeError('\\x1b[31m')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "\x1b" not in done.stderr
    assert "role \\x1b[2J" in done.stderr
    assert "RuntimeError: \\x1b[31m" in done.stderr
    assert "UserWarning: column \\x1b[3J" in done.stderr
    assert "Exception in thread \\x1b[33m:" in done.stderr
