"""Options of the scripts in this folder: what cannot be is refused before a long run, not at its end."""

import argparse
from collections.abc import Callable
from pathlib import Path


def whole_number(least: int) -> Callable[[str], int]:
    """Reads an option that must be this or more."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text}: must be a whole number, {least} or more")
        return int(text)

    return number


def options_with_json(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options that were given, and `--json`: a file in a folder that exists."""
    parser.add_argument("--json", type=Path, help="keep the result in this file")
    given = parser.parse_args()
    if given.json and not given.json.parent.is_dir():
        parser.error(f"--json {given.json}: there is no folder {given.json.parent}; make it first")
    if given.json and given.json.is_dir():
        parser.error(f"--json {given.json}: is a folder; name a file in it")
    return given
