"""`hotrow reproduce`: tables and figures of the papers, computed in the simulator."""

import time
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import torch
import typer

from hotrow.bench.machine import provenance
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.formatting import duration
from hotrow.cli.screen import Screen, cell, echo
from hotrow.disk import write_text
from hotrow.errors import ConfigError
from hotrow.reproduce.registry import EXPERIMENTS, Experiment


def reproduce(
    name: Annotated[str | None, typer.Argument(help="One of those that --list shows.", show_default=False)] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show what there is, and leave.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: a smoke test, no result.")] = False,
    json: JsonFile = None,
    picture: Annotated[Path | None, typer.Option("--picture", help="Draw the figure, as FILE.svg.")] = None,
) -> None:
    """Run an experiment of the papers in the simulator: our figures beside theirs, and which promises hold."""
    if show_list:
        width = max(map(len, EXPERIMENTS))
        for known, experiment in EXPERIMENTS.items():
            echo(f"{known:<{width}}  {experiment.title} ({_length(experiment)})")
        return
    experiment = _named(name)
    check_writable("--json", json)
    check_writable("--picture", picture)
    if picture is not None and experiment.picture is None:
        drawn = ", ".join(known for known, each in EXPERIMENTS.items() if each.picture is not None)
        raise ConfigError(f"--picture {picture}: {name} has no picture; there is one for {drawn}")
    result = {**_run(experiment, quick), "quick": quick}
    about = {"name": name, "title": experiment.title, **provenance("hotrow")}
    about["command"] = f"hotrow reproduce {name}" + (" --quick" if quick else "")  # whatever program has called this
    write_json(json, {**about, **result})
    if picture is not None and experiment.picture is not None:
        write_text(picture, experiment.picture(result), "the picture")
    for line in experiment.table(result):
        echo(line)


def _named(name: str | None) -> Experiment:
    if name is None:
        raise ConfigError("NAME is missing: give the name of an experiment, --list shows them")
    if name not in EXPERIMENTS:
        close = get_close_matches(name, EXPERIMENTS, n=1)
        nearest = f"did you mean {close[0]}?" if close else f"there are {', '.join(EXPERIMENTS)}"
        raise ConfigError(f"{name}: there is no such experiment; {nearest}")
    return EXPERIMENTS[name]


def _run(experiment: Experiment, quick: bool) -> dict[str, object]:
    """A moving line on a terminal, one line for each thing that is done in a log file; always standard error."""
    torch.set_num_threads(1)  # local batches are small, and more threads would only wait for each other
    console = Screen(stderr=True)
    start = time.monotonic()
    expected = "" if quick else f" of about {_length(experiment)}"

    def since() -> str:
        return f"{duration(time.monotonic() - start)}{expected}"

    if not console.is_terminal:
        return experiment.run(quick, tell=lambda text: echo(f"{since()}: {text}", err=True))
    with console.status(experiment.title) as status:
        return experiment.run(quick, tell=lambda text: status.update(cell(f"{since()}: {text}")))


def _length(experiment: Experiment) -> str:
    return f"{experiment.minutes:g} min"
