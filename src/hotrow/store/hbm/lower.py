"""The tier below a working set, and the rows on their way down to it."""

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from hotrow.store.hbm.copies import SideStream
from hotrow.store.hbm.rows import HbmRows


class LowerTier(Protocol):
    """A tier below, with rows on the host."""

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


class WriteQueue:
    """Rows that the tier below has to get, in the order in which they were displaced.

    A write that fails stays the first: everything that is written or read later comes after it. So no older row
    overwrites a newer one, and none is read that is out of date. One thread takes out, another may add.
    """

    def __init__(self, lower: LowerTier, copies: SideStream, counts: TransferCounts) -> None:
        self._lower, self._copies, self._counts = lower, copies, counts
        self._waiting: deque[tuple[HbmRows, torch.cuda.Event | None]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, rows: HbmRows) -> None:
        """Rows on the device, as they are at this point of the current stream."""
        self._waiting.append((rows, self._copies.mark()))

    def write_all(self) -> None:
        """Write what waits."""
        while self._waiting:
            rows = self._copies.down(*self._waiting[0])
            self._waiting[0] = (rows, None)  # on the host now, should the write fail
            self._write(rows)
            self._waiting.popleft()

    def write_after_all(self, rows: HbmRows, since: "torch.cuda.Event | None") -> None:
        """Write rows that the device keeps, after what waits; they do not join the queue."""
        self.write_all()
        self._write(self._copies.down(rows, since))

    def _write(self, rows: HbmRows) -> None:
        self._lower.write(rows)
        self._counts.down += len(rows)
