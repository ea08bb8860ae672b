"""`hotrow predict`: probabilities for the rows of a file, or the numbers of a regression."""

from pathlib import Path
from typing import Annotated

import typer

from hotrow.cli import formatting
from hotrow.cli.bars import Bar
from hotrow.cli.evaluate import FileSettings, RunFolder, Trust
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.screen import echo
from hotrow.errors import ConfigError
from hotrow.run.predictions import PredictionFile, check_free
from hotrow.run.restored import Restored, find_run


def predict(
    given: Annotated[
        str, typer.Argument(help="A file with the columns of the features; labels are not needed.", metavar="IN")
    ],
    out: Annotated[Path, typer.Argument(help="A file to write, .csv or .parquet.", metavar="OUT")],
    run: RunFolder = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Copy this column of IN to OUT; may be repeated.", metavar="COLUMN"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
    changes: FileSettings = None,
    trust: Trust = False,
    json_file: JsonFile = None,
) -> None:
    """Predict the rows of IN with a finished run.

    OUT has the columns row (the number of the row in IN, from 0; the header and empty lines do not count), those of
    --keep, and probability (of a regression: prediction); with several labels one probability_LABEL for each. IN needs
    the columns of the features. Rows that cannot be read are left out and counted.
    """
    check_writable("--json", json_file)
    check_free(out, force=force)
    if out.exists() and Path(given).exists() and out.samefile(given):
        raise ConfigError(f"{out}: is the input file: write to another file")
    folder = find_run(run)
    written = 0
    with Restored(folder, trust=trust, changes=changes or ()) as restored:
        kept = tuple(keep or ())
        source = restored.unlabelled(given, kept)
        output = PredictionFile(out, restored.schema, force=force, keep=kept, task=restored.trainer.task)
        with Bar("rows", source.rows()) as bar, output as file:
            bar.line(f"run {folder}")
            for some in restored.predict(source, kept):
                file.write(some)
                written += len(some.rows)
                bar.rows(written)
            if source.trouble.malformed:
                bar.line(formatting.left_out(source.trouble))
    write_json(json_file, {"run": str(folder), "out": str(out), "rows": written, "malformed": source.trouble.malformed})
    echo(f"{written:,} predictions in {out}")
