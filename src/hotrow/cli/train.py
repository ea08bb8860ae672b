"""`hotrow train`: a run from a config file."""

import shlex
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hotrow.cli import formatting
from hotrow.cli.bars import waiting
from hotrow.cli.evaluate import Trust
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.screen import Screen, cell, echo
from hotrow.cli.train_bar import TrainBar
from hotrow.errors import ConfigError, FileError, HotrowError
from hotrow.run import Run, load_config
from hotrow.run.preflight import preflight
from hotrow.run.restored import find_run
from hotrow.run.trust import check_trust, is_of_a_run
from hotrow.runtime.interrupts import defer_sigint
from hotrow.runtime.losses import RoleLost
from hotrow.runtime.settings import Local, Ray
from hotrow.transport.errors import PeerLost
from hotrow.worker.losses import Task

INTERRUPTED = 130  # the shells' exit code after Ctrl-C
MEASURES: dict[Task, tuple[str, ...]] = {
    "classification": ("auc", "auc_error", "logloss", "calibration"),
    "regression": ("rmse", "mae", "r2"),
}

OPTIONS = {"name": "--engine"}  # of run.engine, where they have another name than their field

ConfigFile = Annotated[
    Path, typer.Argument(help="A config; `hotrow new` makes one to start from.", metavar="FILE.toml")
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Replace a value of the file, as run.epochs=3; may be repeated.", metavar="A.B=C"),
]


Resume = Annotated[bool, typer.Option("--resume", help="Resume from the checkpoint in the run's folder.")]
StartFrom = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Start a new run with the rows, network and optimizer state of RUN, as on newer data.",
        metavar="RUN",
    ),
]
LoadFrom = Annotated[
    str | None,
    typer.Option(
        help="Start a new run from a checkpoint of any kind, whose tables and network may differ.", metavar="CKPT"
    ),
]
Renames = Annotated[
    list[str] | None,
    typer.Option(
        "--map", help="With --load: a table or dense layer has another name here; repeatable.", metavar="OLD=NEW"
    ),
]
Skipped = Annotated[
    list[str] | None,
    typer.Option(help="With --load: leave out this table or dense layer; repeatable.", metavar="NAME"),
]
Day = Annotated[
    str | None,
    typer.Option(
        help="Train on one day alone (its name, or next) on top of the run's checkpoint, test on the day after.",
        metavar="DAY",
    ),
]
EngineName = Annotated[
    str | None, typer.Option(help="Where to train: local (this process) or ray (a cluster).", metavar="NAME")
]
Trainers = Annotated[int | None, typer.Option(help="On ray: processes that compute.", min=1)]
Shards = Annotated[int | None, typer.Option(help="On ray: processes that hold rows.", min=1)]
Address = Annotated[
    str | None,
    typer.Option(help="On ray: address of a running Ray, auto for this machine's; default: start one for the run."),
]
Attach = Annotated[
    bool, typer.Option("--attach", help="Start a new run with the rows that segments of an earlier run hold.")
]


def train(
    file: ConfigFile,
    changes: Changes = None,
    resume: Resume = False,
    start_from: StartFrom = None,
    load: LoadFrom = None,
    renames: Renames = None,
    skip: Skipped = None,
    day: Day = None,
    engine: EngineName = None,
    trainers: Trainers = None,
    shards: Shards = None,
    address: Address = None,
    attach: Attach = False,
    trust: Trust = False,
    json_file: JsonFile = None,
) -> None:
    """Train the model of FILE.toml and write checkpoint, curves and report.html to runs/NAME.

    Ctrl-C saves a checkpoint; --resume continues from it. Options of the engine replace the settings of the file.
    """
    check_writable("--json", json_file)
    options = {"name": engine, "trainers": trainers, "shards": shards, "address": address}
    given = {field: value for field, value in options.items() if value is not None}
    config = load_config(file, changes or (), given)
    if is_of_a_run(file):
        check_trust(config, file.parent, trust=trust)
    preflight(config)
    source = None if start_from is None else find_run(start_from, Path(config.run.folder))
    with starting(config.run.engine):
        run = Run(
            config,
            resume=resume,
            day=day,
            start_from=source,
            load=load,
            map=new_names(renames or []),
            skip=skip or [],
            attach=attach,
        )
    further = [part for name, value in given.items() for part in (OPTIONS.get(name, f"--{name}"), str(value))]
    further += ["--trust"] if trust else []
    further += ["--day", "next"] if day else ["--resume"]
    again = command(file, changes or [], config.run.name, run.folder.name, further)
    run_and_show(run, again, json_file)


def run_and_show(run: Run, again: str, json_file: Path | None) -> None:
    """Train to the end and show the result. `again`: the command that resumes the run."""
    try:
        with suppress(KeyboardInterrupt), defer_sigint(), run:
            show(run, again)
    except FileError as error:
        Screen().print(result(run.summary))
        raise FileError(f"{error}; {after_a_full_disk(run, again)}") from None
    if run.summary["stopped"] == "interrupted" and run.trained_nothing:
        raise typer.Exit(INTERRUPTED)
    Screen().print(result(run.summary))
    if run.page is not None:  # None: a second Ctrl-C prevented it
        echo(str(run.page))
    write_json(json_file, expected_figures(run.trainer.task) | run.summary)  # last: a fault must not hide the figures
    if run.summary["stopped"] == "interrupted":
        echo(after_an_interrupt(run, again), err=True)
        raise typer.Exit(INTERRUPTED)


def new_names(given: list[str]) -> dict[str, str]:
    """By old ones, from OLD=NEW."""
    names: dict[str, str] = {}
    for each in given:
        old, _, new = each.partition("=")
        if not old or not new:
            raise ConfigError(f"--map {each}: give the name in the checkpoint and the one here, as --map OLD=NEW")
        if names.setdefault(old, new) != new:
            raise ConfigError(f"--map {each}: {old!r} is mapped to {names[old]!r} already: give one of them")
    return names


