"""A folder of files on a local disk or on whatever `pyarrow.fs` reaches, and files that know their checksum.

A checkpoint needs little of a file system: files that are written once from begin to end, one file that appears whole
or not at all, and a list of folders. Local files are synced to disk; an object store promises that by itself.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash
from pyarrow import fs

from hotrow.errors import InputError

READ_BYTES = 1 << 22  # at once, to compute a checksum


@dataclass(frozen=True, slots=True)
class SavedFile:
    """Length and checksum (XXH3, 128 bits, hex) of a file."""

    bytes: int
    xxh3: str


@dataclass(frozen=True, slots=True)
class Place:
    """A folder. `name` is how messages call it: `uri`, by which another process opens it, may hold a password."""

    name: str
    path: str
    filesystem: Any = field(default_factory=fs.LocalFileSystem, repr=False)
    uri: str = field(default="", repr=False)

    @classmethod
    def of(cls, where: "str | Path | Place") -> "Place":
        """From a path or a URI such as s3://bucket/folder."""
        if isinstance(where, Place):
            return where
        if "://" not in str(where):
            path = Path(where).expanduser()
            return cls(str(path), str(path.absolute()), uri=str(path.absolute()))
        scheme, _, rest = str(where).partition("://")
        host, slash, folder = rest.partition("?")[0].partition("/")
        name = f"{scheme}://{host.rpartition('@')[2]}{slash}{folder}".rstrip("/")
        try:
            filesystem, path = fs.FileSystem.from_uri(str(where))
        except (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InputError(f"{name}: cannot be used: {error}") from None
        return cls(name, path.rstrip("/"), filesystem, str(where))

    @property
    def local(self) -> Path | None:
        """The path on this host's disks; None elsewhere."""
        return Path(self.path) if isinstance(self.filesystem, fs.LocalFileSystem) else None

    def folder(self, name: str) -> "Place":
        """A folder in this one, whether it exists or not."""
        address, options = self._address()
        uri = f"{address}/{name}{options}"
        return Place(f"{self.name}/{name}", f"{self.path}/{name}", self.filesystem, uri)

    @property
    def parent(self) -> "Place":
        """The folder that this one is in."""
        name = self.name.rpartition("/")[0] if self.local is None else str(Path(self.name).parent)
        address, options = self._address()
        uri = (address.rpartition("/")[0] or "/") + options
        return Place(name, self.path.rpartition("/")[0] or "/", self.filesystem, uri)

    def _address(self) -> tuple[str, str]:
        """The URI up to its options, and those; a local path has none."""
        address, mark, options = self.uri.partition("?") if "://" in self.uri else (self.uri, "", "")
        return address.rstrip("/"), mark + options

    def folders(self) -> list[str]:
        """Names of the folders in this one, sorted; none where it does not exist."""
        found = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def files(self) -> dict[str, int]:
        """All files below this folder by their path in it, with their lengths."""
        selector = fs.FileSelector(self.path, allow_not_found=True, recursive=True)
        found = [info for info in self.filesystem.get_file_info(selector) if info.type == fs.FileType.File]
        return {info.path[len(self.path.rstrip("/")) + 1 :]: info.size for info in found}

    def has(self, file: str) -> bool:
        """Whether there is such a file."""
        return bool(self.filesystem.get_file_info(f"{self.path}/{file}").type == fs.FileType.File)

    def read(self, file: str) -> bytes:
        """A small file."""
        with self.filesystem.open_input_stream(f"{self.path}/{file}") as source:
            return bytes(source.read())

    def open(self, file: str) -> Any:
        """For reading with random access; a local file is mapped."""
        path = f"{self.path}/{file}"
        return self.filesystem.open_input_file(path) if self.local is None else pa.memory_map(path)

    def facts(self, file: str, watch: Callable[[int], object] = lambda _: None) -> SavedFile:
        """Length and checksum, by reading the file; `watch` gets the bytes of each read."""
        with self.read_once(file, watch) as source:
            source.read_rest()
        return source.facts

    @contextmanager
    def read_once(self, file: str, watch: Callable[[int], object] = lambda _: None) -> Iterator["CheckedSource"]:
        """A file to be read from begin to end; its facts are known then."""
        with self.filesystem.open_input_stream(f"{self.path}/{file}") as stream:
            yield CheckedSource(stream, watch)

    @contextmanager
    def write(self, file: str, watch: Callable[[int], object] = lambda _: None) -> Iterator["Sink"]:
        """A new file; its facts are known when it is closed."""
        path = f"{self.path}/{file}"
        if (folder := self.local) is not None:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
        with self.filesystem.open_output_stream(path) as stream:
            sink = Sink(stream, watch)
            yield sink
        if self.local is not None:
            sync(Path(path))

    def write_last(self, file: str, data: bytes) -> None:
        """A file that appears whole or not at all, after everything that was written before it."""
        if (folder := self.local) is None:
            with self.filesystem.open_output_stream(f"{self.path}/{file}") as stream:
                stream.write(data)  # an object store shows an object when it is complete
            return
        for each in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            sync(each)
        part = folder / f"{file}.part"
        part.write_bytes(data)
        sync(part)
        part.rename(folder / file)
        sync(folder)
        sync(folder.parent)

    def delete_file(self, file: str) -> None:
        """Remove a file."""
        self.filesystem.delete_file(f"{self.path}/{file}")

    def delete(self, last: str) -> None:
        """Remove this folder; `last` is the file without which it counts as removed, so it goes first."""
        if self.has(last):
            self.filesystem.delete_file(f"{self.path}/{last}")
        self.filesystem.delete_dir(self.path)


class CheckedSource:
    """A file that is being read. Arrow's readers take it for a file of Python."""

    def __init__(self, stream: Any, watch: Callable[[int], object]) -> None:
        self._stream, self._watch = stream, watch
        self._digest = xxhash.xxh3_128()
        self.length = 0
        self.closed = False  # asked for by Arrow; the one who opened the file closes it

    def read_buffer(self, size: int) -> pa.Buffer:
        """The next bytes, fewer at the end."""
        block = self._stream.read_buffer(size)
        self._digest.update(memoryview(block))
        self.length += block.size
        self._watch(block.size)
        return block

    read = read_buffer  # as Arrow calls it

    def read_rest(self) -> None:
        """Up to the end of the file."""
        while self.read_buffer(READ_BYTES).size:
            pass

    @property
    def facts(self) -> SavedFile:
        """Of what was read so far."""
        return SavedFile(self.length, self._digest.hexdigest())


class Sink:
    """A file that is being written. Arrow's writers take it for a file of Python."""

    def __init__(self, stream: Any, watch: Callable[[int], object]) -> None:
        self._stream, self._watch = stream, watch
        self._digest = xxhash.xxh3_128()
        self.length = 0
        self.closed = False  # asked for by Arrow; the one who opened the file closes it

    def write(self, data: Any) -> int:
        """All of it."""
        block = memoryview(data)
        self._stream.write(data)
        self._digest.update(block)
        self.length += block.nbytes
        self._watch(block.nbytes)
        return block.nbytes

    def flush(self) -> None:
        """Nothing is held back here."""

    @property
    def facts(self) -> SavedFile:
        """Of what was written so far."""
        return SavedFile(self.length, self._digest.hexdigest())


def sync(path: Path) -> None:
    """Everything of a file or folder that the system still holds goes to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
