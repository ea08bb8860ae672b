"""Rows that come and go: slots for new keys, the rows that these displace, and how many there were."""

from torch import Tensor

from hotrow.store.hbm.columns import RowColumns
from hotrow.store.hbm.rows import HbmRows, joined_rows
from hotrow.store.hbm.table import ClaimBuffers, HashTable


class RowAllocator:
    """Gives the rows of a hash table and its columns their slots, and counts them."""

    def __init__(self, table: HashTable, columns: RowColumns) -> None:
        self._table, self._columns = table, columns
        self.rows = self.created = self.erased = self.evicted = self.turned_away = 0
        self.moves = 0  # evictions and removals: while it stays, slots of plans hold
        self.displaced: list[HbmRows] = []  # that no call has returned yet

    def place(
        self,
        keys: Tensor,
        slots: Tensor,
        size: Tensor | None,
        bucket_full: Tensor | None,
        used: list[Tensor],
        period: int | None,
    ) -> tuple[Tensor, int]:
        """Rows for distinct keys whose slot is negative; returns the new slots, and how many keys got none.

        `size` and `bucket_full` are as in a lookup. Rows at `used` slots are not displaced. New rows are fresh ones of
        this SWAP period; without one the caller writes them.
        Where it fails (no memory, an interrupt) no key has a row and nothing is locked. Rows that were to be displaced
        stay, or are kept for `take_evicted` where they were copied out already.
        """
        table, kept, buffers = self._table, len(self.displaced), ClaimBuffers.of(keys)
        try:
            for each in used:
                table.lock(each)
            claimed = table.claim(keys, slots, buffers, bucket_full, size)
            if claimed.displaced:
                gone = buffers.displaced_keys[: claimed.displaced], buffers.displaced_slots[: claimed.displaced]
                self.displaced.append(self._columns.read(*gone))
            if period is not None and claimed.made:
                self._columns.make(keys, buffers.made, period)
            table.unlock([*used, slots])
        except BaseException:
            copied = len(self.displaced) > kept
            if copied:
                self._count_evicted(len(self.displaced[-1]))
            table.undo(keys, buffers, copied=copied)
            raise
        self._count_evicted(claimed.displaced)
        self.rows += claimed.made
        self.created += claimed.made
        self.turned_away += claimed.turned_away
        return buffers.made, claimed.turned_away

    def _count_evicted(self, rows: int) -> None:
        self.rows -= rows
        self.evicted += rows
        self.moves += rows

    def take_evicted(self) -> HbmRows | None:
        """Displaced rows that no call has returned."""
        rows = joined_rows(self.displaced) if sum(map(len, self.displaced)) else None
        self.displaced.clear()
        return rows

    def clear(self) -> None:
        """Free all slots. Displaced rows go too."""
        self._table.clear()
        self.displaced.clear()
        self.moves += self.rows
        self.erased += self.rows
        self.rows = 0

    def erase(self, slots: Tensor, rows: int) -> None:
        """Free distinct slots, of which `rows` hold one."""
        self._table.erase(slots)
        self.rows -= rows
        self.erased += rows
        self.moves += rows
