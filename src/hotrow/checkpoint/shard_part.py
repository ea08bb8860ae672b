"""The part of a checkpoint that one shard of a run needs: which files can hold its keys, and which of their rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from hotrow.checkpoint.manifest import Manifest, SavedShard, SavedTableFacts
from hotrow.errors import InputError
from hotrow.store.arrays import Keys
from hotrow.store.shards import shard_of


@dataclass(frozen=True, slots=True)
class ShardPart:
    """The keys of shard `number` of `shards`. Shard 0 of 1 has all keys."""

    number: int = 0
    shards: int = 1

    def saved(self, facts: SavedTableFacts) -> tuple[SavedShard, ...]:
        """The saved shards of a table that can hold keys of this part: one, where as many shards have saved it."""
        return (facts.shards[self.number],) if self.is_whole_file(facts) else facts.shards

    def is_whole_file(self, facts: SavedTableFacts) -> bool:
        """Whether this part is one saved shard."""
        return len(facts.shards) == self.shards

    def places(self, keys: Keys) -> NDArray[np.intp] | None:
        """Where keys of this part are; None: all of them are."""
        if self.shards == 1:
            return None
        mine = shard_of(keys, self.shards) == self.number
        return None if mine.all() else np.flatnonzero(mine)

    def check_whole(self, file: str, keys: Keys) -> None:
        """InputError where the file of this part holds keys of others: their rows would be lost."""
        if (at := self.places(keys)) is not None:
            message = f"{file} holds {len(keys) - len(at):,} keys that are not of shard {self.number} of {self.shards}"
            raise InputError(f"{message}: files were moved or copied by hand: take another checkpoint")

    def rows_of(self, rows: int) -> int:
        """About how many of a table's rows are of this part, with a margin: hashes are not spread evenly."""
        if self.shards == 1:
            return rows
        mean = -(-rows // self.shards)
        return min(rows, mean + 4 * isqrt(mean))  # four standard deviations

    def files(self, manifest: Manifest) -> Iterator[str]:
        """The files that this part checks. All parts together check every file of rows once."""
        for facts in manifest.tables.values():
            for saved in facts.shards[self.number :: self.shards]:
                named = (saved.rows, saved.removed, saved.admission, saved.filter)
                yield from (file for file in named if file is not None)


WHOLE = ShardPart()
