"""The tier below a working set, and the rows on their way down to it."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor

from hotrow.store.hbm.copies import HostTierCalls
from hotrow.store.hbm.rows import HbmRows


class LowerTier(Protocol):
    """A tier below. Keys and rows of its calls are on the host; on the GPU if it has an `on_device` that is true."""

    def read(self, keys: Tensor, samples: int) -> HbmRows:
        """Whole rows of distinct keys in their order; absent ones are made. `samples`: all samples trained so far."""

    def write(self, rows: HbmRows) -> None:
        """Overwrite whole rows."""


@dataclass(slots=True)
class TransferCounts:
    """Rows that moved between the tiers."""

    up: int = 0
    up_ahead: int = 0  # of these, read before `begin` needed them
    down: int = 0  # written below
    reread: int = 0  # batches that were prefetched in vain
    read_s: float = 0.0  # of the thread that moves rows: in calls that read below and copy up,
    write_s: float = 0.0  # and in calls that copy down and write below
    wait_s: float = 0.0  # of the trainer, for rows that were not there yet

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the time of a block to one of the sums."""
        begin = perf_counter()
        try:
            yield
        finally:
            setattr(self, what, getattr(self, what) + perf_counter() - begin)


class WriteQueue:
    """Rows that the tier below has to get, in the order in which they were displaced.

    A write that fails stays the first: everything that is written or read later comes after it. So no older row
    overwrites a newer one, and none is read that is out of date. One thread takes out, another may add.
    """

    def __init__(self, lower: LowerTier, copies: HostTierCalls, counts: TransferCounts) -> None:
        self._lower, self._copies, self._counts = lower, copies, counts
        self._waiting: deque[tuple[HbmRows, torch.cuda.Event | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, rows: HbmRows) -> None:
        """Rows on the device, as they are at this point of the current stream."""
        self._waiting.append((rows, self._copies.record_event()))

    def write_all(self) -> None:
        """Write what waits."""
        while self._waiting:
            with self._counts.timed("write_s"):
                rows = self._copies.down(*self._waiting[0])
                self._waiting[0] = (rows, None)  # ready to be written, should the write fail
                self._write(rows)
            self._waiting.popleft()

    def write_after_all(self, rows: HbmRows, since: "torch.cuda.Event | None") -> None:
        """Write rows that the device keeps, after what waits; they do not join the queue."""
        self.write_all()
        with self._counts.timed("write_s"):
            self._write(self._copies.down(rows, since))

    def _write(self, rows: HbmRows) -> None:
        self._copies.write(self._lower, rows)
        self._counts.down += len(rows)
