"""`hotrow bench store`: a step of our table, beside torch, peers and the limits of the machine."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hotrow.bench import report
from hotrow.bench.curve import measure_curve
from hotrow.bench.peers import load_adapters
from hotrow.bench.picture import curve_svg
from hotrow.bench.plan import StorePlan
from hotrow.bench.shared_memory import lack_of_room
from hotrow.bench.store import measure
from hotrow.cli.bench_commands.checks import check_runnable, give_peers_huge_pages
from hotrow.cli.bench_commands.options import Json, Peers, Quick
from hotrow.cli.bench_commands.stage_bar import StageBar
from hotrow.cli.screen import Screen, echo
from hotrow.errors import ConfigError


def store(
    dim: Annotated[
        list[int] | None, typer.Option(min=1, help="Floats per row; repeat for several. [16 and 64]")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows in the table. [10,000,000]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds in which everyone runs once. [60]")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads for ours and for the peers.")] = 2,
    peer: Peers = None,
    json: Json = None,
    curve: Annotated[bool, typer.Option("--curve", help="Also measure a tenth to twice the rows, at dim 16.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Write the curve to this SVG file.")] = None,
    quick: Quick = False,
) -> None:
    """One training step of our table, torch's and those of peers, interleaved, beside the limits of the machine."""
    check_runnable("store", json, picture)
    adapters = load_adapters(peer or (), "store")
    if picture is not None and not curve:
        raise ConfigError(f"--picture {picture}: shows the curve, so give --curve too")
    give_peers_huge_pages()
    sizes = StorePlan(threads=threads).quick() if quick else StorePlan(threads=threads)
    dims = tuple(dim) if dim else sizes.dims
    job = replace(sizes, dims=dims, rows=rows or sizes.rows, rounds=rounds or sizes.rounds)
    job.check_memory()
    for lack in filter(None, (lack_of_room(job, size) for size in job.dims)):
        echo(lack, err=True)
    with StageBar() as bar:
        figures = measure(job, bar, adapters)
        points = measure_curve(job, bar) if curve else None
    if json is not None:
        report.write_json(json, report.document(job, figures, points, adapters))
    if picture is not None and points is not None:
        picture.write_text(curve_svg(points, report.curve_headline(job)))
    Screen().print(report.summary(job, figures, points, adapters))
