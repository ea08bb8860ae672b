"""Answers that were given, for those who ask a second time because the first answer was lost on its way.

Small ones, as long as there is room: those of words that must have effect once. What gives large answers is only read,
and may be asked again. An answer goes as soon as its peer has shown that it came: each ask names the lowest number that
is not answered yet.

Frames are copied. They come out of the memory that a role computes in, between large arrays that live for one batch: a
small one that stays there keeps the allocator from using the space around it again, a hundred times its own size.
"""

from collections import OrderedDict
from collections.abc import Sequence

from hotrow.transport.limits import Limits

OVERHEAD = 1_024  # bytes of an answer beside its frames


class ReplyCache:
    """The last ones, of all peers together. `nbytes` is what they take."""

    def __init__(self, limits: Limits) -> None:
        self._each, self._all = limits.kept_answer_bytes, limits.kept_bytes
        self._kept: OrderedDict[tuple[bytes, int], tuple[bytes, tuple[memoryview, ...]]] = OrderedDict()
        self._numbers: dict[bytes, set[int]] = {}  # of what is kept, by peer
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, name: bytes, number: int, header: bytes, frames: Sequence[memoryview]) -> None:
        """Remember the answer to an ask of a peer, unless it is large."""
        size = _size(header, frames)
        if size > self._each + OVERHEAD or (name, number) in self._kept:
            return
        self._kept[name, number] = header, tuple(memoryview(bytes(frame)) for frame in frames)
        self._numbers.setdefault(name, set()).add(number)
        self.nbytes += size
        while self.nbytes > self._all:
            self._drop(*next(iter(self._kept)))

    def find(self, name: bytes, number: int) -> tuple[bytes, tuple[memoryview, ...]] | None:
        """What was answered."""
        return self._kept.get((name, number))

    def release(self, name: bytes, below: int) -> None:
        """A peer will not ask for lower numbers again."""
        for number in [each for each in self._numbers.get(name, ()) if each < below]:
            self._drop(name, number)

    def _drop(self, name: bytes, number: int) -> None:
        self.nbytes -= _size(*self._kept.pop((name, number)))
        numbers = self._numbers[name]
        numbers.remove(number)
        if not numbers:
            del self._numbers[name]


def _size(header: bytes, frames: Sequence[memoryview]) -> int:
    return OVERHEAD + len(header) + sum(frame.nbytes for frame in frames)
