"""A text file as blocks of whole lines, each with the number of its first line. Memory stays at a few blocks."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hotrow.data.files import File
from hotrow.errors import ConfigError, InputError

BLOCK = 2 * 2**20  # bytes: what is parsed at once stays near the caches
PIECES = 8  # of a block that are read one by one: small ones lie in memory that is warm already
CACHED = 2**17  # bytes that are looked through at once
LINE_MAX = 64 * 2**20
END, RETURN = b"\n\r"
MARK = b"\xef\xbb\xbf"  # byte order mark that some editors put before UTF-8


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Whole lines, as bytes in the file's own encoding."""

    first: int  # number of the first line, from 1
    data: bytes
    size: int  # lines, the last one also without its end
    stray: bool = False  # there are carriage returns elsewhere than before a line's end

    @classmethod
    def of(cls, first: int, data: bytes) -> "TextBlock":
        marks = np.frombuffer(data, np.uint8)
        ends = sum(int(np.count_nonzero(marks[at : at + CACHED] == END)) for at in range(0, len(data), CACHED))
        size = ends + (data[-1:] not in (b"", b"\n"))
        stray = b"\r" in data and bool(((marks[:-1] == RETURN) & (marks[1:] != END)).any())
        return cls(first, data, size, stray)

    def lines(self) -> list[bytes]:
        """Without their ends."""
        return self.data.removesuffix(b"\n").split(b"\n")

    def without_first(self) -> "TextBlock":
        """All but the first line."""
        return TextBlock(self.first + 1, self.data.partition(b"\n")[2], self.size - 1, self.stray)

    def last(self) -> bytes:
        """The last line without its end."""
        end = len(self.data) - self.data.endswith(b"\n")
        return self.data[self.data.rfind(b"\n", 0, end) + 1 : end]


def blocks(file: File, size: int = BLOCK) -> Iterator[TextBlock]:
    """All lines of a file, about `size` bytes at a time; nothing at all for an empty one."""
    line = 1
    with file.stream() as stream:
        start = _piece(file, stream, len(MARK))
        parts = [] if start == MARK else [start]
        while piece := _piece(file, stream, max(1, size // PIECES)):
            held, end = sum(map(len, parts)) + len(piece), piece.rfind(b"\n") + 1
            if end and held >= size:
                block = TextBlock.of(line, b"".join((*parts, memoryview(piece)[:end])))
                line, parts = line + block.size, [piece[end:]]
                yield block
            elif held > size + LINE_MAX:
                at = line + b"".join(parts).count(b"\n")
                raise InputError(f"{file.name} line {at}: is longer than {LINE_MAX:,} bytes: is this a text file?")
            else:
                parts.append(piece)
    if rest := b"".join(parts):
        yield TextBlock.of(line, rest)


def _piece(file: File, stream: pa.NativeFile, size: int) -> bytes:
    try:
        piece: bytes = stream.read(size)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{file.name}: cannot be read on: {error}") from None
    return piece


def check_encoding(encoding: str) -> None:
    """Lines are split as bytes, so an encoding must write ASCII as ASCII."""
    try:
        plain = "\n\r\t ,\"'0aZ".encode(encoding) == b"\n\r\t ,\"'0aZ"
    except LookupError:
        raise ConfigError(f"encoding={encoding!r}: there is no such encoding") from None
    if not plain:
        raise ConfigError(f"encoding={encoding!r}: must write ASCII as ASCII, as utf-8 or latin-1 do: convert the file")
