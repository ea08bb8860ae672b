"""What saved rows need to be put back: the order they stood in, and a table of the same kind."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotrow.config import Table
from hotrow.errors import InputError
from hotrow.optim.sparse import shaping_settings
from hotrow.store.ram import RamTier


def eviction_order(tier: RamTier, keys: NDArray[np.uint64]) -> Any:
    """An index that puts exported rows, whose keys these are, in the order in which they would be evicted."""
    if tier.table.policy not in ("lru", "lfu"):
        return slice(None)
    order = np.concatenate([tier.eviction_order(partition) for partition in range(tier.partitions)])
    by_key = np.argsort(keys)
    order = order[np.isin(order, keys)]  # expired rows are in the order and are not exported
    return by_key[np.searchsorted(keys, order, sorter=by_key)]


def check_same_kind(table: Table, saved: dict[str, Any]) -> None:
    """Refuse rows that another kind of table saved, whose settings `saved` are."""
    ours = _kind(table.model_dump(mode="json"))
    theirs = _kind(saved)
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            differ = f"{name} is {theirs.get(name)!r} in the state and {ours.get(name)!r} in this module"
            raise InputError(f"table {table.name!r}: {differ}: make the module with the settings of the state")


def _kind(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that shape rows, flat: {"dim": 16, "optimizer.name": "adagrad", ...}."""
    optimizer = settings["optimizer"]
    kind = {"dim": settings["dim"], "optimizer.name": optimizer["name"]}  # compared first: the rest follows from them
    kind |= {f"optimizer.{name}": value for name, value in shaping_settings(optimizer).items()}
    apart = {"optimizer", "segment", "capacity"}  # place and number of rows do not change their layout
    return kind | {name: value for name, value in settings.items() if name not in apart}
