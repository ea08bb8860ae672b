"""`hotrow vectors`: the vectors that a run has learnt, as a file."""

from pathlib import Path
from typing import Annotated

import typer

from hotrow.cli.bars import Bar
from hotrow.cli.files import JsonFile, check_writable, write_json
from hotrow.cli.screen import echo
from hotrow.errors import ConfigError
from hotrow.run.output_file import check_output
from hotrow.run.restored import find_run
from hotrow.run.vectors import SUFFIXES, IdCoverage, SavedVectors, ids_of


def vectors(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or its name in runs/.", metavar="RUN")],
    out: Annotated[Path, typer.Argument(help="A file to write, .parquet, .csv or .npy.", metavar="OUT")],
    table: Annotated[str | None, typer.Option(help="Which table, where there are several.", metavar="NAME")] = None,
    ids: Annotated[
        str | None, typer.Option(help="A CSV or Parquet file with ids to look up; needs --feature.", metavar="FILE")
    ] = None,
    feature: Annotated[
        str | None, typer.Option(help="Whose ids they are: a feature of the run.", metavar="NAME")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Write the vectors of RUN's checkpoint to OUT: key, vector, and the linear weight where the model has one.

    With --ids the rows of these ids alone, under the ids themselves and in their order.
    """
    check_writable("--json", json_file)
    check_output(out, "vectors", SUFFIXES, force=force)
    if (ids is None) != (feature is None):
        raise ConfigError("--ids and --feature go together: a file of ids, and the feature that they are ids of")
    saved = SavedVectors(find_run(run), table, feature)
    found = IdCoverage()
    with Bar("rows") as bar:
        bar.line(f"run {saved.folder}, table {saved.name}")
        if ids is None:
            with saved.output(out, force=force) as file:
                for rows in saved.write_all(file):
                    bar.rows(rows)
            bar.line(saved.key_note)
        else:
            kind, chunks = ids_of(ids, saved)
            with saved.output(out, ids=kind, force=force) as file:
                for rows in saved.write_ids(file, chunks, found):
                    bar.rows(rows)
            if found.absent:
                bar.line(
                    f"{found.absent:,} of {found.ids:,} ids have no row in table {saved.name!r} and are left out; "
                    f"the first: {found.first_absent!r}"
                )
    document = {"run": str(saved.folder), "table": saved.name, "out": str(out), "rows": file.rows}
    write_json(json_file, document | {"ids": found.ids, "absent": found.absent})
    echo(f"{file.rows:,} vectors in {out}")
