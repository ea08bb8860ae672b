"""`hotrow segments`: list the tables in shared memory with their processes, and remove those without a process."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from hotrow.cli.screen import Screen, cell, echo
from hotrow.disk import write_text
from hotrow.errors import ConfigError
from hotrow.sizes import size_text
from hotrow.store.segments import SegmentInfo, default_directories, list_segments, remove_segment

app = typer.Typer(help="List and remove tables in shared memory.")

Directory = Annotated[
    Path | None, typer.Option(help="Folder of the segments; default: /dev/shm and every mount of hugetlbfs.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the list to this file.")]


@app.callback(invoke_without_command=True)
def segments(context: typer.Context, directory: Directory = None, json_file: JsonFile = None) -> None:
    """List the segments: name, run, table, size, state and age."""
    if context.invoked_subcommand is not None:
        if directory is not None or json_file is not None:
            raise ConfigError(f"--directory and --json: give them after the word {context.invoked_subcommand}")
        return
    if json_file is not None and not json_file.parent.is_dir():
        raise ConfigError(f"--json {json_file}: the folder {json_file.parent} does not exist, make it first")
    found = list_segments(directory)
    if json_file is not None:
        write_text(json_file, json.dumps([as_document(info) for info in found], indent=2) + "\n", "the list")
    if not found:
        places = default_directories() if directory is None else [directory]
        echo(f"no segments in {', '.join(map(str, places))}")
        return
    Screen().print(as_table(found))
    for info in found:
        if info.damaged is not None:
            echo(info.damaged)


@app.command("rm", help="The same as `remove`.")
@app.command()
def remove(
    names: Annotated[list[str] | None, typer.Argument(help="Names as listed, or paths.")] = None,
    left_behind: Annotated[
        bool, typer.Option("--left-behind", help="All whose process died; not those that are kept or damaged.")
    ] = False,
    directory: Directory = None,
) -> None:
    """Remove segments and the rows in them."""
    if bool(names) == left_behind:
        raise ConfigError("hotrow segments remove: give the names of segments, or --left-behind for all that died")
    if left_behind:
        paths = [info.path for info in list_segments(directory) if info.state == "left behind"]
    else:
        paths = [locate(name, directory) for name in names or []]
    for path in paths:
        remove_segment(path)
        echo(f"removed {path}")
    if not paths:
        echo("nothing was left behind")


def locate(name: str, directory: Path | None) -> Path:
    """The path of a name as listed."""
    if "/" in name:
        return Path(name)
    places = default_directories() if directory is None else [directory]
    found = next((place / name for place in places if (place / name).exists()), None)
    if found is None:
        raise ConfigError(f"{name}: no such segment in {', '.join(map(str, places))}; `hotrow segments` lists them")
    return found


def as_table(found: list[SegmentInfo]) -> Table:
    table = Table("name", "run", "table", "size", "state", "age", box=None, pad_edge=False)
    for info in found:
        cells = (info.path.name, info.run, info.table, size_text(info.bytes), info.state, age_text(info.age_s))
        table.add_row(*map(cell, cells))  # as text: a name in brackets is no markup
    return table


def as_document(info: SegmentInfo) -> dict[str, Any]:
    return {
        "name": info.path.name,
        "path": str(info.path),
        "run": info.run,
        "table": info.table,
        "bytes": info.bytes,
        "state": info.state,
        "owner": info.owner,
        "uid": info.uid,
        "age_s": round(info.age_s, 3),
        "identity": info.identity,
        "damaged": info.damaged,
    }


def age_text(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
