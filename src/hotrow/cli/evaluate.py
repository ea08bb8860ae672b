"""`hotrow evaluate`: how good a finished run is, on its test data or on any files."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from hotrow.cli import formatting
from hotrow.cli.bars import Bar
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.screen import Screen, cell
from hotrow.run.checks import one_class
from hotrow.run.restored import Part, Restored, find_run
from hotrow.trainer import Evaluated

OTHERS: Part = "test"  # any files are something to test on
RunFolder = Annotated[
    Path | None,
    typer.Option(
        "--run", help="Folder of a run, or its name in runs/; default: the newest there.", metavar="RUNS/NAME"
    ),
]
FileSettings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="How the file is written, as data.delimiter=';'; may be repeated.", metavar="DATA.FIELD=VALUE"
    ),
]
Trust = Annotated[bool, typer.Option("--trust", help="Run the Python code that the run's folder names as its model.")]


def evaluate(
    run: RunFolder = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", help="Files to evaluate on, may be repeated; default: the test (or valid) data of the config."
        ),
    ] = None,
    changes: FileSettings = None,
    trust: Trust = False,
    json_file: JsonFile = None,
) -> None:
    """Evaluate a finished run: AUC, logloss, calibration; of a regression RMSE, MAE, R2."""
    check_writable("--json", json_file)
    folder = find_run(run)
    with Restored(folder, trust=trust, changes=changes or ()) as restored:
        split, source = restored.part() if on is None else (OTHERS, restored.source(on))
        with Bar("rows", source.rows()) as bar:
            bar.line(f"run {folder}, on {', '.join(on) if on else f'its {split} data'}")
            found = restored.evaluate(source, split=split, watch=bar.rows)
            if source.trouble.malformed:
                bar.line(formatting.left_out(source.trouble))
            if (reason := one_class(found)) is not None:
                bar.line(f"note: {reason}")
    write_json(
        json_file,
        {
            "run": str(folder),
            "on": on or split,
            "rows": found.rows,
            "malformed": source.trouble.malformed,
            **found.metrics,
        },
    )
    Screen().print(result(found))


def result(found: Evaluated) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in found.metrics.items():
        table.add_row(cell(formatting.metric_name(name)), formatting.metric_value(name, value))
    table.add_row("rows", f"{found.rows:,}")
    return table
