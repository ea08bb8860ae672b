"""Pushes of a shard: which grants were seen, so that nothing counts twice, and what waits to be applied."""

from collections.abc import Mapping

import numpy as np

from hotrow.client.aggregate import RowGradients
from hotrow.errors import InputError

GRANTS_KEPT = 2**20
OVERHEAD = 16_384  # bytes of a push beside its rows: small frames hold on to the buffer they came in
PLAN_BYTES = 16  # of a key in its plan


class SeenGrants:
    """The last `most` numbers, a byte each. Older ones count as seen, since nobody can tell any more."""

    def __init__(self, most: int = GRANTS_KEPT) -> None:
        self._most = most
        self._seen = np.zeros(most, np.bool_)  # a ring
        self._newest = 0

    def __contains__(self, grant: int) -> bool:
        return self.forgotten(grant) or (grant <= self._newest and bool(self._seen[grant % self._most]))

    def forgotten(self, grant: int) -> bool:
        """Whether a number is older than what is remembered."""
        return grant <= self._newest - self._most

    def add(self, grant: int) -> None:
        """Remember a number."""
        if grant > self._newest:
            self._make_room(grant)
        if not self.forgotten(grant):
            self._seen[grant % self._most] = True

    def _make_room(self, newest: int) -> None:
        """Numbers between the newest so far and this one were not seen."""
        first, last = (self._newest + 1) % self._most, newest % self._most
        if newest - self._newest >= self._most:
            self._seen[:] = False
        elif first <= last:
            self._seen[first : last + 1] = False
        else:
            self._seen[first:] = False
            self._seen[: last + 1] = False
        self._newest = newest


class ParkedPushes:
    """Row gradients under their grant, of at most so many bytes together."""

    def __init__(self, bytes_most: int) -> None:
        self.bytes_most = bytes_most
        self.nbytes = 0
        self._rows: dict[int, Mapping[str, RowGradients]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def park(self, grant: int, rows: Mapping[str, RowGradients]) -> None:
        """Keep a push; where there is no room it is refused, and the sender has to come again."""
        size = _bytes_of(rows)
        if self.nbytes + size > self.bytes_most:
            raise InputError(
                f"push {grant}: {len(self)} pushes of {self.nbytes:,} bytes wait, and {size:,} more would pass the "
                f"{self.bytes_most:,} of parked_bytes: send it again later, or raise parked_bytes"
            )
        self._rows[grant] = rows
        self.nbytes += size

    def look_at(self, grant: int) -> Mapping[str, RowGradients]:
        """By table, what waits under a grant; none where nothing does."""
        return self._rows.get(grant, {})

    def take(self, grant: int) -> Mapping[str, RowGradients] | None:
        """The rows of a push that waits no more; None where none did."""
        rows = self._rows.pop(grant, None)
        if rows is not None:
            self.nbytes -= _bytes_of(rows)
        return rows


def _bytes_of(rows: Mapping[str, RowGradients]) -> int:
    of_tables = (
        each.gradients.nbytes
        + len(each.keys) * (8 + PLAN_BYTES)
        + (0 if each.versions is None else each.versions.nbytes)
        for each in rows.values()
    )
    return OVERHEAD + sum(of_tables)
