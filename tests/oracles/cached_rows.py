"""Changes of cached rows and rows that come from the server, in numpy and row by row in words of the rule."""

import numpy as np

from hotrow.cache.changes import Changes, decayed, periods_of
from hotrow.optim.sparse import Swap
from hotrow.store import Rows


def change_of(now: Rows, base: Rows, swap: Swap | None) -> Changes:
    """The change from the base to the present row, both of the same keys; `now` is never of an earlier period."""
    updates = now.fields["version"] - np.uint32(1)  # a row that is fetched has version 1
    periods = periods_of(now)
    before = decayed(base.state, periods_of(base), periods, swap)
    clocks = now.fields["clock"] + updates
    return Changes(now.keys, now.values - base.values, now.state - before, clocks, updates, periods)


def filled(server: Rows, now: Rows, base: Rows, swap: Swap | None) -> tuple[Rows, Rows]:
    """Rows with changes after rows of the server came, and their new base: all at the later period of the two."""
    to = np.maximum(periods_of(server), periods_of(now))
    fetched = decayed(server.state, periods_of(server), to, swap)
    mine = decayed(now.state, periods_of(now), to, swap) - decayed(base.state, periods_of(base), to, swap)
    fields = {**now.fields, "clock": server.fields["clock"]} | ({"period": to} if swap else {})
    rows = Rows(now.keys, server.values + (now.values - base.values), fetched + mine, fields)
    return rows, Rows(now.keys, server.values, fetched, {"period": to} if swap else {})
