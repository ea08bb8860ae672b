"""Arguments and results of the store: batches of keys, whole rows, counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hotrow import _native
from hotrow.errors import InputError
from hotrow.store.arrays import Flags, Floats, Integers, Keys


@dataclass(frozen=True, slots=True)
class Rows:
    """Whole rows as columns."""

    keys: Keys
    values: Floats
    state: Floats
    fields: dict[str, Integers]


class RowsToPut(NamedTuple):
    """Arguments of a `put`: whole rows as columns. What is None keeps its values, or starts as in a new row."""

    keys: Keys
    values: Floats
    state: Floats | None = None
    fields: Mapping[str, Integers] | None = None


def first_rows(rows: Rows, count: int) -> Rows:
    """The first `count` rows, not copied."""
    fields = {name: column[:count] for name, column in rows.fields.items()}
    return Rows(rows.keys[:count], rows.values[:count], rows.state[:count], fields)


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts since the tier was made, and bytes in use."""

    rows: int
    value_bytes: int
    state_bytes: int
    slab_bytes: int  # rows with all their fields, erased ones included
    index_bytes: int
    admission_bytes: int  # counts of keys that wait, or the filter
    bytes: int  # all allocated memory, with reserve for growth
    capacity_rows: int  # 0: no limit
    splits: int  # segments of the index that grew in two
    created: int
    erased: int
    evicted: int  # rows that were evicted for others
    expired: int  # rows that were not seen for too long
    turned_away: int  # keys that got no row, once per lookup
    saturated: int  # elements too large for a 16-bit row, stored as its largest number
    refused: int  # rows skipped because their gradient was not finite
    absent: int  # rows that an update did not find
    unadmitted: int  # updates of keys without a row
    disk_rows: int = 0  # rows that are on disk alone
    disk_bytes: int = 0  # of the file
    disk_index_bytes: int = 0  # memory for the rows on disk: the index, with filters and pages of one on disk
    disk_filter_bytes: int = 0  # of these, filters of an index on disk
    disk_page_bytes: int = 0  # and its pages in memory
    moved_down: int = 0  # rows that memory had no room for
    moved_up: int = 0  # rows that came back
    moved_ahead: int = 0  # of these, before a lookup needed them
    moved_late: int = 0  # and those that a lookup waited for
    hinted: int = 0  # ids that were announced ahead of their lookup, those of each batch once
    hints_dropped: int = 0  # of these, more than could wait
    disk_wait_s: float = 0.0  # that calls have waited for the disk


DISK_FIGURES = (
    "disk_rows", "disk_bytes", "disk_index_bytes", "disk_filter_bytes", "disk_page_bytes", "moved_down", "moved_up",
    "moved_ahead", "moved_late", "hinted", "hints_dropped", "disk_wait_s",
)  # fmt: skip  # of `Stats`


@dataclass(frozen=True, slots=True)
class GoneKeys:
    """Keys whose rows were evicted or expired."""

    keys: Keys
    complete: bool  # False: there were more than the list could hold


@dataclass(frozen=True, slots=True)
class Attached:
    """The content of a segment that an earlier process left."""

    rows: int
    dropped: int  # damaged rows: a key twice, or in a place that is not its own
    seconds: float
    partly_applied: list[int]  # grants whose push was cut in the middle


class LookupPlan:
    """The keys of one batch, duplicates folded, with the rows where the last lookup found them.

    Use it in one thread at a time. Rows may come and go meanwhile: a row that moved is looked up anew.
    """

    __slots__ = ("__weakref__", "_native", "absent", "below", "evicted", "turned_away")

    def __init__(self, native: _native.Batch) -> None:
        self._native = native
        self.absent = 0  # unique keys that the last find did not find
        self.turned_away = 0  # unique keys that the last find_or_init or put gave no row
        self.evicted: Rows | None = None  # rows that it evicted, where the tier keeps them
        self.below: Flags | None = None  # unique keys that the last find found in the tier below

    def __len__(self) -> int:
        return len(self._native)

    @property
    def unique(self) -> int:
        return self._native.unique

    @property
    def keys(self) -> Keys:
        """The unique keys, in the order of everything that is `per="unique"`."""
        out = np.empty(self.unique, np.uint64)
        self._native.keys(out)
        return out

    @property
    def inverse(self) -> Integers:
        """For each key of the batch, which unique key it is."""
        return self.read_inverse(np.empty(len(self), np.uint32))

    def read_inverse(self, out: Integers) -> Integers:
        """The same, in an array of the caller."""
        self._native.inverse(out)
        return out

    def overlap(self, others: Sequence["LookupPlan"], *, threads: int = 1) -> Flags:
        """For each unique key, whether one of the others, plans of the same table, has it."""
        for other in others:
            self._check_same_table("others holds", other)
        out = np.empty(self.unique, np.bool_)
        self._native.overlap([other._native for other in others], out, threads)
        return out

    def shared(self, other: "LookupPlan", *, threads: int = 1) -> tuple[Flags, Flags]:
        """For each unique key of this plan and of the other, a plan of the same table: whether both have it."""
        self._check_same_table("other is", other)
        mine, theirs = np.empty(self.unique, np.bool_), np.empty(other.unique, np.bool_)
        self._native.shared(other._native, mine, theirs, threads)
        return mine, theirs

    def _check_same_table(self, what: str, other: object) -> None:
        if not isinstance(other, LookupPlan) or other._native.partitions != self._native.partitions:
            raise InputError(f"{what} {other!r}: give plans of the same table")

    def absent_mask(self) -> npt.NDArray[np.bool_]:
        """For each key of the batch, whether the last find missed it."""
        if not self._native.looked_up:
            raise InputError("absent_mask: the batch has not been looked up yet: call find first")
        out = np.empty(len(self), np.bool_)
        self._native.absent_mask(out)
        if self.below is not None:
            out &= ~self.below[self.inverse]
        return out

    def absent_keys(self) -> tuple[Keys, Flags]:
        """The unique keys that the last find missed, and for each unique key whether it did."""
        missed = np.zeros(self.unique, np.bool_)
        missed[self.inverse[self.absent_mask()]] = True
        return self.keys[missed], missed
