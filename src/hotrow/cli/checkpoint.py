"""`hotrow checkpoint`: check checkpoints, and write them anew. No torch is imported, except to import torch's files."""

from typing import Annotated

import typer

from hotrow.checkpoint.chain import unfinished
from hotrow.checkpoint.finding import find_checkpoints
from hotrow.checkpoint.manifest import folder_of
from hotrow.checkpoint.reader import SavedCheckpoint, SavedLink, folders_in, numbers_in
from hotrow.checkpoint.rewriting import RewrittenTables, compact, rewrite
from hotrow.cli.bars import ByteBar
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.formatting import several
from hotrow.cli.import_tables import foreign_tables, parse_optimizer, parse_tables
from hotrow.cli.inspect import Checkpoint, Number
from hotrow.cli.screen import echo
from hotrow.printable import one_line
from hotrow.sizes import size_text
from hotrow.store.shards import SHARDS_MOST

app = typer.Typer(no_args_is_help=True, help="Verify, compact, reshard and import checkpoints.")

To = Annotated[
    str | None,
    typer.Option(
        help="The folder to write to, a path or a URI; default: its own, as the next number.", metavar="FOLDER"
    ),
]
Keep = Annotated[
    int | None,
    typer.Option(min=1, help="Remove all but the newest N and what they build on; default: none.", metavar="N"),
]


@app.callback()
def checkpoint() -> None:
    """Verify, compact, reshard and import checkpoints."""


@app.command()
def verify(checkpoint: Checkpoint, number: Number = None, json_file: JsonFile = None) -> None:
    """Compare all files of CKPT, and of the checkpoints it builds on, with their checksums; name every fault."""
    check_writable("--json", json_file)
    found = SavedCheckpoint.open(find_checkpoints(checkpoint), number)
    place = found.place.parent
    with ByteBar(found.size) as bar:
        for left in unfinished(folders_in(place), numbers_in(place)):
            bar.line(f"note: {folder_of(left)} is not finished and is not read: a run writes it now, or died there")
        faults = list(found.faults(bar.add))
    numbers = [link.manifest.number for link in found.chain]
    write_json(json_file, {"checkpoint": found.name, "chain": numbers, "bytes": found.size, "faults": faults})
    for fault in faults:
        echo(one_line(f"hotrow: {fault}"), err=True)
    if faults:
        raise typer.Exit(2)
    files = sum(len(link.manifest.files) for link in found.chain)
    chain = ", ".join(map(folder_of, numbers))
    echo(f"{found.name}: {several(files, 'file')} of {chain} as saved, {size_text(found.size)}")


@app.command("compact")
def compact_(checkpoint: Checkpoint, to: To = None, keep: Keep = None, number: Number = None) -> None:
    """Write a full checkpoint with the rows of CKPT, which may be a delta, and of all that it builds on."""
    found = SavedCheckpoint.open(find_checkpoints(checkpoint), number)
    with ByteBar(_bytes(found)) as bar:
        written = compact(found, to, keep=keep, watch=bar.add)
    if written is None:
        echo(f"{found.place.name}: is a full checkpoint already")
    else:
        _report(found, written)


@app.command()
def reshard(
    checkpoint: Checkpoint,
    shards: Annotated[int, typer.Option(min=1, max=SHARDS_MOST, help="How many parts a table gets.", metavar="N")],
    to: To = None,
    keep: Keep = None,
    number: Number = None,
) -> None:
    """Write a full checkpoint with the rows of CKPT in N parts, by the hash that shards of a cluster go by."""
    found = SavedCheckpoint.open(find_checkpoints(checkpoint), number)
    with ByteBar(_bytes(found)) as bar:
        written = rewrite(found, to, shards=shards, keep=keep, watch=bar.add)
    _report(found, written)


@app.command("import")
def import_(
    files: Annotated[
        list[str], typer.Argument(help="Files of torch (.pt, .pth), .safetensors or .parquet.", metavar="FILE")
    ],
    to: Annotated[str, typer.Option(help="The folder to write to, a path or a URI.", metavar="FOLDER")],
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", help="A table and its tensor or column; may be repeated.", metavar="NAME=KEY"),
    ] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(help="As adagrad or adam:lr=0.01,eps=1e-6; default: that of a table.", metavar="NAME[:SETTINGS]"),
    ] = None,
    type_: Annotated[
        str, typer.Option("--type", help="Of values: float32, float16 or bfloat16.", metavar="TYPE")
    ] = "float32",
) -> None:
    """Write embedding tables of other programs to FOLDER as a checkpoint of tables alone.

    KEY is the key of a matrix in a state_dict, and the numbers of its rows are the keys. Of Parquet files it is the
    column of keys, or KEYS:VECTORS, or a column of lists, or * for columns of numbers without keys.
    """
    from hotrow.checkpoint.importing import ImportedTables, TableSettings, import_tables

    settings = TableSettings(parse_optimizer(optimizer), type_)
    wanted = parse_tables(tables or [])
    found = foreign_tables(wanted, files)
    with ByteBar(ImportedTables(found, settings).bytes) as bar:
        about = {"imported": {name: {"from": found[name].source, "key": key} for name, key in wanted.items()}}
        written = import_tables(found, to, settings, about=about, watch=bar.add)
    for name, table in written.manifest.tables.items():
        echo(f"{written.place.name}: table {name}: {table.rows:,} rows of dim {table.dim} from {found[name].source}")


def _bytes(found: SavedCheckpoint) -> int:
    """What a rewrite reads and writes, about."""
    return found.size + RewrittenTables(found).bytes


def _report(found: SavedCheckpoint, written: SavedLink) -> None:
    rows = sum(table.rows for table in written.manifest.tables.values())
    chain = ", ".join(folder_of(link.manifest.number) for link in found.chain)
    echo(f"{written.place.name}: {rows:,} rows of {chain}, {size_text(written.manifest.size)}")
