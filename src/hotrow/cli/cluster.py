"""`hotrow cluster`: the roles of a running run: show their state, add one, remove one."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hotrow.cli import formatting
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.screen import Screen, cell, echo
from hotrow.run.cluster_file import Known, find_cluster, read_cluster, remove_left
from hotrow.run.cluster_status import RoleState, look
from hotrow.sizes import size_text
from hotrow.trainer.scaling import kind_of
from hotrow.transport import check_installed

app = typer.Typer(help="Show and change the roles of a run on a cluster.", no_args_is_help=True)

COLUMNS = ("role", "address", "done", "per s", "busy", "in", "out", "parked", "waiting")
LEFT = COLUMNS[:2]
WIDE = 200  # columns of a pipe or a file


@app.callback()
def cluster() -> None:
    """Show and change the roles of a run on a cluster."""


RunFolder = Annotated[
    Path | None,
    typer.Argument(help="The folder of a run, or its name under runs/; else the newest.", metavar="RUN"),
]


@app.command()
def join(
    role: Annotated[str, typer.Argument(help='"trainer" or "embedding worker".', metavar="ROLE")],
    run: RunFolder = None,
) -> None:
    """Start one more role of a run. A trainer takes part from the next step on."""
    check_installed()
    from hotrow.run.control_server import let_join

    known = read_cluster(find_cluster(run))
    echo(f"{let_join(known, kind_of(role))} joins {known.folder}")


@app.command()
def leave(
    name: Annotated[str, typer.Argument(help='As the status shows it, "trainer 2".', metavar="NAME")],
    run: RunFolder = None,
) -> None:
    """Stop a role of a run once its gradients are applied, and wait until it has stopped."""
    check_installed()
    from hotrow.run.control_server import let_leave

    known = read_cluster(find_cluster(run))
    let_leave(known, name)
    echo(f"{name} has left {known.folder}")


@app.command()
def status(
    run: RunFolder = None,
    over: Annotated[
        float,
        typer.Option(
            help="Seconds between the two queries that give the rates; 0: one query, no rates.", min=0, max=600
        ),
    ] = 1.0,
    json_file: JsonFile = None,
) -> None:
    """Show the state of every role of a run: work done, rate, bytes in and out, requests that wait.

    RUN is a folder that this machine can read: the run writes cluster.json there while it trains.
    """
    check_writable("--json", json_file)
    known = read_cluster(find_cluster(run))
    if known.starting and not known.is_gone:
        write_json(json_file, {**as_document(known, []), "starting": True})
        process = f"process {known.pid} on {known.node}"
        echo(f"run {known.folder}: the cluster is starting ({process}); try again in a few seconds")
        return
    found = look(known.facts, over_s=over)
    write_json(json_file, as_document(known, found))
    echo(f"run {known.folder} on {known.node}, process {known.pid}", err=True)
    console = Screen()
    (console if console.is_terminal else Screen(width=WIDE)).print(as_table(found))
    for state in found:
        if state.trouble:
            place = f"process {state.place.pid} on {state.place.node}"
            echo(f"{state.role} ({place}): {state.trouble}", err=True)
    if known.is_gone:
        removed = ": cluster.json and cluster.key are removed" if remove_left(known.folder) else ""
        echo(f"process {known.pid}, the run itself, has ended{removed}", err=True)


def as_table(found: list[RoleState]) -> Table:
    """A line for each role, also for one that does not answer."""
    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=True)
    for state in found:
        figures = ("no answer",) if state.trouble else _figures(state)
        table.add_row(*map(cell, (state.role, state.place.address.removeprefix("tcp://"), *figures)))
    return table


def as_document(known: Known, found: list[RoleState]) -> dict[str, object]:
    """The same as JSON, without the key."""
    about = {"run": str(known.folder), "node": known.node, "pid": known.pid, "security": known.facts.security}
    roles = {state.role: _flat(state) for state in found}
    return {**about, "answering": sum(not state.trouble for state in found), "roles": roles}


def _flat(state: RoleState) -> dict[str, object]:
    figures = asdict(state)
    del figures["role"]
    return {**figures.pop("place"), **figures}


def _figures(state: RoleState) -> tuple[str, ...]:
    done = [(state.batches, "batches"), (state.rows, "rows")]
    return (
        " ".join(f"{formatting.magnitude(count)} {name}" for count, name in done if count is not None) or "-",
        "-" if state.rate is None else formatting.magnitude(state.rate),
        "-" if state.busy is None else f"{state.busy:.0%}",
        *("-" if each is None else size_text(int(each)) for each in (state.bytes_in, state.bytes_out)),
        *("-" if each is None else f"{each:,.0f}" for each in (state.parked, state.waiting)),
    )
