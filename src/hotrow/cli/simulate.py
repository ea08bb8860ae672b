"""`hotrow simulate`: training modes side by side on a cluster in virtual time."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from hotrow.cli import formatting
from hotrow.cli.bars import Bar
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.screen import Screen, cell, echo
from hotrow.cli.train import INTERRUPTED, Changes
from hotrow.errors import ConfigError
from hotrow.obs.report.formatting import duration
from hotrow.sim.study.figures import Row, figures
from hotrow.sim.study.file import load_simulation, preset_names, preset_text, preset_title
from hotrow.sim.study.outcome import Outcome
from hotrow.sim.study.picture import SUFFIXES, write_picture
from hotrow.sim.study.study import Calibrated, ModeProgress, Simulation

GAP = 2  # characters between two columns of the figures


def simulate(
    file: Annotated[
        str | None, typer.Argument(help="A config, or the name of a preset: see --list.", metavar="FILE.toml")
    ] = None,
    changes: Changes = None,
    labels: Annotated[
        list[str] | None, typer.Option("--mode", help="Run only this one of the file's modes; may be repeated.")
    ] = None,
    json_file: JsonFile = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw workers, staleness and speed as a page or a picture.", metavar="FILE.html")
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the presets and leave.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the file of a preset, to start from, and leave.")] = False,
) -> None:
    """Run the modes of FILE.toml on a simulated cluster, all on the same data and random draws, and compare them.

    Disciplines are the real ones, and so are gradients with run.work = "train"; time, network and faults are made up.
    """
    if show_list:
        Screen().print(presets())
        return
    if file is None:
        raise ConfigError("FILE.toml is missing: name a config, or a preset that --list shows")
    if show:
        echo(preset_text(file), nl=False)
        return
    check_writable("--json", json_file)
    check_writable("--picture", picture)
    if picture is not None and picture.suffix not in SUFFIXES:
        raise ConfigError(f"--picture {picture}: is drawn as {' or '.join(SUFFIXES)}: give it such a name")
    config = load_simulation(file, changes or ())
    simulation = Simulation(config, labels or (), pictured=picture is not None)
    whole = go(simulation)
    write_json(json_file, document(simulation, whole=whole))
    if picture is not None and simulation.outcomes:
        write_picture(picture, simulation.config, simulation.outcomes, Path(file).stem)
    console = Screen()
    for table in tables(simulation.outcomes, console.width):
        console.print(table)
    if picture is not None and simulation.outcomes:
        echo(str(picture))
    if not whole:
        raise typer.Exit(INTERRUPTED)


def go(simulation: Simulation) -> bool:
    """Run it and show its progress; False where it was interrupted."""
    with SimulationBar(len(simulation.labels)) as bar:
        try:
            for report in simulation:
                bar.report(report)
        except KeyboardInterrupt:
            bar.line(f"interrupted: {len(simulation.outcomes)} of {len(simulation.labels)} modes are done")
            return False
    return True


class SimulationBar(Bar):
    """Mode after mode."""

    def __init__(
        self, modes: int, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__("samples", console=console, clock=clock)
        self._modes = modes
        self._began = clock()  # with the mode that runs

    def report(self, report: Calibrated | ModeProgress | Outcome) -> None:
        """Show what came."""
        match report:
            case ModeProgress():
                self._going(report)
            case Outcome():
                self._began = self._clock()
                self.restart_estimate()
                for line in outcome_lines(report):
                    self.line(line)
            case Calibrated():
                given = " ".join(f"--set {name}={json.dumps(value)}" for name, value in report.settings.items())
                self.line(f"measured on this machine: {given}")

    def _going(self, report: ModeProgress) -> None:
        by_time = report.samples_total is None and report.seconds_total is not None
        self.unit = "s of virtual time" if by_time else "samples"
        self.total = round(report.seconds_total or 0) if by_time else report.samples_total
        done = int(report.seconds) if by_time else report.samples
        place = f"{report.label} {report.place}/{self._modes}"
        virtual = f"{report.samples:,} samples" if by_time else f"virtual {duration(report.seconds)}"
        self.show(done, done / max(self._clock() - self._began, 1e-9), virtual, place)


def outcome_lines(outcome: Outcome) -> list[str]:
    """What is worth a line when a mode is done."""
    result = outcome.result
    speed = f"{formatting.magnitude(result.qps)} samples/s over {duration(result.seconds)} of virtual time"
    lines = [f"{outcome.label}: {speed}"]
    lines += [f"{outcome.label}: {remark}" for remark in outcome.troubles]
    lines += [f"{outcome.label}: after {duration(each.time_s)} {each.sentence}" for each in outcome.decisions]
    return lines


def presets() -> Table:
    """Names and what they are."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name in preset_names():
        table.add_row(name, cell(preset_title(name)))
    return table


def document(simulation: Simulation, *, whole: bool) -> dict[str, Any]:
    """Everything as plain data."""
    return {
        "hotrow": version("hotrow"),
        "complete": whole,
        "config": simulation.config.model_dump(mode="json"),
        "modes": {outcome.label: outcome.document() for outcome in simulation.outcomes},
    }


def tables(outcomes: Sequence[Outcome], width: int) -> Iterator[Table]:
    """All figures; modes that do not fit beside the others follow below."""
    if not outcomes:
        return
    rows: list[Row] = [("", [one.label for one in outcomes]), *figures(outcomes)]
    names = max(len(name) for name, _ in rows)
    widths = [max(len(cells[place] or "") for _, cells in rows) + GAP for place in range(len(outcomes))]
    start = 0
    while start < len(outcomes):
        stop = start + 1
        while stop < len(outcomes) and names + sum(widths[start : stop + 1]) <= width:
            stop += 1
        yield _table(rows, slice(start, stop))
        start = stop


def _table(rows: Sequence[Row], shown: slice) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    (_, labels), *body = rows
    table.add_column("", no_wrap=True)
    for label in labels[shown]:
        table.add_column(cell(label or ""), justify="right", overflow="fold")
    for name, cells in body:
        if not any(cells[shown]):
            continue
        table.add_row(cell(name), *(cell(text or "") for text in cells[shown]))
    return table
