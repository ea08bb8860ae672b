"""The directory in which a private Ray keeps sockets and logs: private to the user, removed with the run.

All directories of a user are under one of mode 0700, because Ray opens its own to every user. A process holds a lock on
its directory itself, so that a cleaner of /tmp, which removes old files, cannot drop the lock. The kernel drops it when
the process dies, however it dies; the next start removes all directories without a lock.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotrow.errors import ConfigError

SOCKET_PATH_BYTES = 107  # of a unix socket's path, at most
RAY_PATH = "/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"  # that Ray adds to its directory
RANDOM_NAME = "/abcdefgh"  # as mkdtemp makes them
LOCK, PREFIX = "lock", "hotrow-ray-"
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@contextmanager
def private_dir(base: Path | None = None) -> Iterator[Path]:
    """A new directory under `base`. Remove those of dead processes before, and this one after."""
    root = _user_dir(base or base_dir())
    try:
        made, lock = _make(root)
    except OSError as error:
        raise ConfigError(f"{root}: cannot hold files of Ray ({error.strerror}): set TMPDIR to another place") from None
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def is_private_dir(path: Path) -> bool:
    """Whether `path` was made by `private_dir`, in a process of any user."""
    return re.fullmatch(f"{PREFIX}[0-9]+", path.parent.name) is not None


def _make(root: Path) -> tuple[Path, int]:
    """A directory and the handle that locks it."""
    with _locked(root / LOCK):
        for left in root.iterdir():
            if left.is_dir() and not _is_locked(left):
                shutil.rmtree(left, ignore_errors=True)
        made = Path(tempfile.mkdtemp(prefix="", dir=root))
        lock = os.open(made, DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return made, lock


def base_dir() -> Path:
    """RAY_TMPDIR, TMPDIR or /tmp: the first one that is short enough for the paths of Ray's sockets."""
    for base in (os.environ.get("RAY_TMPDIR"), tempfile.gettempdir()):
        if base and len(os.fsencode(f"{_user_path(Path(base))}{RANDOM_NAME}{RAY_PATH}")) <= SOCKET_PATH_BYTES:
            return Path(base)
    return Path("/tmp")


def _user_path(base: Path) -> Path:
    return base / f"{PREFIX}{os.geteuid()}"


def _user_dir(base: Path) -> Path:
    """Made if it is missing. Another user may have made one of this name before: its owner and mode are checked."""
    path = _user_path(base)
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        about = path.lstat()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be made ({error.strerror}): set TMPDIR to a directory of yours") from None
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        message = f"{path}: must be a directory of user {os.geteuid()} with mode 700, for the files of Ray"
        raise ConfigError(f"{message}: remove it, or set TMPDIR to a directory of yours")
    return path


def _is_locked(directory: Path) -> bool:
    """Whether a living process holds the lock; True where that cannot be seen."""
    try:
        handle = os.open(directory, DIRECTORY)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Serialise making and removing directories: none is visible to another process before it is locked."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
