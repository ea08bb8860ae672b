"""Batches of one size out of whatever comes, and the order of rows within windows."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from hotrow.data.batch import I64, Batch, concatenated

Order = Callable[[int, int], I64]  # (number of a window, its rows) -> their order


def window_order(seed: int, epoch: int) -> Order:
    """The order of a window from (seed, epoch, number) alone: a resume comes to the same."""

    def order(number: int, rows: int) -> I64:
        return np.random.default_rng([seed, epoch, number]).permutation(rows)

    return order


def shuffled(pieces: Iterable[Batch], window: int, order: Order, number: int = 0, within: int = 0) -> Iterator[Batch]:
    """The rows of each window of `window` rows in another order.

    The first piece begins window `number`, of which the first `within` rows in the new order are left out. For each row
    that comes in one goes out, so that reading goes on while a window is used up: two windows are held at most.
    """
    leaving: _Leaving | None = None
    waiting: list[Batch] = []
    for part, full in _cut(pieces, window):
        waiting.append(part)
        if leaving is not None:
            yield from leaving.rows(len(part))
        if full:
            leaving = _Leaving(concatenated(waiting), order(number, window), within)
            waiting, number, within = [], number + 1, 0
    if leaving is not None:
        yield from leaving.rows(window)
    if waiting:
        last = concatenated(waiting)
        yield from _Leaving(last, order(number, len(last)), within).rows(window)


class _Leaving:
    """A full window whose rows are handed out in their new order."""

    def __init__(self, window: Batch, order: I64, within: int) -> None:
        self._window, self._order, self._at = window, order, within

    def rows(self, most: int) -> Iterator[Batch]:
        """The next rows, where there are any left."""
        chosen = self._order[self._at : self._at + most]
        self._at += len(chosen)
        if len(chosen):
            yield self._window.take(chosen)


def batches_of(pieces: Iterable[Batch], size: int) -> Iterator[Batch]:
    """The same rows in batches of `size`; the last one may be short."""
    waiting: list[Batch] = []
    for part, full in _cut(pieces, size):
        waiting.append(part)
        if full:
            yield concatenated(waiting)
            waiting = []
    if waiting:
        yield concatenated(waiting)


def _cut(pieces: Iterable[Batch], size: int) -> Iterator[tuple[Batch, bool]]:
    """The pieces, cut where `size` rows are full; with each part, whether it fills them."""
    missing = size
    for piece in pieces:
        start = 0
        while start < len(piece):
            stop = min(len(piece), start + missing)
            missing -= stop - start
            yield piece.slice(start, stop), missing == 0
            missing = missing or size
            start = stop
