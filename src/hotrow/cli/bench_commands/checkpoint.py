"""`hotrow bench checkpoint`: saving and loading, beside plain writes and reads."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Annotated

import typer

from hotrow.bench import checkpoint as saving
from hotrow.bench import checkpoint_report, report
from hotrow.bench.checkpoint_plan import CheckpointPlan
from hotrow.cli.bench_commands.checks import check_runnable
from hotrow.cli.bench_commands.options import Json, Quick
from hotrow.cli.bench_commands.stage_bar import StageBar
from hotrow.cli.screen import Screen
from hotrow.errors import ConfigError


def checkpoint(
    dim: Annotated[int | None, typer.Option(min=1, help="Floats per row. [16]")] = None,
    rows: Annotated[int | None, typer.Option(min=100, help="Rows in the table. [2,000,000]")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds in which everything runs once. [9]")] = None,
    folder: Annotated[Path | None, typer.Option(help="Write to this folder's disk. [that for temporary files]")] = None,
    json: Json = None,
    quick: Quick = False,
) -> None:
    """Saving and loading beside plain writes and reads of as many bytes, training meanwhile, and deltas."""
    check_runnable("checkpoint", json, None)
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"--folder {folder}: there is no such folder, make it first")
    sizes = CheckpointPlan().quick() if quick else CheckpointPlan()
    job = replace(sizes, dim=dim or sizes.dim, rows=rows or sizes.rows, rounds=rounds or sizes.rounds)
    job.check_room(folder or Path(gettempdir()))
    with StageBar() as bar, TemporaryDirectory(prefix="hotrow-bench-", dir=folder) as place:
        figures = saving.measure(job, Path(place), bar)
    if json is not None:
        report.write_json(json, checkpoint_report.document(job, figures))
    Screen().print(checkpoint_report.summary(job, figures))
