"""Segments by name: the path of a table's file, a list of files, and removal of unused ones.

docs/segments.md describes segments and the format of their files.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hotrow import _native
from hotrow.config import Table
from hotrow.errors import ConfigError, SegmentError
from hotrow.sizes import FILE_NAME_RULE, fits_file_name, size_text

SHARED_MEMORY = Path("/dev/shm")
MOUNTS = Path("/proc/self/mounts")
PREFIX, SUFFIX = "hotrow-", ".rows"
DENSE_SUFFIX = ".dense"  # dense parameters of a cluster's shard, which are not a table
GROWING_SUFFIX = ".growing"  # the larger file that takes the place of one of these
DENSE_SUFFIXES = (DENSE_SUFFIX, GROWING_SUFFIX)


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """The facts of a segment's file that are known without attaching to it."""

    path: Path
    run: str
    table: str
    bytes: int
    identity: dict[str, str]
    owner: int | None  # process that has it (0: unknown); None: none has
    kept: bool  # its last owner closed it and wanted it kept
    damaged: str | None  # what is wrong, as a sentence
    age_s: float  # since the file was made or last grew
    uid: int  # the user whose file it is

    @property
    def state(self) -> str:
        if self.uid != os.geteuid():
            return f"owned by uid {self.uid}"
        if self.owner is not None:
            return f"in use by {self.owner}" if self.owner else "in use"
        if self.damaged is not None:
            return "damaged"
        return "kept" if self.kept else "left behind"


def segment_path(run: str, table: str, directory: Path | None = None, huge: bool = False) -> Path:
    """`<directory>/hotrow-<run>-<table>.rows`; without a directory in /dev/shm, or on the first mount of hugetlbfs."""
    for field, value in (("run", run), ("table", table)):
        if not fits_file_name(value):
            raise ConfigError(f"{field}={value!r}: is a part of the segment's file name: use {FILE_NAME_RULE}")
    if directory is None:
        directory = _first_huge_mount() if huge else SHARED_MEMORY
    return Path(directory) / f"{PREFIX}{run}-{table}{SUFFIX}"


def list_segments(directory: Path | None = None) -> list[SegmentInfo]:
    """The segments in a directory, by name; without one those in /dev/shm and on every mount of hugetlbfs."""
    if directory is not None and not directory.is_dir():
        raise ConfigError(f"directory={str(directory)!r}: is not a directory, name the one that holds the segments")
    places = default_directories() if directory is None else [directory]
    suffixes = (SUFFIX, *DENSE_SUFFIXES)
    files = [path for place in places for path in sorted(place.glob(f"{PREFIX}*")) if path.suffix in suffixes]
    return [info for path in files if (info := _look_at(path)) is not None]


def check_no_rows(tables: Iterable[Table]) -> None:
    """SegmentError where a segment of these tables holds rows of an earlier run: a new one must not begin with them."""
    for table in tables:
        segment = table.segment
        if segment is None:
            continue
        path = segment_path(segment.run, table.name, segment.directory, huge=segment.huge)
        info = _look_at(path)
        if info is not None and info.state in ("left behind", "kept"):
            raise refused_rows(path, info.bytes, info.state)


def refused_rows(path: Path, size: int, state: str) -> SegmentError:
    """The sentence for a new run whose segment holds rows."""
    message = f"segment {path}: holds {size_text(size)} of rows of an earlier run ({state})"
    ways = "go on with that run by --resume, take its rows over with --attach (in Python attach=True)"
    return SegmentError(f"{message}, and this run is new: {ways}, or remove them: hotrow segments remove {path}")


def remove_segment(path: Path) -> None:
    """Remove a segment's file; SegmentError where it is none, another user's, or a process has it."""
    if not (path.name.startswith(PREFIX) and path.name.endswith((SUFFIX, *DENSE_SUFFIXES))):
        raise SegmentError(f"segment {path}: is not named {PREFIX}RUN-TABLE{SUFFIX}: remove it by hand if you must")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise SegmentError(f"segment {path}: cannot be opened, {error.strerror}") from None
    try:
        if (uid := os.fstat(descriptor).st_uid) != os.geteuid():
            raise SegmentError(
                f"segment {path}: is owned by uid {uid}, not by uid {os.geteuid()}: its owner removes it"
            )
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), path.lstat()):  # else it went, and another came in its place
            path.unlink()
    except BlockingIOError:
        info = _look_at(path)
        raise SegmentError(f"segment {path}: {info.state if info else 'in use'}; end that process first") from None
    except OSError as error:
        raise SegmentError(f"segment {path}: cannot be removed, {error.strerror}") from None
    finally:
        os.close(descriptor)


def default_directories() -> list[Path]:
    """Where segments lie whose directory was not given."""
    return [SHARED_MEMORY, *huge_mounts()]


def huge_mounts() -> Iterator[Path]:
    """Where hugetlbfs is mounted."""
    if MOUNTS.exists():
        for line in MOUNTS.read_text().splitlines():
            _, place, kind, *_ = line.split(" ")
            if kind == "hugetlbfs":
                yield Path(place.encode().decode("unicode_escape"))  # spaces are written \040


def _first_huge_mount() -> Path:
    found = next(huge_mounts(), None)
    if found is None:
        raise ConfigError("huge=True: hugetlbfs is not mounted; mount it (mount -t hugetlbfs none DIRECTORY)")
    return found


def _look_at(path: Path) -> SegmentInfo | None:
    """None where the file went meanwhile. Another user's file is named and not looked into."""
    identity: list[tuple[str, str]] = []
    try:
        file = path.lstat()
        size, in_use, owner, kept, fault = file.st_size, False, 0, False, ""
        if file.st_uid == os.geteuid() and path.suffix in DENSE_SUFFIXES:
            in_use = _is_locked(path)
        elif file.st_uid == os.geteuid():
            size, identity, in_use, owner, kept, fault = _native.inspect_segment(str(path))
    except FileNotFoundError:
        return None
    except SegmentError as error:
        if not path.exists():
            return None
        fault = str(error)
    fields = dict(identity)
    name = path.name.removeprefix(PREFIX).removesuffix(path.suffix)
    dense = path.suffix in DENSE_SUFFIXES
    run, table = (name, "(dense parameters)") if dense else _run_and_table(name, fields.get("table"))
    return SegmentInfo(
        path=path,
        run=run,
        table=table,
        bytes=size,
        identity=fields,
        owner=owner if in_use else None,
        kept=kept,
        damaged=fault or None,
        age_s=max(0.0, time.time() - file.st_mtime),
        uid=file.st_uid,
    )


def _is_locked(path: Path) -> bool:
    """Whether a process has a file of dense parameters."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _run_and_table(name: str, table: str | None) -> tuple[str, str]:
    """A name with several '-' can be read in more than one way; the table in the header decides."""
    if table and name.endswith(f"-{table}"):
        return name.removesuffix(f"-{table}"), table
    run, _, last = name.rpartition("-")
    return run, last
