"""`hotrow new`: a config to start from."""

from pathlib import Path
from typing import Annotated

import typer

from hotrow.cli.screen import echo
from hotrow.run.starter import write_starter


def new(
    folder: Annotated[
        Path,
        typer.Argument(help="Folder of the config, made if it does not exist; the run gets its name.", metavar="DIR"),
    ],
) -> None:
    """Write DIR/train.toml: a config for your own CSV or Parquet file, with every important setting explained."""
    path = write_starter(folder)  # its run has the name of the folder
    echo(f"{path}\nedit its files and columns, then run: hotrow train {path}")
