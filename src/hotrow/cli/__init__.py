"""The command `hotrow`. One file per command; an expected error is one sentence, with exit code 2.

The file of a command is imported when that command runs: `hotrow --help` and `hotrow --version` import no torch.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from hotrow.cli.screen import echo, make_faults_printable
from hotrow.errors import HotrowError
from hotrow.printable import one_line

# Help of each in `hotrow --help`: the first paragraph of the command's own help. Its file has the same name.
COMMANDS = {
    "new": "Write DIR/train.toml: a config for your own CSV or Parquet file, with every important setting explained.",
    "data": "Look at the data of a config.",
    "train": "Train the model of FILE.toml and write checkpoint, curves and report.html to runs/NAME.",
    "evaluate": "Evaluate a finished run: AUC, logloss, calibration; of a regression RMSE, MAE, R2.",
    "predict": "Predict the rows of IN with a finished run.",
    "vectors": "Write the vectors of RUN's checkpoint to OUT: key, vector, and the linear weight where the model has "
    "one.",
    "inspect": "Show what a checkpoint holds: its tables with sizes, norms, ages and skew, its chain, its dense "
    "tensors.",
    "checkpoint": "Verify, compact, reshard and import checkpoints.",
    "simulate": "Run the modes of FILE.toml on a simulated cluster, all on the same data and random draws, and "
    "compare them.",
    "reproduce": "Run an experiment of the papers in the simulator: our figures beside theirs, and which "
    "promises hold.",
    "keygen": "Write a new cluster key to FILE, readable by its owner only. Every machine of a cluster needs the "
    "same key.",
    "cluster": "Show and change the roles of a run on a cluster.",
    "chaos": "Train on a local cluster while processes are killed and links are cut, and check what became of every "
    "sample.",
    "bench": "Measure Hotrow against its peers and against the machine.",
    "segments": "List and remove tables in shared memory.",
    "plan": "Plan a run: its capacity on a cluster, its threads on a host, and routes between GPUs.",
    "doctor": "Check this machine: versions, processor, huge pages, shared memory, limits, Ray, GPU, and what to mend.",
}

# Older Typers are built on Click, newer ones bring a copy of it and do not install Click: this is the class in use.
ClickException: type[Exception] = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "ClickException")


class LazyGroup(TyperGroup):
    """Commands by name and help; the one that is called is imported."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update({name: TyperCommand(name, help=text) for name, text in COMMANDS.items()})

    def get_params(self, ctx: Any) -> list[Any]:
        params = super().get_params(ctx)
        for switch in filter(is_switch, params):
            switch.metavar = ""
        return params

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else load(name), rest


def load(name: str) -> Any:
    """Import a command: the function of that name in its file, or the group that the file makes."""
    module = import_module(f"hotrow.cli.{name}")
    holder = typer.Typer(add_completion=False)
    if hasattr(module, "app"):
        holder.add_typer(module.app, name=name)
    else:
        holder.command(name)(getattr(module, name))
    command = get_group(holder).commands[name]
    hide_switch_types(command)
    return command


def is_switch(param: Any) -> bool:
    """Whether an option takes no value."""
    return bool(getattr(param, "is_flag", False))


def hide_switch_types(command: Any) -> None:
    """Show a switch in --help as `--resume`, not as `--resume <bool>`: it takes no value."""
    params_of = command.get_params

    def get_params(ctx: Any) -> list[Any]:
        params: list[Any] = params_of(ctx)
        for switch in filter(is_switch, params):
            switch.metavar = ""
        return params

    vars(command)["get_params"] = get_params
    for inner in getattr(command, "commands", {}).values():
        hide_switch_types(inner)


class Sentences(LazyGroup):
    """Commands whose expected errors become a sentence on standard error; with --debug it stays a traceback.

    Those are every HotrowError, and every OSError: a file that was removed, a folder that may not be written,
    a full disk. A closed pipe of our output is not such an error.
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
            echo(one_line(f"hotrow: {'; '.join([sentence_of(error), *getattr(error, '__notes__', [])])}"), err=True)
            raise typer.Exit(2) from None


def sentence_of(error: HotrowError | OSError) -> str:
    """The message of an error; of an OSError the file, the reason, and on a full disk the free bytes."""
    if not isinstance(error, OSError) or isinstance(error, HotrowError):
        return str(error)
    named = [os.fsdecode(each) for each in (error.filename, error.filename2) if isinstance(each, str | bytes)]
    message = f"{' -> '.join(named)}: {error.strerror}" if named and error.strerror else str(error)
    if error.errno == ENOSPC and named:
        message += _room(Path(named[-1]))
    return f"{message} (hotrow --debug shows where this came from)"


def _room(path: Path) -> str:
    from hotrow.disk import free_bytes  # with pydantic behind it, which --help does not need
    from hotrow.sizes import size_text

    free = free_bytes(path)
    return "" if free is None else f", {size_text(free)} are free: make room"


@contextmanager
def printable_usage() -> Iterator[None]:
    """Escape the arguments in errors of a wrong command line: a shell may have taken them from file names."""
    try:
        yield
    except ClickException as error:
        vars(error)["message"] = one_line(vars(error)["message"])  # as an attribute it is typed as final
        raise


app = typer.Typer(cls=Sentences, no_args_is_help=True, pretty_exceptions_enable=False)


def show_version(wanted: bool) -> None:
    if wanted:
        echo(f"hotrow {version('hotrow')}")
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
