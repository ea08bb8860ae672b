"""The disk tier of a table: rows that fell out of memory, in one file, with all their fields.

A row is appended, never changed in place, and a newer copy of its key supersedes it. `docs/disk.md` describes the file.
"""

import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar, get_args

import numpy as np

from hotrow import _native
from hotrow.config import Table
from hotrow.errors import ConfigError, InputError
from hotrow.spec import whole_number
from hotrow.store.arrays import ArrayLike, Flags, as_integers, as_keys, as_matrix
from hotrow.store.disk_cut import DiskCut
from hotrow.store.disk_stats import DiskStats, OpenedFile
from hotrow.store.native_spec import TYPES
from hotrow.store.rows import Rows, first_rows

DiskIo: TypeAlias = Literal["auto", "uring", "threads"]
DiskIndex: TypeAlias = Literal["memory", "disk"]
QUEUE_DEPTH = 256  # requests under way at a time: enough while the thread that reads waits for a core
LEAST_BYTES = 64 << 10
INDEX_CACHE = 64 << 20  # bytes of the pages of an index on disk that are in memory
PAGE = 4096
Result = TypeVar("Result")


class SsdTier:
    """Holds rows of one table in a file. Thread-safe, in the process that made it.

    Keys are distinct within a call. `write` returns when the rows are in memory that is written behind; `flush` returns
    when they are on disk. A file that an earlier process left is used, however that process ended: `opened` says what
    was in it.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> import hotrow as hr
        >>> from hotrow.store import Rows
        >>> from hotrow.store.ssd import SsdTier
        >>> path = Path(tempfile.mkdtemp()) / "table.rows"
        >>> tier = SsdTier(hr.Table(dim=2), path, dim=2, state_dim=1, fields=("version",), capacity_bytes=1 << 24)
        >>> keys, ones = np.array([7, 9], np.uint64), np.ones((2, 2), np.float32)
        >>> tier.write(Rows(keys, ones, ones[:, :1].copy(), {"version": np.array([1, 1], np.uint32)}))
        >>> rows, found = tier.read(np.array([9, 8], np.uint64))
        >>> rows.values.tolist(), found.tolist()
        ([[1.0, 1.0]], [True, False])
        >>> tier.close(remove=True)
    """

    def __init__(
        self,
        table: Table,
        path: Path,
        *,
        dim: int,
        state_dim: int,
        fields: tuple[str, ...],
        capacity_bytes: int,
        threads: int = 1,
        direct: bool = True,
        io: DiskIo = "auto",
        write_behind: int = 64 << 20,
        staging: Path | None = None,
        queue_depth: int = QUEUE_DEPTH,
        index: DiskIndex = "memory",
        index_cache: int = INDEX_CACHE,
    ) -> None:
        """`staging`: a file of shared memory in which rows that are not written yet outlive a killed process.

        `index`: where each row is, in memory (16 bytes a row), or on disk with a filter (3 bytes a row) and
        `index_cache` bytes of its pages.
        """
        if not isinstance(table, Table):
            raise ConfigError(f"table={table!r}: give a hotrow.Table(dim=...)")
        if io not in get_args(DiskIo):
            raise ConfigError(f"io={io!r}: must be one of {', '.join(get_args(DiskIo))}")
        if index not in get_args(DiskIndex):
            raise ConfigError(f"index={index!r}: must be one of {', '.join(get_args(DiskIndex))}")
        cached = whole_number("index_cache", index_cache, PAGE, 2**40)
        if not isinstance(direct, bool):
            raise ConfigError(f"direct={direct!r}: must be True or False")
        self.table = table
        self.path = Path(path)
        self.dim = whole_number("dim", dim, 1, 65_536)
        self.state_dim = whole_number("state_dim", state_dim, 0, 4 * 65_536)
        self.fields = tuple(fields)
        self.capacity_bytes = whole_number("capacity_bytes", capacity_bytes, LEAST_BYTES, 2**62)
        self.threads = whole_number("threads", threads, 1, 1024)
        self._process = os.getpid()
        self._native_tier = _native.DiskTier(
            path=str(self.path),
            identity=self._identity(),
            dim=self.dim,
            state_dim=self.state_dim,
            type=TYPES.index(table.type),
            fields=len(self.fields),
            capacity_bytes=self.capacity_bytes,
            threads=self.threads,
            direct=direct,
            io=get_args(DiskIo).index(io),
            depth=whole_number("queue_depth", queue_depth, 1, 4096),
            write_behind=whole_number("write_behind", write_behind, 0, 2**40),
            staging="" if staging is None else str(staging),
            index_cache=cached if index == "disk" else None,
        )
        found = self._native_tier.opened
        self.opened: OpenedFile | None = None if found is None else OpenedFile(*found)
        self._open = True
        self._finalizer = weakref.finalize(self, self._native_tier.close, False)

    def _identity(self) -> list[tuple[str, str]]:
        """What must agree between the file and the table."""
        return [
            ("table", self.table.name),
            ("dim", str(self.dim)),
            ("state_dim", str(self.state_dim)),
            ("type", self.table.type),
            ("fields", ",".join(self.fields)),
        ]

    @property
    def _native(self) -> _native.DiskTier:
        if not self._open:
            raise InputError(f"disk file {self.path} is closed: make a new tier")
        if os.getpid() != self._process:
            raise InputError(f"disk file {self.path} belongs to process {self._process}: a forked child cannot use it")
        return self._native_tier

    def __len__(self) -> int:
        """Rows in the file, shadowed ones included."""
        return len(self._native)

    @property
    def unshadowed(self) -> int:
        """Rows that are not shadowed."""
        return self._native.unshadowed

    @property
    def room(self) -> int:
        """Rows that a write takes now, before any compaction."""
        return self._native.room

    def contains(self, keys: ArrayLike, *, shadowed: bool = True) -> Flags:
        """For each key, whether its row is here. Without `shadowed`, rows that are shadowed count as absent."""
        wanted = as_keys("keys", keys)
        out = np.empty(len(wanted), np.bool_)
        self._checked(self._native.contains, wanted, shadowed, out)
        return out

    def read(self, keys: ArrayLike, *, shadowed: bool = True) -> tuple[Rows, Flags]:
        """The rows of the keys that are here, in the order of the keys, and which keys those are.

        Without `shadowed`, rows that are shadowed count as absent: memory has newer ones.
        """
        wanted = as_keys("keys", keys)
        found = np.empty(len(wanted), np.bool_)
        out = self._empty_rows(len(wanted))
        count = self._checked(
            self._native.read, wanted, shadowed, found, out.keys, out.values, out.state, list(out.fields.values())
        )
        return first_rows(out, count), found

    def write(self, rows: Rows) -> None:
        """Append rows. They supersede older copies of their keys and are not shadowed."""
        keys = as_keys("keys", rows.keys)
        values = as_matrix("values", rows.values, len(keys), self.dim)
        state = as_matrix("state", rows.state, len(keys), self.state_dim)
        if set(rows.fields) != set(self.fields):
            given = ", ".join(sorted(rows.fields)) or "none"
            raise InputError(f"fields are {given}: rows of {self.path} have {', '.join(self.fields) or 'none'}")
        fields = [as_integers(name, rows.fields[name], len(keys)) for name in self.fields]
        self._checked(self._native.write, keys, values, state, fields)

    def shadow(self, keys: ArrayLike) -> None:
        """Memory has these rows now: their copies stay for a crash, and `export` and cuts leave them out."""
        self._checked(self._native.shadow, as_keys("keys", keys))

    def erase(self, keys: ArrayLike) -> int:
        """Remove rows; returns how many were here."""
        return self._checked(self._native.erase, as_keys("keys", keys))

    def flush(self) -> None:
        """Return when all rows and erasures are on disk."""
        self._native.flush()

    def export(self, rows: int = 65_536) -> Iterator[Rows]:
        """All rows that are not shadowed at the first call of `next`, in chunks of at most `rows`."""
        rows = whole_number("rows", rows, 1, 2**32, InputError)
        snapshot = self._native.snapshot()
        while True:
            chunk = self._empty_rows(min(rows, snapshot.rows))
            count = snapshot.next(chunk.keys, chunk.values, chunk.state, list(chunk.fields.values()))
            if count == 0:
                return
            yield first_rows(chunk, count)

    def begin_cut(self, since: int | None = None) -> DiskCut:
        """All rows as they are now that are not shadowed, read while other calls go on; one cut at a time.

        With `since`, the number of the last cut that was saved, only rows written after that cut began. InputError
        where those are not known.
        """
        return DiskCut(self._checked(self._native.begin_cut, since), self._empty_rows)

    def compact(self) -> None:
        """Compact until no extent has fewer rows than the threshold."""
        self._native.compact()

    def stats(self) -> DiskStats:
        """Counts since the tier was made, and bytes in use."""
        return DiskStats(**self._native.stats())

    def verify(self) -> list[str]:
        """Faults of the structure as sentences; none means that index and file agree."""
        return self._native.verify()

    def close(self, *, remove: bool) -> None:
        """Flush and close the file, or remove it. The tier cannot be used afterwards; a second call does nothing."""
        if self._open and os.getpid() == self._process:
            self._open = False
            self._finalizer.detach()
            self._native_tier.close(remove)

    def _checked(self, call: Callable[..., Result], *arguments: object) -> Result:
        try:
            return call(*arguments)
        except ValueError as refused:  # only native code knows whether keys are distinct
            raise InputError(f"disk file {self.path}: {refused}") from None

    def _empty_rows(self, count: int) -> Rows:
        fields = {name: np.empty(count, np.uint32) for name in self.fields}
        values, state = np.empty((count, self.dim), np.float32), np.empty((count, self.state_dim), np.float32)
        return Rows(np.empty(count, np.uint64), values, state, fields)
