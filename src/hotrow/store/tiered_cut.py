"""A cut of both tiers of a table: all its rows as they were at one moment, while rows go on moving between the tiers.

A row that moves down or changes after the moment was copied by the cut of the memory; a row that moves up stays in the
file until the cut of the disk ends.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from hotrow.errors import InputError
from hotrow.store.arrays import Keys
from hotrow.store.cut import TableCut
from hotrow.store.rows import Rows

if TYPE_CHECKING:
    from hotrow.store.tiered import TieredTier


class TieredCut(TableCut):
    """Made under the lock of the table. `rows` and `changed_rows` count both tiers."""

    def __init__(self, tier: "TieredTier", *, changed_only: bool) -> None:
        since = tier.saved_cut if changed_only else None
        if changed_only and since is None:
            raise InputError(
                f"table {tier.table.name!r}: changed_only=True: not all changes since the last cut are known: "
                "take a cut of all rows"
            )
        super().__init__(tier, changed_only=changed_only)
        self._tiered = tier
        try:
            self._disk = tier.disk.begin_cut(since=since)
        except BaseException:
            super().close(saved=False)
            raise
        self.rows += tier.disk.unshadowed
        self.changed_rows += self._disk.count

    def chunks(self, rows: int = 65_536) -> Iterator[Rows]:
        """The rows of the disk first: they were evicted before those in memory."""
        self._open()
        while (chunk := self._disk.rows(rows)) is not None:
            yield self._tiered.unexpired(chunk)
        yield from super().chunks(rows)

    @property
    def removed(self) -> Keys:
        """As `TableCut.removed`, from either tier."""
        return np.union1d(super().removed, self._disk.removed)

    def close(self, *, saved: bool) -> None:
        """End both cuts. A second call does nothing."""
        if self._finalizer.alive and self._tiered.usable:
            self._disk.end(saved=saved)
            if saved:
                self._tiered.saved_cut = self._disk.number
        super().close(saved=saved)
