"""Which batches of an epoch each of several loaders makes. Pure: the batches and their order do not depend on it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from hotrow.sizes import MOST

ROWS_MOST = 2**20  # of a row group that is read by one loader, the largest that pyarrow writes by default
SHARED_WINDOWS = 4  # in a stretch whose first and last shuffle window another loader reads too


@dataclass(frozen=True, slots=True)
class Assignment:
    """Stretches of consecutive batches, assigned to `loaders` by turns; `number` is one of them."""

    number: int = 0
    loaders: int = 1
    stretch: int = MOST  # batches

    def owner(self, index: int) -> int:
        """The loader that makes a batch."""
        return index // self.stretch % self.loaders

    def stretches(self, below: int) -> Iterator[range]:
        """The batches of this loader from batch `below` on, stretch by stretch, without end."""
        for place in count(below // self.stretch):
            if place % self.loaders == self.number:
                yield range(max(below, place * self.stretch), (place + 1) * self.stretch)


def assign(loaders: int, stretch: int) -> list[Assignment]:
    """The assignments of all loaders; one alone reads in one go."""
    return [Assignment(number, loaders, stretch) for number in range(loaders)] if loaders > 1 else [Assignment()]


def stretch_of(batch: int, shuffle: int, group_rows: int = 0) -> int:
    """The batches of a stretch: no loader reads much that another one needs.

    It is a row group, up to ROWS_MOST rows: a loader holds a stretch ahead, because all of them read at once only then.
    It is whole shuffle windows where they are whole batches. Else the windows at both ends are read twice, so there are
    some between; then the stretches of one loader have no window in common either.
    """
    rows = min(max(group_rows, 1), ROWS_MOST)
    if shuffle:
        windows = shuffle if shuffle % batch == 0 else SHARED_WINDOWS * shuffle
        rows = -(-rows // windows) * windows
    return -(-rows // batch)
