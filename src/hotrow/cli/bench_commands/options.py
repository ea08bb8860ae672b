"""Options that several measurements have."""

from pathlib import Path
from typing import Annotated

import typer

Peers = Annotated[
    list[Path] | None,
    typer.Option("--peer", help="An adapter of another system, as in benchmarks/peers; repeat for several."),
]
Json = Annotated[Path | None, typer.Option(help="Write all figures to this file.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes: shows that it works, measures nothing.")]
