"""`hotrow bench threads`: a step of our table and torch's by the number of threads."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from hotrow.bench import report
from hotrow.bench import threads as thread_curve
from hotrow.bench.picture import threads_svg
from hotrow.bench.threads import ThreadsPlan
from hotrow.cli.bench_commands.checks import check_runnable, give_peers_huge_pages
from hotrow.cli.bench_commands.options import Json, Quick
from hotrow.cli.bench_commands.stage_bar import StageBar
from hotrow.cli.screen import Screen


def threads(
    dim: Annotated[
        list[int] | None, typer.Option(min=1, help="Floats per row; repeat for several. [16 and 64]")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="Rows in the table. [10,000,000]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds in which everyone runs once. [12]")] = None,
    most: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads at most. [the cores]")] = None,
    json: Json = None,
    picture: Annotated[Path | None, typer.Option(help="Write the curve of the first dim to this SVG file.")] = None,
    quick: Quick = False,
) -> None:
    """One training step of our table and torch's on 1, 2, 4, … threads, for a small and a large batch."""
    check_runnable("threads", json, picture)
    give_peers_huge_pages()
    sizes = ThreadsPlan().quick() if quick else ThreadsPlan()
    dims = tuple(dim) if dim else sizes.dims
    job = replace(sizes, dims=dims, rows=rows or sizes.rows, rounds=rounds or sizes.rounds, most=most or 0)
    job.check_memory()
    with StageBar() as bar:
        points = thread_curve.measure_threads(job, bar)
    if json is not None:
        report.write_json(json, thread_curve.document(job, points))
    if picture is not None:
        picture.write_text(threads_svg(points, dims[0], job.batches, thread_curve.headline(job)))
    Screen().print(thread_curve.summary(job, points))
