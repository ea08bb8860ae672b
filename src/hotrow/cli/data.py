"""`hotrow data`: what is in the files of a config."""

import os
from typing import Annotated

import typer

from hotrow.cli import formatting
from hotrow.cli.bars import Bar
from hotrow.cli.description import tables
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.screen import Screen
from hotrow.cli.train import Changes, ConfigFile
from hotrow.data.config import open_data
from hotrow.data.describe import describe as description
from hotrow.run import load_config

PIPED = 160  # columns of a pipe or a file: nothing is cut

app = typer.Typer(no_args_is_help=True, help="Look at the data of a config.")


@app.callback()
def data() -> None:
    """Look at the data of a config."""


@app.command()
def describe(
    file: ConfigFile,
    changes: Changes = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Read only this many rows.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Describe the training data: rows, labels, ids and their skew, numbers, days.

    With data.split that is the train part: rows to validate and to test on are left out.
    """
    check_writable("--json", json_file)
    config = load_config(file, changes or ()).data
    data = open_data(config)
    source, is_part = data.train, data.by_day is None and getattr(config, "split", None) is not None
    with Bar("rows") as bar:
        found = description(source, rows, watch=bar.rows)
        if source.trouble.malformed:
            bar.line(formatting.left_out(source.trouble))
    write_json(json_file, found.document() | {"part": "train" if is_part else "all"})
    console = Screen()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Screen(width=PIPED)
    for number, table in enumerate(tables(found, is_part=is_part, pictures=console.encoding.startswith("utf"))):
        console.print(*([""] if number else []), table, sep="\n")
