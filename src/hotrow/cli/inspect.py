"""`hotrow inspect`: what is in a checkpoint. No torch is imported."""

import os
from pathlib import Path
from typing import Annotated

import typer

from hotrow.checkpoint.finding import find_checkpoints
from hotrow.checkpoint.inspecting import inspect_tables, inspection_document
from hotrow.checkpoint.reader import SavedCheckpoint
from hotrow.cli.bars import Bar
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.inspection import inspection_tables, row_lines
from hotrow.cli.inspection_picture import inspection_svg
from hotrow.cli.screen import Screen, echo
from hotrow.disk import write_text
from hotrow.errors import ConfigError, InputError

PIPED = 160  # columns of a pipe or a file: nothing is cut

Checkpoint = Annotated[
    str,
    typer.Argument(help="A folder of checkpoints, one of them, or a run; a path or a URI.", metavar="CKPT"),
]
Number = Annotated[
    int | None, typer.Option(min=1, help="Which checkpoint of the folder; default: the newest.", metavar="N")
]


def inspect(
    checkpoint: Checkpoint,
    number: Number = None,
    row: Annotated[
        str | None,
        typer.Option(help="Show this row alone; KEY is decimal or 0x hexadecimal.", metavar="TABLE:KEY"),
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw norms and skew to this file.", metavar="FILE.svg")] = None,
    json_file: JsonFile = None,
) -> None:
    """Show what a checkpoint holds: its tables with sizes, norms, ages and skew, its chain, its dense tensors.

    Reads all rows once, unless --row names one.
    """
    check_writable("--json", json_file)
    check_writable("--picture", picture)
    found = SavedCheckpoint.open(find_checkpoints(checkpoint), number)
    if row is not None:
        if picture is not None:
            raise ConfigError("--picture and --row: a picture is of all rows, leave one out")
        show_row(found, row, json_file)
        return
    total = sum(facts.rows for facts in found.manifest.tables.values())
    with Bar("rows", total) as bar:
        tables = inspect_tables(found, watch=bar.rows)
    document = inspection_document(found, tables)
    write_json(json_file, document)
    if picture is not None:
        write_text(picture, inspection_svg(tables, f"{found.name}, number {found.manifest.number}"), "the picture")
    console = Screen()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Screen(width=PIPED)
    for place, table in enumerate(inspection_tables(document)):
        console.print(*([""] if place else []), table, sep="\n")


def show_row(found: SavedCheckpoint, given: str, json_file: Path | None) -> None:
    """One row with all its fields."""
    table, key = parse_row(given)
    row = found.row(table, key)
    if row is None:
        raise InputError(f"--row {given}: table {table!r} of checkpoint {found.name} has no row with this key")
    fields = {name: int(column[0]) for name, column in row.fields.items()}
    unsigned = int(row.keys[0])
    document = {"table": table, "key": unsigned, "signed_key": unsigned - 2**64 * (unsigned >= 2**63), **fields}
    document |= {"value": row.values[0].tolist(), "state": row.state[0].tolist()}
    write_json(json_file, document)
    for line in row_lines(document):
        echo(line)


def parse_row(given: str) -> tuple[str, int]:
    """A table's name and a key; ConfigError where there is no such key."""
    table, colon, text = given.rpartition(":")
    try:
        key = int(text, 16) if text.lower().lstrip("-").startswith("0x") else int(text)
    except ValueError:
        key = None
    if not colon or key is None or not -(2**63) <= key < 2**64:
        raise ConfigError(f"--row {given}: write TABLE:KEY, a key from -2^63 to 2^64-1, as items:42 or items:0x2a")
    return table, key
