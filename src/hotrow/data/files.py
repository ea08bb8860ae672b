"""Which files a path, a glob, a list or a URI names, and how they are opened. Nothing is read here."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import fs

from hotrow.errors import InputError

QUERY = re.compile(r"\?(?=\w+=)")  # begins the options of a file system; a ? before anything else is a part of a glob

Where: TypeAlias = "str | Path | File | Sequence[str | Path | File]"


@dataclass(frozen=True, slots=True)
class File:
    """One file, and its name in messages. The path is that of every process of a host, whatever its directory."""

    name: str
    path: str
    filesystem: Any = field(default_factory=fs.LocalFileSystem)

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def stream(self) -> Any:
        """From the start; unpacked if its name ends in .gz, .bz2 or .zst."""
        return self._opened(self.filesystem.open_input_stream)

    def file(self) -> Any:
        """With random access."""
        return self._opened(self.filesystem.open_input_file)

    def _opened(self, how: Any) -> Any:
        try:
            return how(self.path)
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(f"{self.name}: cannot be opened: {error}") from None


def find_files(where: Where, base: Path = Path()) -> tuple[File, ...]:
    """All files that `where` names, globs sorted by name; relative paths start at `base`."""
    named = [where] if isinstance(where, str | Path | File) else list(where)
    if not named:
        raise InputError("no file is named: give a path, a glob such as 'day_*.csv', or a list of them")
    return tuple(file for each in named for file in _named(each, base))


def _named(each: str | Path | File, base: Path) -> Iterator[File]:
    if isinstance(each, File):
        yield each
    else:
        yield from _remote(each) if "://" in str(each) else _local(Path(each), base)


def _local(path: Path, base: Path) -> Iterator[File]:
    whole = base / path.expanduser()
    if whole.is_dir():
        raise InputError(f"{whole}: is a directory: name its files, as '{whole}/*'")
    if whole.exists():
        yield File(str(whole), str(whole.absolute()))
        return
    if not has_magic(str(whole)):
        raise InputError(f"{whole}: there is no such file")
    found = [each for each in sorted(glob(str(whole), recursive=True)) if not Path(each).is_dir()]
    if not found:
        raise InputError(f"{whole}: no file has such a name")
    yield from (File(each, str(Path(each).absolute())) for each in found)


def _remote(uri: str | Path) -> Iterator[File]:
    scheme, _, given = str(uri).partition("://")
    rest, *options = QUERY.split(given, maxsplit=1)
    query = "".join(f"?{each}" for each in options)
    steps = rest.split("/")
    fixed = next((place for place, step in enumerate(steps) if has_magic(step)), len(steps))
    text = f"{scheme}://{_without_user(rest)}"  # in messages: a user may come with a password
    try:
        filesystem, folder = fs.FileSystem.from_uri(f"{scheme}://{'/'.join(steps[:fixed])}{query}")
    except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InputError(f"{text}: cannot be used: {error}") from None
    if fixed == len(steps):
        yield _remote_file(text, filesystem, folder)
        return
    found = list(_matching(filesystem, folder, steps[fixed:]))
    if not found:
        raise InputError(f"{text}: no file has such a name")
    yield from (File(f"{scheme}://{path.lstrip('/') if rest[:1] != '/' else path}", path, filesystem) for path in found)


def _without_user(rest: str) -> str:
    host, slash, path = rest.partition("/")
    return f"{host.rpartition('@')[2]}{slash}{path}"


def _remote_file(text: str, filesystem: Any, path: str) -> File:
    kind = filesystem.get_file_info(path).type
    if kind == fs.FileType.Directory:
        raise InputError(f"{text}: is a directory: name its files, as '{text.rstrip('/')}/*'")
    if kind == fs.FileType.NotFound:
        raise InputError(f"{text}: there is no such file")
    return File(text, path, filesystem)


def _matching(filesystem: Any, folder: str, pattern: list[str]) -> list[str]:
    """Files below a folder whose further steps match one by one."""
    below = filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True, recursive=len(pattern) > 1))
    depth = len(folder.rstrip("/")) + 1
    paths = [info.path for info in below if info.type == fs.FileType.File]
    return sorted(path for path in paths if _matches(path[depth:].split("/"), pattern))


def _matches(steps: list[str], pattern: list[str]) -> bool:
    return len(steps) == len(pattern) and all(map(fnmatchcase, steps, pattern))
