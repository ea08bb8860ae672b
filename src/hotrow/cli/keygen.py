"""`hotrow keygen`: the secret that the roles of a cluster share."""

from pathlib import Path
from typing import Annotated

import typer

from hotrow.cli.screen import echo
from hotrow.transport.security import KEY_FILE, ClusterKey


def keygen(
    file: Annotated[Path, typer.Argument(help="Where to write the key; must not exist.", metavar="FILE")],
) -> None:
    """Write a new cluster key to FILE, readable by its owner only. Every machine of a cluster needs the same key."""
    ClusterKey.generate().write(file)
    echo(f"{file}\ncopy it to every machine of the cluster (mode 600), then: export {KEY_FILE}={file.absolute()}")