def starting(engine: Local | Ray, console: Console | None = None) -> AbstractContextManager[None]:
    """Show which roles are being started: that takes seconds."""
    if isinstance(engine, Local):
        return nullcontext()
    where = "a Ray of its own" if engine.address is None else f"the Ray at {engine.address}"
    fewest, most = engine.trainers_fewest, engine.trainers_most
    trainers = formatting.several(most, "trainer")
    roles = [formatting.several(engine.shards, "shard"), f"{fewest} to {trainers}" if engine.elastic else trainers]
    if engine.embedding_workers:
        roles.insert(1, formatting.several(engine.embedding_workers, "embedding worker"))
    if engine.loaders:
        roles.insert(1, formatting.several(engine.loaders, "loader"))
    return waiting(f"starting {', '.join(roles[:-1])} and {roles[-1]} on {where}", console)


def show(run: Run, again: str) -> None:
    """Train and show the reports; raises what stops the run."""
    with TrainBar(run.samples_expected, run.config.run.epochs, before=run.trainer.samples) as bar:
        run.begin()  # a folder that takes nothing is removed: it is named once it stays
        origin = "" if run.origin is None else f", from {run.origin.name} ({run.trainer.samples:,} samples)"
        bar.line(f"run {run.folder}{origin}")
        try:
            for report in run:
                bar.report(report)
        except KeyboardInterrupt as interrupt:
            if run.trained_nothing:
                bar.line("interrupted before the first step: nothing is trained, no run folder is left")
            else:
                bar.line(f"interrupted: {run.out_of_reach(interrupt) or 'saving what is trained'}")
            raise
        except FileError:
            raise  # what is left is known when the run has ended
        except HotrowError as error:
            if not run.trained_nothing:  # else nothing is saved: the error alone is shown
                bar.line(stopped(run, error, again))
            raise


def after_an_interrupt(run: Run, again: str) -> str:
    """The command that resumes an interrupted run; what is lost where a second Ctrl-C did not let it save."""
    if run.saved_all:
        return f"resume with: {again}"
    if run.saved:
        return f"samples trained since the last checkpoint are lost, resume from it with: {again}"
    return f"nothing is saved, start again with: {from_the_start(run, again)}"


def after_a_full_disk(run: Run, again: str) -> str:
    """What is saved of a run that could not write its last files, and the command that resumes it."""
    if not run.saved:
        return f"nothing is saved, free some space and start again with: {from_the_start(run, again)}"
    if run.unsaved is not None:
        return f"samples trained since the last checkpoint are lost, resume from it with: {again}"
    return f"all that was trained is saved, resume with: {again}"


def from_the_start(run: Run, again: str) -> str:
    """The command that began the run, from the one that resumes it."""
    start = [] if run.origin is None else run.origin.options
    return " ".join(filter(None, [again.removesuffix(" --resume"), shlex.join(start)]))


def stopped(run: Run, error: HotrowError, again: str) -> str:
    """What is saved of a run that an error stopped, and the command that resumes it."""
    if run.out_of_reach(error) is None:
        return f"stopped: all that was trained is saved, resume with: {again}"
    cluster = run.trainer.cluster
    gone = isinstance(error, PeerLost | RoleLost)
    failed = "a step was applied in part" if cluster is None else "the cluster has failed"
    message = "a role of the cluster is lost" if gone else failed
    if run.trainer.state.diverged is not None:
        message = "what was trained is not finite"
    if run.saved:
        return f"stopped: {message}, resume from the last checkpoint with: {again}"
    return f"stopped: {message} before the first checkpoint: set run.checkpoint_every to save more often"


def command(file: Path, changes: list[str], asked: str, name: str, further: list[str]) -> str:
    """The command that resumes a run; one whose name was taken has another folder."""
    named = changes if asked == name else [*(each for each in changes if not _sets_name(each)), f"run.name={name}"]
    given = [part for change in named for part in ("--set", change)]
    return shlex.join(["hotrow", "train", str(file), *given, *further])


def _sets_name(change: str) -> bool:
    return change.partition("=")[0].strip() == "run.name"


def expected_figures(task: Task) -> dict[str, None]:
    """The keys that every result of a task has, so that a script finds them: null where nothing was measured."""
    measures = [f"{split}_{measure}" for split in ("test", "valid") for measure in MEASURES[task]]
    return dict.fromkeys([*measures, "samples", "seconds", "samples_per_s"])


def result(summary: dict[str, object]) -> Table:
    """The result as a table."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for split in ("test", "valid"):
        for metric in ("auc", "logloss", "rmse", "mae", "r2"):
            value = summary.get(f"{split}_{metric}")
            if isinstance(value, float):
                table.add_row(f"{split} {formatting.metric_name(metric)}", formatting.metric_value(metric, value))
    if isinstance(best := summary.get("best_auc"), float):
        table.add_row("best possible AUC", formatting.metric_value("auc", best))
    for name in ("samples", "samples_per_s"):
        value = summary.get(name)
        if isinstance(value, int | float) and (name == "samples" or value):  # no speed where nothing was trained
            table.add_row(name.replace("_per_s", "/s"), f"{value:,.0f}")
    rows = summary.get("rows")
    for name, count in rows.items() if isinstance(rows, dict) else ():
        table.add_row(cell(f"rows of table {name}"), f"{count:,}")
    without_row = summary.get("lookups_without_row")
    for name, count in without_row.items() if isinstance(without_row, dict) else ():
        table.add_row(cell(f"lookups without a row, full table {name}"), f"{count:,}")
    return table
