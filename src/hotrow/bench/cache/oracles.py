"""Offline oracles of a cache: how many lookups of a trace a cache of so many rows saves.

A trace is a list of batches, each an array of distinct ids. An id of a batch is one lookup; it is saved where its row
is cached when the batch begins. The first lookup of an id is never saved.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

KeyBatches = Sequence[NDArray[np.uint64]]


def lookups(trace: KeyBatches) -> int:
    """All lookups of a trace."""
    return sum(map(len, trace))


def saved_by_unlimited(trace: KeyBatches) -> int:
    """A cache for all rows: every lookup of an id but its first."""
    return lookups(trace) - len(_counts(trace))


def saved_by_static(trace: KeyBatches, capacity: int) -> int:
    """The ids that the whole trace looks up most often have the places, from their first lookup on (offline LFU)."""
    counts = np.sort(_counts(trace))[::-1][:capacity]
    return int((counts - 1).sum())


def saved_by_belady(trace: KeyBatches, capacity: int) -> int:
    """The row whose next use is furthest is evicted, with the whole trace known (an upper bound of every cache)."""
    return saved_ahead(trace, capacity, len(trace))


def saved_ahead(trace: KeyBatches, capacity: int, window: int) -> int:
    """Belady over a window: the ids of `window` batches are known before they begin.

    A row without a use in the window is evicted first: the one that was looked up least often so far, cached or not,
    and of these the one looked up longest ago. Then the row whose next use is furthest. Rows of the batch itself stay.
    """
    cache = _WindowCache(capacity)
    saved = 0
    for number in range(min(window, len(trace))):
        cache.announce(number, trace[number].tolist())
    for number, batch in enumerate(trace):
        if number + window < len(trace):
            cache.announce(number + window, trace[number + window].tolist())
        saved += cache.begin(number, batch.tolist())
    return saved


def _counts(trace: KeyBatches) -> NDArray[np.int64]:
    if not trace:
        return np.empty(0, np.int64)
    return np.unique(np.concatenate(trace), return_counts=True)[1]


@dataclass(slots=True)
class _WindowCache:
    """One order for all rows. Entries of the heap that a later move of their row made void are skipped."""

    capacity: int
    seen: dict[int, int] = field(default_factory=dict)  # lookups of every id so far
    moved: dict[int, int] = field(default_factory=dict)  # cached ids, and when they got their place in the order
    coming: dict[int, deque[int]] = field(default_factory=dict)  # batches that will use an id
    unused: list[tuple[int, int, int]] = field(default_factory=list)  # heap of (lookups, moved, id) without a next use
    next_uses: dict[int, dict[int, None]] = field(default_factory=dict)  # by batch, cached ids whose next use it is
    moves: int = 0

    def announce(self, number: int, ids: list[int]) -> None:
        self.next_uses[number] = {}
        for each in ids:
            uses = self.coming.setdefault(each, deque())
            uses.append(number)
            if len(uses) == 1 and each in self.moved:
                self._place(each)

    def begin(self, number: int, ids: list[int]) -> int:
        hits = [each for each in ids if each in self.moved]
        for each in ids:
            self.seen[each] = self.seen.get(each, 0) + 1
            self.coming[each].popleft()
            if not self.coming[each]:
                del self.coming[each]
        del self.next_uses[number]
        for each in hits:
            self._place(each)
        in_use, known = set(ids), set(hits)
        kept: list[tuple[int, int, int]] = []
        for each in ids:
            if each not in known and (len(self.moved) < self.capacity or self._evict(in_use, kept)):
                self._place(each)
        for entry in kept:
            heappush(self.unused, entry)
        return len(hits)

    def _place(self, each: int) -> None:
        self.moves += 1
        self.moved[each] = self.moves
        if each in self.coming:
            self.next_uses[self.coming[each][0]][each] = None
        else:
            heappush(self.unused, (self.seen[each], self.moves, each))

    def _evict(self, in_use: set[int], kept: list[tuple[int, int, int]]) -> bool:
        """Remove a row that is not in use; `kept` gets the entries of those that are."""
        while self.unused:
            entry = heappop(self.unused)
            if self.moved.get(entry[2]) != entry[1]:
                continue
            if entry[2] in in_use:
                kept.append(entry)
                continue
            del self.moved[entry[2]]
            return True
        for number in sorted(self.next_uses, reverse=True):
            for each in self.next_uses[number]:
                if each not in in_use:
                    del self.next_uses[number][each], self.moved[each]
                    return True
        return False
