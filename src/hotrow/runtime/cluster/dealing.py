"""Which trainer predicts which batch of an evaluation: pure, without rows and sockets.

A trainer has at most `most_open` batches, one that it predicts and others whose rows are under way. The trainer that
has read a batch takes it, if it may take one more; else the trainer with the fewest.
"""

from collections.abc import Sequence

from hotrow.types import RoleId

MOST_OPEN = 2


class Dealing:
    """The batches that trainers have, and those that they had."""

    def __init__(self, trainers: Sequence[RoleId], most_open: int = MOST_OPEN) -> None:
        self._most_open = most_open
        self._open = dict.fromkeys(trainers, 0)
        self._dealt: dict[RoleId, list[tuple[int, int]]] = {name: [] for name in trainers}
        self._batches = 0

    @property
    def open(self) -> int:
        """Batches that are not predicted yet."""
        return sum(self._open.values())

    def deal(self, holder: str, samples: int) -> tuple[RoleId, int] | None:
        """The trainer for the next batch, and the number of the batch; None where each has as many as it may.

        `holder`: the role that has read the batch.
        """
        free = [name for name, count in self._open.items() if count < self._most_open]
        if not free:
            return None
        name = min(free, key=lambda each: (each != holder, self._open[each]))
        number = self._batches
        self._batches += 1
        self._open[name] += 1
        self._dealt[name].append((number, samples))
        return name, number

    def done(self, trainer: RoleId) -> None:
        """A trainer has predicted a batch."""
        self._open[trainer] -= 1

    def dealt(self, trainer: RoleId) -> Sequence[tuple[int, int]]:
        """Number and samples of all batches of a trainer, in order."""
        return self._dealt[trainer]
