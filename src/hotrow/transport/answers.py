"""Answers that were given, for those who ask a second time because the first answer was lost on its way.

Small ones, as long as there is room: those of words that must have effect once. What gives large answers is only read,
and may be asked again.
"""

from collections import OrderedDict
from collections.abc import Sequence

from hotrow.transport.limits import Limits

OVERHEAD = 1_024  # bytes of an answer beside its frames


class Answers:
    """The last ones, of all peers together. Frames are kept as they lie: who gave them must not write to them."""

    def __init__(self, limits: Limits) -> None:
        self._each, self._all = limits.kept_answer_bytes, limits.kept_bytes
        self._kept: OrderedDict[tuple[bytes, int], tuple[bytes, tuple[memoryview, ...]]] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, name: bytes, number: int, header: bytes, frames: Sequence[memoryview]) -> None:
        """Remember the answer to an ask of a peer, unless it is large."""
        size = _size(header, frames)
        if size > self._each + OVERHEAD or (name, number) in self._kept:
            return
        self._kept[name, number] = header, tuple(frames)
        self.nbytes += size
        while self.nbytes > self._all:
            _, gone = self._kept.popitem(last=False)
            self.nbytes -= _size(*gone)

    def find(self, name: bytes, number: int) -> tuple[bytes, tuple[memoryview, ...]] | None:
        """What was answered."""
        return self._kept.get((name, number))


def _size(header: bytes, frames: Sequence[memoryview]) -> int:
    return OVERHEAD + len(header) + sum(frame.nbytes for frame in frames)
