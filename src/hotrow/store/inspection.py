"""Reading a table without changing it: fields of rows, eviction order, all rows in chunks, counts, faults."""

from collections.abc import Iterator

import numpy as np

from hotrow.errors import InputError
from hotrow.spec import whole_number
from hotrow.store.arrays import ArrayLike, Integers, Keys
from hotrow.store.cut import CutTable
from hotrow.store.rows import GoneKeys, LookupPlan, Rows, Stats, first_rows


class TableInspection(CutTable):
    """The calls of `RamTier` that no training step needs."""

    def versions(self, keys: ArrayLike | LookupPlan) -> Integers:
        """How often each row changed, counted from 1; 0 where the row is absent."""
        return self.read(keys, "version")

    def clocks(self, keys: ArrayLike | LookupPlan) -> Integers:
        """HET's clock of each row; 0 where the row is absent."""
        return self.read(keys, "clock")

    def last_updates(self, keys: ArrayLike | LookupPlan) -> Integers:
        """The step after which each row last changed; 0 where it never did or the row is absent."""
        return self.read(keys, "last_update")

    def whole_rows(self, keys: ArrayLike | LookupPlan) -> Rows:
        """Whole rows in the order of the keys, each of which occurs once. No row is created or seen.

        An absent row has version 0 and zeros.
        """
        batch = self._batch(keys)
        if batch.unique != len(batch):
            raise InputError(f"keys: {len(batch) - batch.unique} of them occur twice, give each key once")
        out = self._empty_rows(len(batch))
        self._native.read_columns(batch._native, out.keys, out.values, out.state, out.fields, self.threads)
        absent = out.fields["version"] == 0
        out.values[absent], out.state[absent] = 0, 0
        return out

    def read(self, keys: ArrayLike | LookupPlan, field: str) -> Integers:
        """One field of each row, 0 where the row is absent."""
        self._check_field(field)
        batch = self._batch(keys)
        out = np.empty(len(batch), np.uint32)
        self._native.read(batch._native, field, out, self.threads)
        return out

    def take_evicted_keys(self) -> GoneKeys:
        """Keys whose rows were evicted or expired since the last call, for an export that has to follow."""
        keys, complete = self._native.take_gone_keys()
        return GoneKeys(np.frombuffer(keys, np.uint64), complete)

    def eviction_order(self, partition: int = 0) -> Keys:
        """The keys of a partition, the first to be evicted first."""
        if self.table.policy not in ("lru", "lfu"):
            raise InputError(f"eviction_order: table {self.table.name!r} evicts no rows: make it with a capacity")
        partition = whole_number("partition", partition, 0, self.partitions - 1, InputError)
        return np.frombuffer(self._native.eviction_order(partition), np.uint64)

    def export(self, rows: int = 65_536) -> Iterator[Rows]:
        """All rows in chunks of at most `rows`. What changes meanwhile is seen or not, row by row."""
        rows = whole_number("rows", rows, 1, 2**32, InputError)
        cursor = 0
        while True:
            chunk = self._empty_rows(rows)
            count, cursor = self._native.export_rows(cursor, chunk.keys, chunk.values, chunk.state, chunk.fields)
            if count == 0:
                return
            yield first_rows(chunk, count)

    def stats(self) -> Stats:
        """Counts and bytes."""
        found = self._native.stats()
        rows = found["rows"]
        value_bytes = rows * self.dim * (4 if self.table.type == "float32" else 2)
        return Stats(
            value_bytes=value_bytes,
            state_bytes=rows * self.state_dim * 4,
            capacity_rows=self.capacity_rows,
            **found,
        )

    def verify(self) -> list[str]:
        """Faults of the structure as sentences; none means that rows and index agree."""
        return self._native.verify()
