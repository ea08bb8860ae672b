"""Checks before a long measurement."""

import sys
from pathlib import Path

from hotrow.bench import pages
from hotrow.cli.screen import echo
from hotrow.errors import ConfigError


def check_runnable(command: str, json: Path | None, picture: Path | None) -> None:
    """Raise before a long run what would fail at its end."""
    if sys.platform != "linux":
        raise ConfigError(f"hotrow bench {command} reads memory from /proc, which {sys.platform} has not: use Linux")
    check_places(json=json, picture=picture)


def check_places(**files: Path | None) -> None:
    """The folders of the files that will be written, by their options."""
    for option, path in files.items():
        if path is not None and not path.parent.is_dir():
            raise ConfigError(f"--{option} {path}: the folder {path.parent} does not exist, make it first")
        if path is not None and path.is_dir():
            raise ConfigError(f"--{option} {path}: is a folder, name a file in it")


def give_peers_huge_pages() -> None:
    """Start again where the allocator of peers gets no huge pages: our tables have them."""
    if not pages.peers_get_huge_pages():
        echo(f"starting again with {pages.TUNABLES}={pages.HUGE_MALLOC}: peers get 2 MB pages too", err=True)
        pages.restart_with_huge_pages()
