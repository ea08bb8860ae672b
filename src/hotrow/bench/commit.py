"""The commit that a measurement ran from."""

import subprocess
from pathlib import Path


def commit() -> str | None:
    """The commit of the sources that run, marked -dirty if they differ from it; None outside a checkout."""
    here = Path(__file__)
    tracked = _git(here.parent, "ls-files", "--error-unmatch", here.name)
    return (
        None if tracked is None else _git(here.parent, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    )


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
