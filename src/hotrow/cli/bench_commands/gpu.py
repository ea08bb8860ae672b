"""`hotrow bench gpu`: kernels, tables, models and tiers on a GPU."""

from typing import Annotated

import typer

from hotrow.bench.gpu.run import run
from hotrow.cli.bench_commands.options import Json, Quick
from hotrow.cli.screen import echo


def gpu(
    part: Annotated[
        list[str] | None, typer.Option(help="Of kernels, interactions, checks, store, models, tiered; repeat. [all]")
    ] = None,
    interpret: Annotated[
        bool, typer.Option("--interpret", help="Check results in Triton's interpreter, without a GPU; needs --quick.")
    ] = False,
    commit: Annotated[str | None, typer.Option(help="Of the sources, where they are not in a checkout.")] = None,
    json: Json = None,
    quick: Quick = False,
) -> None:
    """Kernels, tables, models and tiers on a GPU beside torch: results are checked, then timed.

    Exits with 1 if a part fails.
    """
    record = run(json, part, quick, interpret, commit)
    echo(record.text())
    if record.exit_code:
        raise typer.Exit(record.exit_code)
