"""Which bytes of a ring are free. Arithmetic on offsets only: no memory is touched.

A slot is the part of a ring that one frame is copied into. Receivers free slots in any order, so a new slot goes into
the first gap that is large enough: a frame that is kept for long blocks its own bytes and no others, and the low
addresses, whose pages exist and are in the caches, are used again first.
"""

from bisect import insort
from typing import NamedTuple

ALIGNMENT = 64  # of slots: a line of the cache, and enough for every type of element


class Slot(NamedTuple):
    """`number` identifies the slot while it is taken."""

    number: int
    offset: int
    nbytes: int


class SlotAllocator:
    """First fit over `nbytes`, at most `slots` taken at a time."""

    def __init__(self, nbytes: int, slots: int) -> None:
        self._gaps = [(0, nbytes)] if nbytes else []  # (start, end) in rising order, never adjacent
        self._taken: dict[int, tuple[int, int]] = {}
        self._numbers = list(range(slots - 1, -1, -1))  # free ones

    def __contains__(self, number: int) -> bool:
        return number in self._taken

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, nbytes: int) -> Slot | None:
        """A slot of `nbytes`, or None where no gap is large enough or all numbers are taken."""
        if not self._numbers:
            return None
        room = -(-nbytes // ALIGNMENT) * ALIGNMENT
        for place, (start, end) in enumerate(self._gaps):
            if end - start >= room:
                if end - start == room:
                    del self._gaps[place]
                else:
                    self._gaps[place] = (start + room, end)
                number = self._numbers.pop()
                self._taken[number] = (start, start + room)
                return Slot(number, start, nbytes)
        return None

    def free(self, number: int) -> None:
        """Free a taken slot, in any order."""
        gap = self._taken.pop(number)
        self._numbers.append(number)
        insort(self._gaps, gap)
        place = self._gaps.index(gap)
        if place + 1 < len(self._gaps) and self._gaps[place + 1][0] == gap[1]:
            gap = (gap[0], self._gaps.pop(place + 1)[1])
        if place and self._gaps[place - 1][1] == gap[0]:
            gap = (self._gaps.pop(place - 1)[0], gap[1])
            place -= 1
        self._gaps[place] = gap
