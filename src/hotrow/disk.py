"""Files that are written whole or not at all, and the sentence where a file system does not take them."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EDQUOT, ENOSPC
from pathlib import Path

from hotrow.errors import FileError
from hotrow.sizes import size_text

PART = ".part"  # behind the name of a file that is not whole yet


def write_text(path: Path, text: str, what: str) -> None:
    """Replace a file, or make it; where that fails the one before stays whole and nothing is left beside it.

    A symbolic link stays and its target is replaced. A file that is replaced keeps its mode.
    """
    data = text.encode("utf-8", errors="replace")  # a damaged line may hold what UTF-8 has not
    target = path.resolve()
    special = target.exists() and not target.is_file()  # as /dev/stdout: nothing to replace
    part = path if special else part_of(target)
    with written(path, what, len(data)):
        try:
            part.write_bytes(data)
            if not special:
                if target.exists():
                    part.chmod(stat.S_IMODE(target.stat().st_mode))
                part.replace(target)
        except BaseException:
            if not special:
                with suppress(OSError):
                    part.unlink(missing_ok=True)
            raise


def part_of(path: Path) -> Path:
    """Where a file or folder is written before it takes its place."""
    return path.with_name(path.name + PART)


@contextmanager
def written(path: Path | str, what: str, size: int | None = None) -> Iterator[None]:
    """An OSError inside becomes a FileError that names the file."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, what, size, error) from None


def fault_of(write: Callable[[], None]) -> FileError | None:
    """Do it; gives why something cannot be written, or None."""
    try:
        write()
    except FileError as error:
        return error
    return None


def cannot_write(path: Path | str, what: str, size: int | None, error: OSError | str) -> FileError:
    """What to say: the path, what was to be written and its size, why not, and how much is free.

    A text is the name of a place on no disk of this host: what is free there is not known.
    """
    measured = what if size is None else f"{what} ({size_text(size)})"
    if isinstance(error, str):
        return FileError(f"{path}: {measured} cannot be written: {error}")
    reason = error.strerror or str(error)
    full = isinstance(path, Path) and error.errno in (None, ENOSPC, EDQUOT)
    free = free_bytes(Path(path)) if full else None
    room = "" if free is None else f", {size_text(free)} are free: make room"
    return FileError(f"{path}: {measured} cannot be written: {reason}{room}")


def check_room(path: Path, size: int, what: str) -> None:
    """FileError where a file system has less than `size` bytes free."""
    free = free_bytes(path)
    if free is not None and free < size:
        raise cannot_write(path, what, size, f"{size_text(free)} are free: make room")


def free_bytes(path: Path) -> int | None:
    """What this user may still write where `path` is or would be; None where the file system does not say."""
    place = path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        found = os.statvfs(place)
    except OSError:
        return None
    blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail
    return blocks * found.f_frsize if found.f_blocks else None
