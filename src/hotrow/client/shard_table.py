"""A table on shards, for checkpoints and reports: all rows, and the figures of all shards."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields as fields_of

import numpy as np

from hotrow.config import Table
from hotrow.store import RamTier, Rows, Stats
from hotrow.store.arrays import ArrayLike, as_integers, as_keys, as_matrix
from hotrow.store.rows import RowsToPut
from hotrow.store.shards import shard_of
from hotrow.transport.client import RpcClient
from hotrow.transport.messages import Clear, Export, Exported, Import, Query, QueryReply
from hotrow.transport.whole_rows import pack_rows, unpack_rows


class ShardTable:
    """One table on all shards. Use it only while nothing is trained."""

    def __init__(self, table: Table, wire: RpcClient, shards: Sequence[str]) -> None:
        self.table = table
        self._wire, self._shards = wire, tuple(shards)
        like = RamTier(table.model_copy(update={"segment": None, "capacity": None}))  # empty: for the layout of rows
        self.dim, self.state_dim, self.fields = like.dim, like.state_dim, like.fields
        like.close()

    def __len__(self) -> int:
        return self.stats().rows

    @property
    def capacity_rows(self) -> int:
        """Of all shards together; 0: no limit."""
        return self.stats().capacity_rows

    def export(self, rows: int = 65_536) -> Iterator[Rows]:
        """All rows in chunks of at most `rows`, shard by shard."""
        for name in self._shards:
            cursor = 0
            while True:
                answer = self._wire.request(name, Export(self.table.name, cursor, rows)).result()
                exported = answer.of(Exported, name)
                if exported.rows:
                    yield unpack_rows(
                        exported.rows, exported.fields, answer.frames, dim=self.dim, state_dim=self.state_dim
                    )
                cursor = exported.cursor
                if not cursor:
                    break

    def clear(self) -> None:
        """Remove all rows."""
        for asked in [self._wire.request(name, Clear(self.table.name)) for name in self._shards]:
            asked.result()

    def put(
        self,
        keys: ArrayLike,
        values: ArrayLike,
        state: ArrayLike | None = None,
        fields: Mapping[str, ArrayLike] | None = None,
    ) -> None:
        """Insert or overwrite whole rows, each on its shard."""
        key = as_keys("keys", keys)
        value = as_matrix("values", values, len(key), self.dim)
        whole = (
            np.zeros((len(key), 0), np.float32)
            if state is None
            else as_matrix("state", state, len(key), self.state_dim)
        )
        columns = {name: as_integers(name, column, len(key)) for name, column in (fields or {}).items()}
        home = shard_of(key, len(self._shards))
        asked = []
        for number, name in enumerate(self._shards):
            mine = np.flatnonzero(home == number)
            rows = Rows(key[mine], value[mine], whole[mine], {each: column[mine] for each, column in columns.items()})
            asked.append(self._wire.request(name, Import(self.table.name, len(mine), tuple(columns)), pack_rows(rows)))
        for each in asked:
            each.result()

    def put_parts(self, parts: Sequence[RowsToPut]) -> None:
        """As `put` of one part after the other."""
        for part in parts:
            self.put(*part)

    def stats(self) -> Stats:
        """Counts and bytes of all shards together."""
        asked = [self._wire.request(name, Query("status")) for name in self._shards]
        replies = [each.result().message for each in asked]
        figures = [each.figures for each in replies if isinstance(each, QueryReply)]
        whole = {
            field.name: sum(figure.get(f"{field.name}.{self.table.name}", 0.0) for figure in figures)
            for field in fields_of(Stats)
        }
        waited = whole.pop("disk_wait_s")
        return Stats(**{name: int(figure) for name, figure in whole.items()}, disk_wait_s=waited / max(1, len(figures)))
