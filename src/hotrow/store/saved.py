"""What a checkpoint needs of a table, wherever its rows are, and saved rows to be put back: their order, the kind."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hotrow.config import Table
from hotrow.errors import InputError
from hotrow.optim.sparse import shaping_settings
from hotrow.store.arrays import ArrayLike
from hotrow.store.ram import RamTier
from hotrow.store.rows import Rows, RowsToPut, Stats

# Where rows are: it does not change their layout.
PLACE = ("segment", "capacity", "path", "disk", "direct_io", "disk_index", "cache", "hbm")


def eviction_order(tier: RamTier, keys: NDArray[np.uint64]) -> Any:
    """An index that puts exported rows, whose keys these are, in the order in which they would be evicted."""
    if tier.table.policy not in ("lru", "lfu") or tier.table.disk is not None:  # in both tiers: exported in order
        return slice(None)
    order = np.concatenate([tier.eviction_order(partition) for partition in range(tier.partitions)])
    by_key = np.argsort(keys)
    order = order[np.isin(order, keys)]  # expired rows are in the order and are not exported
    return by_key[np.searchsorted(keys, order, sorter=by_key)]


def check_same_kind(table: Table, saved: dict[str, Any]) -> None:
    """Refuse rows that another kind of table saved, whose settings `saved` are."""
    for name, theirs, ours in differences(table, saved):
        differ = f"{name} is {theirs!r} in the state and {ours!r} in this module"
        raise InputError(f"table {table.name!r}: {differ}: make the module with the settings of the state")


def differences(table: Table, saved: Mapping[str, Any]) -> Iterator[tuple[str, object, object]]:
    """Settings that shape rows or decide about them, where those that were saved and the table's differ.

    Each with its name, such as `optimizer.eps`, the saved value and that of the table.
    """
    ours = _kind(table.model_dump(mode="json"))
    theirs = _kind(saved)
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            yield name, theirs.get(name), ours.get(name)


def _kind(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that shape rows, flat: {"dim": 16, "optimizer.name": "adagrad", ...}."""
    optimizer = settings["optimizer"]
    kind = {"dim": settings["dim"], "optimizer.name": optimizer["name"]}  # compared first: the rest follows from them
    kind |= {f"optimizer.{name}": value for name, value in shaping_settings(optimizer).items()}
    return kind | {name: value for name, value in settings.items() if name not in ("optimizer", *PLACE)}


class SavedTable(Protocol):
    """All rows of a table, whole, for checkpoints and reports."""

    @property
    def table(self) -> Table: ...

    @property
    def dim(self) -> int: ...

    @property
    def state_dim(self) -> int: ...

    @property
    def fields(self) -> tuple[str, ...]: ...

    @property
    def capacity_rows(self) -> int: ...

    def __len__(self) -> int: ...

    def export(self, rows: int = ...) -> Iterator[Rows]:
        """All rows in chunks of at most `rows`."""

    def clear(self) -> None:
        """Remove all rows."""

    def put(
        self,
        keys: ArrayLike,
        values: ArrayLike,
        state: ArrayLike | None = None,
        fields: Mapping[str, ArrayLike] | None = None,
    ) -> Any:
        """Insert or overwrite whole rows."""

    def put_parts(self, parts: Sequence[RowsToPut]) -> Any:
        """As `put` of one part after the other."""

    def stats(self) -> Stats:
        """Counts and bytes."""
