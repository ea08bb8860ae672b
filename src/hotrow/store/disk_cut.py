"""A cut of a disk tier: its rows as they were at one moment, read while training goes on."""

from collections.abc import Callable
from typing import Self

import numpy as np

from hotrow import _native
from hotrow.errors import InputError
from hotrow.spec import whole_number
from hotrow.store.arrays import Keys
from hotrow.store.rows import Rows, first_rows


class DiskCut:
    """Rows at the moment of `SsdTier.begin_cut`. Used by one thread at a time; one that is collected is not saved."""

    def __init__(self, native: _native.DiskCut, empty_rows: Callable[[int], Rows]) -> None:
        self._native = native
        self._empty_rows = empty_rows
        self._ended = False
        self.number = native.number
        self.count = native.rows

    def rows(self, most: int = 65_536) -> Rows | None:
        """At most `most` further rows; None: there are no more."""
        most = whole_number("most", most, 1, 2**32, InputError)
        if self._ended:
            raise InputError(f"cut {self.number} has ended: begin another one")
        chunk = self._empty_rows(min(most, self.count))
        count = self._native.next(chunk.keys, chunk.values, chunk.state, list(chunk.fields.values()))
        return first_rows(chunk, count) if count else None

    @property
    def removed(self) -> Keys:
        """Keys erased since the cut before; none in a cut of all rows.

        A key that was erased and written again is here and in `rows`: remove first, then put.
        """
        return np.frombuffer(self._native.removed(), np.uint64)

    def end(self, saved: bool) -> None:
        """End the cut. Changes of one that was not saved belong to the next. A second call does nothing."""
        self._ended = True
        self._native.end(saved)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.end(saved=False)
