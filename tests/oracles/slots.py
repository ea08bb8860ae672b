"""The slow twin of SlotAllocator: a list of bytes, each of which knows its slot."""

ALIGNMENT = 64


class SlowSlots:
    def __init__(self, nbytes: int, slots: int) -> None:
        self.owner: list[int | None] = [None] * nbytes
        self.slots = slots

    def take(self, number: int, nbytes: int) -> int | None:
        """The lowest offset with room for it, or None."""
        room = (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        if len({each for each in self.owner if each is not None}) == self.slots:
            return None
        for offset in range(0, len(self.owner) - room + 1, ALIGNMENT):
            if all(each is None for each in self.owner[offset : offset + room]):
                self.owner[offset : offset + room] = [number] * room
                return offset
        return None

    def free(self, number: int) -> None:
        self.owner = [None if each == number else each for each in self.owner]
