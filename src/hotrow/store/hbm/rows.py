"""Arguments and results of a table in GPU memory: whole rows, plans, counts."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hotrow.kernels.unique import UniqueKeys, unique

ABSENT = -1  # slot of a key without a row
TURNED_AWAY = -2  # the same, where the lookup found all rows of the bucket in use


@dataclass(frozen=True, slots=True)
class HbmRows:
    """Whole rows as columns, on the device of the table. Fields have the bits of uint32."""

    keys: Tensor  # int64 [rows]
    values: Tensor  # float32 [rows, dim]
    state: Tensor  # float32 [rows, state_dim]
    fields: dict[str, Tensor]  # int32 [rows] each
    changed: Tensor | None = None  # bool [rows]: what a lower tier does not have; None where changes are not tracked

    def __len__(self) -> int:
        return len(self.keys)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> "HbmRows":
        """The rows on another device."""
        return self.map(lambda column: column.to(device, non_blocking=non_blocking))

    def select(self, which: Tensor) -> "HbmRows":
        """The rows at these indexes, or whose flag is set."""
        return self.map(lambda column: column[which])

    def map(self, change: Callable[[Tensor], Tensor]) -> "HbmRows":
        """Every column changed."""
        fields = {name: change(column) for name, column in self.fields.items()}
        changed = None if self.changed is None else change(self.changed)
        return HbmRows(change(self.keys), change(self.values), change(self.state), fields, changed)


def joined_rows(parts: list[HbmRows]) -> HbmRows:
    """The rows of all parts, of which there is at least one."""
    if len(parts) == 1:
        return parts[0]
    fields = {name: torch.cat([part.fields[name] for part in parts]) for name in parts[0].fields}
    changed = None if parts[0].changed is None else torch.cat([p.changed for p in parts if p.changed is not None])
    keys, values, state = (torch.cat([getattr(part, name) for part in parts]) for name in ("keys", "values", "state"))
    return HbmRows(keys, values, state, fields, changed)


@dataclass(frozen=True, slots=True, eq=False)
class KeyBatch:
    """Keys that are not looked up yet. Lookups of one batch share its folded duplicates."""

    keys: Tensor  # int64 [keys]
    folded: UniqueKeys | None

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(slots=True, eq=False)
class HbmPlan:
    """The keys of a lookup, and the slots where it found their rows. Nothing but a lookup makes one.

    A plan of a folded batch has a slot for each distinct key. Others have a slot for each key until an update folds
    them. Rows may be evicted or erased by later calls: an update looks them up again then. A plan in `pinned` of
    a later call keeps its rows from being evicted by that call.
    """

    keys: Tensor  # int64 [keys]
    slots: Tensor  # int64 [keys]; ABSENT or TURNED_AWAY without a row
    moves: int  # of the table at the lookup: with the same number every row is still there
    turned_away: int = 0  # distinct keys that got no row
    evicted: HbmRows | None = None  # rows that this call displaced
    folded: UniqueKeys | None = None

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def present(self) -> Tensor:
        """For each key, whether it has a row: bool [keys]."""
        return self.slots_of_keys() >= 0

    @property
    def absent(self) -> int:
        """Distinct keys that the lookup found no row for. Waits for the device."""
        gone = self.slots == ABSENT
        if self.folded is None:
            return int(unique(self.keys[gone]).size)
        return int(gone.sum()) - len(gone) + int(self.folded.size)  # slots beyond the distinct keys are ABSENT too

    def absent_keys(self) -> Tensor:
        """The keys that have no row; of a folded plan each once. Waits for the device."""
        if self.folded is None:
            return self.keys[self.slots < 0]
        there = torch.arange(len(self.slots), device=self.slots.device) < self.folded.size
        return self.folded.keys[there & (self.slots < 0)]

    def slots_of_keys(self) -> Tensor:
        """For each key, where its row is: int64 [keys]."""
        return self.slots if self.folded is None else self.slots.index_select(0, self.folded.inverse)

    def fold(self, *, deterministic: bool) -> UniqueKeys:
        """Have a slot for each distinct key; those beyond their number are ABSENT."""
        if self.folded is None:
            found = unique(self.keys, deterministic)
            slots = torch.full_like(self.keys, ABSENT)
            self.slots = slots.scatter_(0, found.inverse.to(torch.int64), self.slots)  # equal keys have equal slots
            self.folded = found
        return self.folded


@dataclass(frozen=True, slots=True)
class HbmStats:
    """Counts since the table was made, and bytes of GPU memory."""

    rows: int
    capacity_rows: int
    bytes: int
    created: int
    erased: int
    evicted: int
    turned_away: int  # keys that got no row, once per call
    refused: int  # rows whose gradient was not finite
    absent: int  # rows that an update did not find

    @property
    def load(self) -> float:
        """Share of the slots that hold a row."""
        return self.rows / self.capacity_rows

    def __add__(self, other: "HbmStats") -> "HbmStats":
        return HbmStats(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))
