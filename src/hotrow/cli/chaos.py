"""`hotrow chaos`: trains on a local cluster under random faults, and compares what became of every sample."""

import random
import time
from typing import Annotated, Self

import torch
import typer
from rich.progress import BarColumn, Progress, TextColumn

from hotrow.bench.machine import provenance
from hotrow.chaos.report import document, lines
from hotrow.chaos.run import run_chaos
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.formatting import duration
from hotrow.cli.screen import Screen, echo
from hotrow.printable import one_line

DISAGREES = 1


def chaos(
    minutes: Annotated[
        float, typer.Option(min=0.1, max=10_000, help="Time under faults. Starting, and training without, come on top.")
    ] = 5.0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the plan of faults; default: drawn, and shown.", show_default=False)
    ] = None,
    json: JsonFile = None,
) -> None:
    """Train on a local cluster while processes are killed and links are cut, and check what became of every sample.

    Rows of a counting model tell how often each sample was applied; a click model tells what the faults cost in AUC.
    The exit code is 1 where anything disagrees with what the run has reported, or is left behind.
    """
    from hotrow.transport import check_installed

    check_writable("--json", json)
    check_installed()
    torch.set_num_threads(1)  # the roles share the cores
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    with FaultBar(60 * minutes) as bar:
        bar.line(f"seed {seed}")
        result = run_chaos(60 * minutes, seed, bar.line, bar.show)
    write_json(json, {**provenance("hotrow"), **document(result)})
    for line in lines(result):
        echo(line)
    if result.faults:
        raise typer.Exit(DISAGREES)


class FaultBar:
    """The time under faults that is left, on a terminal; lines that stay, everywhere."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._began, self._screen = seconds, time.monotonic(), Screen(stderr=True)
        columns = BarColumn(bar_width=20), TextColumn("{task.description}", markup=False)
        self._bar = Progress(*columns, console=self._screen, disable=not self._screen.is_terminal, transient=True)
        self._task = self._bar.add_task("starting", total=seconds)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, elapsed_s: float) -> None:
        """The plan of faults is so far."""
        left = f"{duration(max(0.0, self._seconds - elapsed_s))} under faults left"
        self._bar.update(self._task, completed=elapsed_s, description=left)

    def line(self, text: str) -> None:
        """Print a line with the time since the start."""
        said = one_line(f"{time.monotonic() - self._began:6.1f} s  {text}")
        self._screen.print(said, markup=False, highlight=False, soft_wrap=True)
