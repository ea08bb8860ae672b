"""The command `hotrow`. One file per command; expected trouble is told in one sentence, with exit code 2."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from click import ClickException
from typer.core import TyperGroup

from hotrow.cli import (
    bench,
    cluster,
    data,
    evaluate,
    keygen,
    new,
    predict,
    reproduce,
    segments,
    simulate,
    train,
    vectors,
)
from hotrow.cli.screen import make_faults_printable, say
from hotrow.disk import free_bytes
from hotrow.errors import HotrowError
from hotrow.printable import one_line
from hotrow.sizes import size_text


class Sentences(TyperGroup):
    """Commands whose expected errors become a sentence on standard error; with --debug it stays a traceback.

    Those are every HotrowError, and every OSError: a file that is not there any more, a folder that may not be written,
    a full disk. What a reader of our output does (a closed pipe) is no fault of a file.
    """

    def make_context(self, *given: Any, **more: Any) -> Any:
        with printable_usage():
            return super().make_context(*given, **more)

    def invoke(self, ctx: Any) -> Any:
        try:
            with printable_usage():
                return super().invoke(ctx)
        except (HotrowError, OSError) as error:
            if ctx.params["debug"] or isinstance(error, BrokenPipeError):
                raise
            say(one_line(f"hotrow: {'; '.join([sentence_of(error), *getattr(error, '__notes__', [])])}"), err=True)
            raise typer.Exit(2) from None


def sentence_of(error: HotrowError | OSError) -> str:
    """What an error says; of the system's own the file, the reason, and where it is full how much is free."""
    if not isinstance(error, OSError) or isinstance(error, HotrowError):
        return str(error)
    named = [os.fsdecode(each) for each in (error.filename, error.filename2) if isinstance(each, str | bytes)]
    told = f"{' -> '.join(named)}: {error.strerror}" if named and error.strerror else str(error)
    if error.errno == ENOSPC and named and (free := free_bytes(Path(named[-1]))) is not None:
        told += f", {size_text(free)} are free: make room"
    return f"{told} (hotrow --debug shows where this came from)"


@contextmanager
def printable_usage() -> Iterator[None]:
    """A wrong command line is told with what stood there, which a shell may have taken from a folder of files."""
    try:
        yield
    except ClickException as error:
        vars(error)["message"] = one_line(error.message)  # it is typed as final
        raise


app = typer.Typer(cls=Sentences, no_args_is_help=True, pretty_exceptions_enable=False)
app.command()(new.new)
app.add_typer(data.app, name="data")
app.command()(train.train)
app.command()(evaluate.evaluate)
app.command()(predict.predict)
app.command()(vectors.vectors)
app.command()(simulate.simulate)
app.command()(reproduce.reproduce)
app.command()(keygen.keygen)
app.add_typer(cluster.app, name="cluster")
app.add_typer(bench.app, name="bench")
app.add_typer(segments.app, name="segments")


def show_version(wanted: bool) -> None:
    if wanted:
        say(f"hotrow {version('hotrow')}")
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
    make_faults_printable()
    app()
