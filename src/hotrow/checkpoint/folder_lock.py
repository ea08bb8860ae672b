"""A lock on a local folder of checkpoints: runs that save into it share it, a rewrite in place needs it alone.

The lock is on the folder itself, so there is no file, and it ends with the process. Object stores have none, and
neither have file systems that do not lock.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from hotrow.checkpoint.place import Place
from hotrow.errors import FileError, InputError


class SharedFolder:
    """The folder that a run saves into, one at a time."""

    def __init__(self) -> None:
        self._handle: int | None = None

    def hold(self, place: Place) -> None:
        """Hold this folder instead of the one before; none, where it is not there yet.

        FileError where it is being rewritten: then the one before is still held. A folder that was removed or renamed
        and made again is another one.
        """
        handle = _opened(place)
        if handle is not None and self._holds(handle):
            os.close(handle)
            return
        if handle is not None and not _locked(handle, fcntl.LOCK_SH):
            os.close(handle)
            message = f"checkpoint {place.name}: another process compacts or reshards it"
            raise FileError(f"{message}: save again later, or to another folder")
        self.release()
        self._handle = handle

    def release(self) -> None:
        """Hold none."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _holds(self, handle: int) -> bool:
        return self._handle is not None and os.path.samestat(os.fstat(self._handle), os.fstat(handle))

    def __del__(self) -> None:
        with suppress(OSError):
            self.release()


@contextmanager
def alone_in(place: Place) -> Iterator[None]:
    """Hold a folder for a rewrite in place; InputError where a run may save into it."""
    handle = _opened(place)
    try:
        if handle is not None and not _locked(handle, fcntl.LOCK_EX):
            message = (
                f"checkpoint {place.name}: a run that is not closed saves into it, or another rewrite is under way"
            )
            raise InputError(f"{message}: name another folder with --to, or wait until it has ended")
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _opened(place: Place) -> int | None:
    if place.local is None:
        return None
    try:
        return os.open(place.local, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # it is not there yet, or whoever writes to it tells what is wrong
        return None


def _locked(handle: int, how: int) -> bool:
    """False where another process holds it; a file system without locks refuses nothing."""
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
