"""The command `hotrow`. One file per command; expected trouble is told in one sentence, with exit code 2."""

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hotrow.cli import bench, cluster, data, evaluate, keygen, new, predict, reproduce, segments, simulate, train
from hotrow.errors import HotrowError


class Sentences(TyperGroup):
    """Commands whose HotrowError becomes a sentence on standard error; with --debug it stays a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HotrowError as error:
            if ctx.params["debug"]:
                raise
            typer.echo(f"hotrow: {error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(cls=Sentences, no_args_is_help=True, pretty_exceptions_enable=False)
app.command()(new.new)
app.add_typer(data.app, name="data")
app.command()(train.train)
app.command()(evaluate.evaluate)
app.command()(predict.predict)
app.command()(simulate.simulate)
app.command()(reproduce.reproduce)
app.command()(keygen.keygen)
app.add_typer(cluster.app, name="cluster")
app.add_typer(bench.app, name="bench")
app.add_typer(segments.app, name="segments")


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hotrow {version('hotrow')}")
        raise typer.Exit


@app.callback()
def hotrow(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of expected errors too.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Train PyTorch recommendation models whose embedding tables do not fit where the model computes."""


def main() -> None:
    """Entry point of the console script."""
    app()
