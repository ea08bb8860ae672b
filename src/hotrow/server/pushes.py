"""Pushes of a shard: which grants were seen, so that none counts twice, and which are parked."""

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import numpy as np

from hotrow.client.aggregate import RowGradients
from hotrow.errors import InputError
from hotrow.transport.errors import Busy

GRANTS_KEPT = 2**20
OVERHEAD = 16_384  # bytes of a push beside its rows: small frames keep the buffer they arrived in
PLAN_BYTES = 16  # of a key in its plan

Push = TypeVar("Push")


class SeenGrants:
    """The last `most` grants, a byte each. Older ones count as seen: they are not known any more."""

    def __init__(self, most: int = GRANTS_KEPT) -> None:
        self._most = most
        self._seen = np.zeros(most, np.bool_)  # a ring
        self.newest = 0

    def __contains__(self, grant: int) -> bool:
        return self.forgotten(grant) or (grant <= self.newest and bool(self._seen[grant % self._most]))

    def forgotten(self, grant: int) -> bool:
        """Whether a grant is older than the recorded ones."""
        return grant <= self.newest - self._most

    def add(self, grant: int) -> None:
        if grant > self.newest:
            self._make_room(grant)
        if not self.forgotten(grant):
            self._seen[grant % self._most] = True

    def _make_room(self, newest: int) -> None:
        """Advance the ring: numbers between the newest so far and this one were not seen."""
        first, last = (self.newest + 1) % self._most, newest % self._most
        if newest - self.newest >= self._most:
            self._seen[:] = False
        elif first <= last:
            self._seen[first : last + 1] = False
        else:
            self._seen[first:] = False
            self._seen[: last + 1] = False
        self.newest = newest


class PushBuffer(Generic[Push]):
    """Pushes by grant, of at most `bytes_most` together.

    A push beyond the bound is refused with Busy, except one of the `needed` oldest: a step has that many pushes, and
    the other pushes of the oldest grants may wait on other shards for this one.
    """

    def __init__(self, bytes_most: int, bytes_of: Callable[[Push], int]) -> None:
        self.bytes_most = bytes_most
        self.nbytes = 0
        self.needed = 1  # pushes per step
        self.above = 0  # pushes that were accepted above the bound
        self._bytes_of = bytes_of
        self._pushes: dict[int, Push] = {}

    def __len__(self) -> int:
        return len(self._pushes)

    def park(self, grant: int, push: Push) -> None:
        """Hold a push. Busy: the buffer is full now; InputError: it is too small for the push."""
        size = self._bytes_of(push)
        if self.nbytes + size > self.bytes_most:
            self._check_among_oldest(grant, size)
            self.above += 1
        self._pushes[grant] = push
        self.nbytes += size

    def find(self, grant: int) -> Push | None:
        """The push of a grant, which stays."""
        return self._pushes.get(grant)

    def take(self, grant: int) -> Push | None:
        """The push of a grant, which is removed."""
        push = self._pushes.pop(grant, None)
        if push is not None:
            self.nbytes -= self._bytes_of(push)
        return push

    def _check_among_oldest(self, grant: int, size: int) -> None:
        older = [self._bytes_of(push) for other, push in self._pushes.items() if other < grant]
        if len(older) >= self.needed:
            message = f"{len(self)} pushes of {self.nbytes:,} bytes wait, and {size:,} more would pass the bound"
            raise Busy(f"push {grant}: {message} of {self.bytes_most:,}: send it again later")
        if (together := sum(older) + size) > self.bytes_most:
            message = f"a step takes {self.needed} pushes, and {len(older) + 1} of them are {together:,} bytes here"
            raise InputError(
                f"push {grant}: {message}: parked_bytes={self.bytes_most:,} has to hold a step: raise it, take more "
                "shards, or a smaller global batch"
            )


def bytes_of_rows(rows: Mapping[str, RowGradients]) -> int:
    """The size of a push's rows, by table."""
    of_tables = (
        each.gradients.nbytes
        + len(each.keys) * (8 + PLAN_BYTES)
        + (0 if each.versions is None else each.versions.nbytes)
        for each in rows.values()
    )
    return OVERHEAD + sum(of_tables)
