"""How many random reads a second the disk gives: by fio where it is installed, else by threads of this process."""

import json
import mmap
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hotrow.errors import HotrowError

BLOCK = 4096
FILL_BYTES = 1 << 22  # written at once

Reader = Literal["fio", "threads"]


@dataclass(frozen=True, slots=True)
class DiskRate:
    """Random reads of blocks of one size."""

    reads_per_s: float
    block_bytes: int
    depth: int
    reader: Reader


class RandomReads:
    """A file of random bytes, and the rate at which blocks anywhere in it can be read past the page cache."""

    def __init__(self, folder: Path, file_bytes: int, *, block_bytes: int = BLOCK, depth: int = 32) -> None:
        self._file = folder / "random-reads.bin"
        self._bytes = -(-file_bytes // FILL_BYTES) * FILL_BYTES
        self.block_bytes, self.depth = block_bytes, depth
        self.reader: Reader = "fio" if shutil.which("fio") else "threads"
        _fill(self._file, self._bytes)

    def measure(self, seconds: float, block_bytes: int | None = None) -> DiskRate:
        """Read for so long, blocks of the size that was set or of another one."""
        run = self._by_fio if self.reader == "fio" else self._by_threads
        block = self.block_bytes if block_bytes is None else block_bytes
        return DiskRate(run(seconds, block), block, self.depth, self.reader)

    def close(self) -> None:
        """Remove the file."""
        self._file.unlink(missing_ok=True)

    def _by_fio(self, seconds: float, block_bytes: int) -> float:
        command = fio_command(self._file, self._bytes, block_bytes, self.depth, seconds)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise HotrowError(f"fio failed ({done.returncode}): {done.stderr.strip() or done.stdout.strip()}")
        return fio_reads_per_s(done.stdout)

    def _by_threads(self, seconds: float, block_bytes: int) -> float:
        return threads_reads_per_s(self._file, block_bytes, self.depth, seconds)


def fio_command(file: Path, file_bytes: int, block_bytes: int, depth: int, seconds: float) -> list[str]:
    """Random reads past the page cache, `depth` at a time, for so long."""
    return [
        "fio",
        "--name=random-reads",
        f"--filename={file}",
        f"--size={file_bytes}",
        "--rw=randread",
        f"--bs={block_bytes}",
        "--direct=1",
        "--ioengine=libaio",
        f"--iodepth={depth}",
        "--time_based",
        f"--runtime={max(round(1e3 * seconds), 1)}ms",
        "--output-format=json",
    ]


def fio_reads_per_s(text: str) -> float:
    """Of fio's JSON, which may follow lines of warnings."""
    try:
        found: dict[str, Any] = json.loads(text[text.index("{") :])
        jobs: Sequence[dict[str, Any]] = found["jobs"]
        errors = [int(job["error"]) for job in jobs]
        reads = sum(float(job["read"]["iops"]) for job in jobs)
    except (ValueError, KeyError, TypeError) as error:
        raise HotrowError(f"fio's output has no read rate ({type(error).__name__}: {error}): {text[:200]!r}") from error
    if any(errors):
        raise HotrowError(f"fio reports error {next(filter(None, errors))}: {os.strerror(next(filter(None, errors)))}")
    if not reads > 0:
        raise HotrowError("fio read nothing: give it more time")
    return reads


def threads_reads_per_s(file: Path, block_bytes: int, depth: int, seconds: float) -> float:
    """The same by `depth` threads that call preadv; past the page cache where the file system permits it."""
    handle = _open_direct(file)
    blocks = os.fstat(handle).st_size // block_bytes
    counts = [0] * depth
    end = time.perf_counter() + seconds

    def read(number: int) -> None:
        places = np.random.default_rng(number)
        with mmap.mmap(-1, block_bytes) as memory:  # aligned to a page, as direct reads need
            while time.perf_counter() < end:
                for place in places.integers(blocks, size=16).tolist():
                    os.preadv(handle, [memory], place * block_bytes)
                counts[number] += 16

    threads = [threading.Thread(target=read, args=(number,)) for number in range(depth)]
    start = time.perf_counter()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        os.close(handle)
    return sum(counts) / (time.perf_counter() - start)


def _open_direct(file: Path) -> int:
    try:
        return os.open(file, os.O_RDONLY | os.O_DIRECT)
    except OSError:  # a file system in memory has no direct reads
        return os.open(file, os.O_RDONLY)


def _fill(file: Path, size: int) -> None:
    """Random bytes: a disk that compresses or leaves out zeros would be measured at something else."""
    block = np.random.default_rng(0).bytes(FILL_BYTES)
    with file.open("wb") as out:
        for _ in range(size // FILL_BYTES):
            out.write(block)
        out.flush()
        os.fsync(out.fileno())
