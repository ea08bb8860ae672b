"""The disk without a checkpoint: the same number of bytes, in as many files, written and read by plain calls."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

READ_BYTES = 1 << 22  # at once
IO_COUNTS = Path("/proc/self/io")


class RawFiles:
    """Files of random bytes that have the lengths of others. Each set is synced before the one before it is removed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes = b""
        self._old: list[Path] = []
        self._sets = 0

    def prepare(self, sizes: Sequence[int]) -> None:
        """Make the bytes of the longest file."""
        if len(self._bytes) < max(sizes):
            self._bytes = np.random.default_rng(0).bytes(max(sizes))

    def write(self, sizes: Sequence[int]) -> None:
        """Write and sync a new set, then remove the one before."""
        self._sets += 1
        new = [self._folder / f"raw-{self._sets}-{place}" for place in range(len(sizes))]
        for path, size in zip(new, sizes, strict=True):
            _write(path, memoryview(self._bytes)[:size])
        _sync(self._folder)
        self.remove()
        self._old = new

    def remove(self) -> None:
        """Remove the newest set."""
        for path in self._old:
            path.unlink()
        self._old = []


def read(files: Sequence[Path]) -> None:
    """Read all of each file into one buffer."""
    block = bytearray(READ_BYTES)
    for path in files:
        handle = os.open(path, os.O_RDONLY)
        try:
            while os.readv(handle, [block]):
                pass
        finally:
            os.close(handle)


def drop_cache(files: Sequence[Path]) -> None:
    """Ask the system to forget the content of files that are on the disk; some file systems keep it."""
    for path in files:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


def bytes_from_disk() -> int:
    """Bytes that this process made the system fetch from a disk so far; 0 where that is not counted."""
    try:
        lines = dict(line.split(": ") for line in IO_COUNTS.read_text().splitlines())
    except OSError:
        return 0
    return int(lines["read_bytes"])


def _write(path: Path, data: memoryview) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
