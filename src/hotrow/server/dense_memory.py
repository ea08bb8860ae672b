"""The dense parameters of a shard in shared memory: a process that is killed leaves those of its last order.

The file holds two copies. One is always whole: a write goes to the older copy, whose number is 0 meanwhile and the next
number after it. The kernel keeps what a killed process has stored, in the order in which it was stored.
"""

import fcntl
import json
import mmap
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotrow.errors import SegmentError
from hotrow.store.segments import GROWING_SUFFIX

MAGIC = np.frombuffer(b"hotrowdn", np.uint64)[0]
PAGE = 4096
ALIGNED = 64


class DenseMemory:
    """Tensors by name, and figures, of one moment. One thread of one process uses it."""

    def __init__(self, path: Path) -> None:
        """Attach to a file that an earlier process of this user left, or begin with none."""
        self.path = path
        self._file, self._slot_bytes, self._number = -1, 0, 0
        self._memory: mmap.mmap | None = None
        with suppress(FileNotFoundError):
            self._attach()

    @property
    def attached(self) -> bool:
        """Whether a whole copy is there."""
        return self._number > 0

    def write(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Replace the older copy."""
        flat = {name: each.detach().reshape(-1).contiguous() for name, each in tensors.items()}
        layout, size = [], 0
        for name, each in tensors.items():
            layout.append((name, str(each.dtype).removeprefix("torch."), tuple(each.shape)))
            size += _aligned(each.numel() * each.element_size())
        header = json.dumps({"layout": layout, "facts": facts}).encode()
        if PAGE + _aligned(len(header)) + size > self._slot_bytes:
            self._grow(PAGE + 2 * _aligned(len(header)) + size)
        words, slot = self._words(), (self._number + 1) % 2
        words[2 + slot] = 0
        start = PAGE + slot * self._slot_bytes
        bytes_of = np.frombuffer(self._mapped(), np.uint8)
        bytes_of[start : start + 8].view(np.uint64)[0] = len(header)
        at = start + 8
        bytes_of[at : at + len(header)] = np.frombuffer(header, np.uint8)
        at = start + _aligned(8 + len(header))
        for each in flat.values():
            size = each.numel() * each.element_size()
            bytes_of[at : at + size] = each.view(torch.uint8).numpy()
            at += _aligned(size)
        self._number += 1
        words[2 + slot] = self._number

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Copies of the tensors of the newest copy, and its figures."""
        start = PAGE + (self._number % 2) * self._slot_bytes
        bytes_of = np.frombuffer(self._mapped(), np.uint8)
        length = int(bytes_of[start : start + 8].view(np.uint64)[0])
        content = json.loads(bytes_of[start + 8 : start + 8 + length].tobytes())
        at = start + _aligned(8 + length)
        tensors = {}
        for name, dtype, shape in content["layout"]:
            empty = torch.empty(shape, dtype=getattr(torch, dtype))
            size = empty.numel() * empty.element_size()
            tensors[name] = torch.from_numpy(bytes_of[at : at + size].copy()).view(empty.dtype).reshape(shape)
            at += _aligned(size)
        return tensors, content["facts"]

    def close(self, *, leave: bool = False) -> None:
        """Remove the file, unless it is left to the next process."""
        if self._file >= 0:
            if not leave:
                self.path.unlink(missing_ok=True)
            os.close(self._file)
            self._file, self._memory = -1, None

    def _mapped(self) -> mmap.mmap:
        if self._memory is None:
            raise SegmentError(f"{self.path}: is closed")
        return self._memory

    def _words(self) -> Any:
        """Magic, bytes of a copy, number of the first copy, of the second."""
        return np.frombuffer(self._mapped(), np.uint64, 4)

    def _attach(self) -> None:
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            about = os.fstat(file)
            if about.st_uid != os.geteuid() or about.st_mode & 0o077:
                raise SegmentError(f"{self.path}: is not a file of this user alone: remove it")
            fcntl.flock(file, fcntl.LOCK_EX)  # `hotrow segments` holds it for a moment
            memory = mmap.mmap(file, about.st_size)
        except (OSError, ValueError) as error:
            os.close(file)
            raise SegmentError(f"{self.path}: cannot be used: {error}") from None
        except SegmentError:
            os.close(file)
            raise
        self._file, self._memory = file, memory
        words = self._words()
        if words[0] == MAGIC:
            self._slot_bytes, self._number = int(words[1]), int(max(words[2], words[3]))

    def _grow(self, slot_bytes: int) -> None:
        """A larger file takes the place of this one when it holds the newest copy too."""
        kept = self.read() if self._number else None
        fresh = self.path.with_suffix(GROWING_SUFFIX)
        with suppress(FileNotFoundError):
            fresh.unlink()
        file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        slot_bytes = -(-slot_bytes // PAGE) * PAGE
        try:
            os.posix_fallocate(file, 0, PAGE + 2 * slot_bytes)
        except OSError as error:
            os.close(file)
            fresh.unlink()
            raise SegmentError(f"{self.path}: dense parameters do not fit: {error.strerror}") from None
        if self._file >= 0:
            os.close(self._file)
        self._file, self._memory = file, mmap.mmap(file, PAGE + 2 * slot_bytes)
        self._slot_bytes = slot_bytes
        words = self._words()
        words[1] = slot_bytes
        words[0] = MAGIC
        if kept is not None:
            self.write(*kept)
        fresh.rename(self.path)


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED
