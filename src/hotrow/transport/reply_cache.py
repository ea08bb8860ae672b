"""Replies that were sent, for requests that arrive again because the reply was lost.

Small replies are kept up to a bound: those of messages that must take effect once. A request with a large reply only
reads, and is handled again. A reply is dropped as soon as the client has it: each request names the lowest number that
is still open.

Frames are copied. They come from the memory that a role computes in, between large arrays of one batch: a small frame
that stays there keeps the allocator from reusing the space around it, a hundred times its own size.
"""

from collections import OrderedDict
from collections.abc import Sequence

from hotrow.transport.limits import Limits

OVERHEAD = 1_024  # bytes of a reply beside its frames


class ReplyCache:
    """The last replies to all clients together. `nbytes` is their size."""

    def __init__(self, limits: Limits) -> None:
        self._each, self._all = limits.kept_answer_bytes, limits.kept_bytes
        self._kept: OrderedDict[tuple[bytes, int], tuple[bytes, tuple[memoryview, ...]]] = OrderedDict()
        self._numbers: dict[bytes, set[int]] = {}  # of kept replies, by client
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, name: bytes, number: int, header: bytes, frames: Sequence[memoryview]) -> None:
        """Keep the reply to a request of a client, unless it is large."""
        size = _size(header, frames)
        if size > self._each + OVERHEAD or (name, number) in self._kept:
            return
        self._kept[name, number] = header, tuple(memoryview(bytes(frame)) for frame in frames)
        self._numbers.setdefault(name, set()).add(number)
        self.nbytes += size
        while self.nbytes > self._all:
            self._drop(*next(iter(self._kept)))

    def find(self, name: bytes, number: int) -> tuple[bytes, tuple[memoryview, ...]] | None:
        return self._kept.get((name, number))

    def release(self, name: bytes, below: int) -> None:
        """Drop the replies to lower numbers of a client."""
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
