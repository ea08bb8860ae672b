"""Reading without making rows: what evaluation and prediction see of ids that have none."""

import numpy as np

from hotrow.store.arrays import ArrayLike, Floats, Keys
from hotrow.store.ram import Per, RamTier
from hotrow.store.rows import LookupPlan


def find_or_first(tier: RamTier, keys: ArrayLike | LookupPlan, out: Floats, *, per: Per = "key") -> LookupPlan:
    """Find rows; an absent id gets the values that a new row would start with. No row is created.

    Example:
        >>> import numpy as np
        >>> import hotrow as hr
        >>> from hotrow.store import RamTier, find_or_first
        >>> tier, rows = RamTier(hr.Table(dim=1, init=hr.Constant(value=0.5))), np.empty((1, 1), np.float32)
        >>> _ = find_or_first(tier, np.array([7]), rows)
        >>> rows.item(), len(tier)
        (0.5, 0)
    """
    batch = tier.find(keys, out, per=per)
    if batch.absent:
        if per == "unique":
            keys, missed = batch.absent_keys()
            out[missed] = _without_row(tier, keys)
        else:
            missed = batch.absent_mask()
            out[missed] = _without_row(tier, batch.keys[batch.inverse[missed]])
    return batch


def _without_row(tier: RamTier, keys: Keys) -> Floats:
    """The first values, or the default row where ids need admission."""
    table = tier.table
    full = table.policy == "refuse" and len(tier) >= tier.capacity_rows
    if table.admission is not None or full:
        return np.full((len(keys), tier.dim), table.default, np.float32)
    first = np.empty((len(keys), tier.dim), np.float32)
    tier.first_values(keys, first)
    return first
